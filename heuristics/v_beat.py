"""V-Beat, a V-schedule that meets the bound of two times: optimal by a proof, without any search.

On a V of p devices, device d holds the *lower* stage d and the *upper* stage 2p - 1 - d. A *beat* is one B,
one W and one F. Each device runs 2p F's, which fill a memory of 2p activations, then beats, which leave the
memory as it is, and at last what is left without F's. Which of its two stages a B or an F belongs to depends
only on the number of the beat and on the device, so that on equal stages every operation has what it needs
when its beat comes. `docs/theorem.md` gives the start times, and proves for which costs the last device never
idles between its two times (`meets_bound`). With other costs the order is valid too, but nothing is proven.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tightpipe.core.errors import NoScheduleError
from tightpipe.core.instance import Instance
from tightpipe.core.instance_arrays import arrays_of
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order

from .family import check_placement, within_limits

_F, _B, _W = OpKind.F, OpKind.B, OpKind.W
_Move = tuple[OpKind, bool]
"""A kind, and for an F or a B whether it is one of the upper stage."""
_UPPER_F, _LOWER_F, _UPPER_B, _LOWER_B, _OLDEST_W = (
    (_F, True),
    (_F, False),
    (_B, True),
    (_B, False),
    (_W, True),
)


@dataclass(frozen=True, slots=True)
class Times:
    """Ticks of an F, a B, a W and a message between neighbouring devices, the same everywhere."""

    forward: int
    backward: int
    weight: int
    comm: int

    @property
    def hops(self) -> int:
        """An F and a B, each with its message: for how much longer each next device may run at its end."""
        return self.forward + self.backward + 2 * self.comm


def meets_bound(devices: int, microbatches: int, times: Times) -> bool:
    """Return whether the second theorem of `docs/theorem.md` proves V-Beat optimal at 2p activations.

    The bound that it meets requires that a pending W holds its share of an activation, w / (b + w), or more.
    """
    p, f, b, w, c = devices, times.forward, times.backward, times.weight, times.comm
    early = early_devices(p, times)
    in_beats = b <= f and c <= min(f, b + w)
    at_end = (2 * early + 1) * w <= early * times.hops and (p - early + 1) * w <= (p - early) * (b + 2 * c)
    return microbatches >= 2 * p and in_beats and at_end


def early_devices(devices: int, times: Times) -> int:
    """Return how many of the first devices run one more W before their last B's, at least 1.

    The others have enough time for that W at their end. The number is the least k for which they do, that is
    (2k + 1) w <= k (f + b + 2c).
    """
    spare = times.hops - 2 * times.weight
    return min(devices, -(-times.weight // spare)) if spare > 0 else devices


def v_beat_order(instance: Instance) -> Order:
    """Return the order of V-Beat.

    Raises
    ------
    InputError, InfeasibleError
        If the placement is not v, or the instance has no schedule.
    NoScheduleError
        If there are fewer than 2p microbatches, or the memory limit is too small.
    """
    check_placement(instance, "v-beat", "v")
    p, n = instance.devices, instance.microbatches
    if n < 2 * p:
        raise NoScheduleError(f"v-beat needs at least {2 * p} microbatches on {p} devices, and has {n}")
    early = early_devices(p, _mean_times(instance))
    devices = [_numbered(_moves(p, n, d, d < early), d, 2 * p - 1 - d) for d in range(p)]
    return within_limits(instance, "v-beat", Order.from_lists(devices))


def _mean_times(instance: Instance) -> Times:
    numbers, hops = arrays_of(instance), max(1, instance.stages - 2)
    f, b, w = (int(numbers.duration[kind].sum()) // instance.stages for kind in (_F, _B, _W))
    return Times(f, b, w, int(numbers.lag[_F, 0].sum()) // hops)


def _moves(p: int, n: int, device: int, early: bool) -> Iterator[_Move]:
    """Yield the moves of a device in sequence, up to its last B.

    Parameters
    ----------
    p, n
        Numbers of devices and of microbatches, n >= 2p.
    device
        The device.
    early
        Whether it runs one more W before its last B's.
    """
    below = p - 1 - device
    yield from [_LOWER_F] * (2 * below + 1)
    yield _UPPER_F
    yield from [_LOWER_F, _UPPER_F] * device
    lower_forwards = n - (2 * p - 1 - device)
    for beat in range(2 * (n - p) + below):
        cycle, odd = divmod(beat - below, 2)
        yield _LOWER_B if cycle >= 0 and odd else _UPPER_B
        yield _OLDEST_W
        if cycle < 0 or odd:
            yield _UPPER_F
        elif cycle < lower_forwards:
            yield _LOWER_F
    yield from [_UPPER_B, _LOWER_B] * device
    yield _UPPER_B
    yield from [_OLDEST_W] * early
    yield from [_LOWER_B, _OLDEST_W] * below
    yield _LOWER_B


def _numbered(moves: Iterable[_Move], lower: int, upper: int) -> list[tuple[OpKind, int, int]]:
    """Return the operations of a device's moves, followed by the W's that are left.

    The k-th move of a kind and stage is that of microbatch k. A W is that of the oldest B without one.
    """
    done: Counter[_Move] = Counter()
    pending: deque[tuple[OpKind, int, int]] = deque()
    operations = []
    for kind, is_upper in moves:
        if kind is _W:
            operations.append(pending.popleft())
            continue
        stage, microbatch = upper if is_upper else lower, done[kind, is_upper]
        done[kind, is_upper] += 1
        operations.append((kind, stage, microbatch))
        if kind is _B:
            pending.append((_W, stage, microbatch))
    return [*operations, *pending]
