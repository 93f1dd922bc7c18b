"""V-Beat is a V schedule without any search, and optimal where its cost equals the bound `two times`.

On a V of p devices, device d holds the *lower* stage d and the *upper* stage 2p - 1 - d. A *beat* is one B,
one W and one F. Each device runs 2p F's, which fill a memory of 2p activations. Then it runs beats, which
leave the memory as it is, and at last the B's and W's that are left. Whether a B or an F belongs to the lower
or the upper stage depends only on the number of its beat and on the device. With equal stages every operation
then has its inputs when its beat comes.

`docs/theorem.md` gives the start times, defines the two times of the bound, and proves for which costs the
last device never idles between them (`meets_bound`). If B takes longer than F, the form of `v_beat_filled`,
whose end differs, is tried first. With other costs the order is valid too, but nothing is proven.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tightpipe.base.errors import NoScheduleError
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order

from .family import check_placement, within_limits
from .list_schedule import stage_costs
from .v_beat_filled import LOWER_B, LOWER_F, OLDEST_W, UPPER_B, UPPER_F, Move, Times, filled_moves, numbered


def meets_bound(devices: int, microbatches: int, times: Times) -> bool:
    """Return whether the second theorem of `docs/theorem.md` proves V-Beat optimal at 2p activations.

    The theorem has one more condition, which is not checked here: from its B until its W a microbatch holds
    at least w / (b + w) of an activation, where b and w are the ticks of a B and a W.

    - `devices`, `microbatches`: the numbers of devices and of microbatches.
    - `times`: the times of equal stages and links.
    """
    p, f, b, w, c = devices, times.forward, times.backward, times.weight, times.comm
    early = early_devices(p, times)
    in_beats = b <= f and c <= min(f, b + w)
    at_end = (2 * early + 1) * w <= early * times.hops and (p - early + 1) * w <= (p - early) * (b + 2 * c)
    return microbatches >= 2 * p and in_beats and at_end


def early_devices(devices: int, times: Times) -> int:
    """Return the number of devices, counted from device 0, that run one more W before their last B's.

    The other devices have enough time to run that W after their last B. The result is the least k >= 1 with
    (2k + 1) w <= k (f + b + 2c), but at most `devices`; f, b, w and c are the ticks of an F, a B, a W and a
    message.
    """
    spare = times.hops - 2 * times.weight
    return min(devices, -(-times.weight // spare)) if spare > 0 else devices


def v_beat_order(instance: Instance) -> Order:
    """Return the order of V-Beat.

    Raise an InputError or an InfeasibleError if the placement is not v, or the instance has no schedule.
    Raise a NoScheduleError if there are fewer than 2p microbatches, or the memory limit is too small.
    """
    check_placement(instance, "v-beat", "v")
    p, n = instance.devices, instance.microbatches
    if n < 2 * p:
        raise NoScheduleError(f"v-beat needs at least {2 * p} microbatches on {p} devices, and has {n}")
    moves = _all_moves(p, n, _mean_times(instance))
    devices = [numbered(moves[d], d, 2 * p - 1 - d) for d in range(p)]
    return within_limits(instance, "v-beat", Order.from_lists(devices))


def _all_moves(p: int, n: int, times: Times) -> Sequence[Iterable[Move]]:
    """Return the `Move`s of each device: those of `filled_moves` if it finds some, else those of `_moves`."""
    early = early_devices(p, times)
    return filled_moves(p, n, times) or [_moves(p, n, d, d < early) for d in range(p)]


def _mean_times(instance: Instance) -> Times:
    costs, hops = stage_costs(instance), max(1, instance.stages - 2)
    f, b, w = (int(ticks) // instance.stages for ticks in costs.duration.sum(axis=1))
    return Times(f, b, w, int(costs.lag[OpKind.F].sum()) // hops)


def _moves(p: int, n: int, device: int, early: bool) -> Iterator[Move]:
    """Yield the kind and stage (upper or lower) of each operation of a device in sequence, up to its last B.

    - `p`, `n`: numbers of devices and of microbatches, n >= 2p.
    - `device`: the device.
    - `early`: whether the device runs one more W before its last B's, which are of the lower stage.
    """
    below = p - 1 - device
    yield from [LOWER_F] * (2 * below + 1)
    yield UPPER_F
    yield from [LOWER_F, UPPER_F] * device
    lower_forwards = n - (2 * p - 1 - device)
    for beat in range(2 * (n - p) + below):
        cycle, odd = divmod(beat - below, 2)
        yield LOWER_B if cycle >= 0 and odd else UPPER_B
        yield OLDEST_W
        if cycle < 0 or odd:
            yield UPPER_F
        elif cycle < lower_forwards:
            yield LOWER_F
    yield from [UPPER_B, LOWER_B] * device
    yield UPPER_B
    yield from [OLDEST_W] * early
    yield from [LOWER_B, OLDEST_W] * below
    yield LOWER_B
