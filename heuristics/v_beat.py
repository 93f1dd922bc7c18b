"""V-Beat is a V schedule without any search, and optimal where its cost equals the bound `two times`.

On a V of p devices, device d holds the *lower* stage d and the *upper* stage 2p - 1 - d. A *beat* is one B,
one W and one F. Each device runs 2p F's, which fill a memory of 2p activations. Then it runs beats, which
leave the memory as it is, and at last the B's and W's that are left. Whether a B or an F belongs to the lower
or the upper stage depends only on the number of its beat and on the device. With equal stages every operation
then has its inputs when its beat comes.

`docs/theorem.md` gives the start times, defines the two times of the bound, and proves for which costs the
last device never idles between them (`meets_bound`). With other costs the order is valid too, but nothing is
proven.

**Where a B takes longer than an F**, another form is tried first. In the form above, each of the last lower
B's of a device starts later than that of the next device by the time of an F and a message, which is too
early: the lower B waits for the end of the B on the next device and for a message. So only F's and upper B's
have given times; they are the *skeleton* of a device. The gaps are filled from the last device to the first:
each lower B runs as soon as it can, and W's run where they do not delay a lower B. If the device then ends
too late, it is filled again *eagerly*: a W may delay a lower B, if that B still ends by the arrival of the
next lower B. The theorem holds for this form if, on every device, no operations overlap, at most 2p
activations are held and the end is in time, which `filled_moves` checks.

**Where all devices share one frame**, as in the makespan, the last device would idle after its last F. If W's
are long, one after each pair of B's fills its end, and if they are short, little is lost; for both the sixth
theorem proves that the order is optimal. Else the ends of the devices are packed by beam searches
(`v_tails`), and the cheaper order is taken.

Equal stages are described by `Times`, and a sequence of operations by a list of `Move`. A move is an
operation whose microbatch is left out; it has nothing to do with the moves of annealing. On a device, the
k-th F of a stage is the F of microbatch k, and likewise for B, so a sequence of moves determines the order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from sys import maxsize

from tightpipe.base.errors import NoScheduleError
from tightpipe.model.graph import NO_LIMIT
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.model.simulate import retime
from tightpipe.params.budget import UNLIMITED, Budget

from .family import cheapest, check_placement, within_limits
from .list_schedule import stage_costs
from .v_tails import Held, has_tails, least_makespan, long_weights_fit, packed_tails, weights_between

Move = tuple[OpKind, bool]
"""The kind of an operation and, for an F or a B, whether it belongs to the upper stage of its device."""
UPPER_F, LOWER_F = (OpKind.F, True), (OpKind.F, False)
UPPER_B, LOWER_B = (OpKind.B, True), (OpKind.B, False)
OLDEST_W = (OpKind.W, True)


@dataclass(frozen=True, slots=True)
class Times:
    """Ticks of an F, a B, a W and a message between neighbouring devices, the same everywhere."""

    forward: int
    backward: int
    weight: int
    comm: int

    @property
    def beat(self) -> int:
        """Ticks of an F, a B and a W together."""
        return self.forward + self.backward + self.weight

    @property
    def hops(self) -> int:
        """Ticks of an F, a B and two messages: what a device has more than the last one after its last B."""
        return self.forward + self.backward + 2 * self.comm

    def of(self, move: Move) -> int:
        """Return the ticks that a move takes."""
        return {OpKind.F: self.forward, OpKind.B: self.backward, OpKind.W: self.weight}[move[0]]


def numbered(moves: Iterable[Move], lower: int, upper: int) -> list[tuple[OpKind, int, int]]:
    """Return the operations of a device's moves, followed by the W's that are left.

    The k-th F of a stage, counted from 0, is of microbatch k, and likewise for B. A W takes the oldest B, if
    one is left without a W.
    """
    done: Counter[Move] = Counter()
    pending: deque[tuple[OpKind, int, int]] = deque()
    operations = []
    for kind, is_upper in moves:
        if kind is OpKind.W:
            if pending:
                operations.append(pending.popleft())
            continue
        stage, microbatch = upper if is_upper else lower, done[kind, is_upper]
        done[kind, is_upper] += 1
        operations.append((kind, stage, microbatch))
        if kind is OpKind.B:
            pending.append((OpKind.W, stage, microbatch))
    return [*operations, *pending]


def meets_bound(devices: int, microbatches: int, times: Times, whole: bool = False) -> bool:
    """Return whether a theorem of `docs/theorem.md` proves V-Beat optimal at 2p activations.

    It is the second one, or if the devices share one frame (`whole`, as in the makespan) the sixth. They have
    one more condition, which is not checked here: from its B until its W a microbatch holds at least w / (b +
    w) of an activation, where b and w are the ticks of a B and a W. With long W's in one frame it is not
    needed. `times` has the times of equal stages and links.
    """
    p, f, b, w, c = devices, times.forward, times.backward, times.weight, times.comm
    early, in_beats = early_devices(p, times, whole), b <= f and c <= min(f, b + w)
    in_time = (2 * early + 1) * w <= early * _trip(times, whole)
    at_end = in_time and (p - early + 1) * w <= (p - early) * (b + 2 * c)
    long = whole and p > 1 and f <= 2 * b and w <= f + 2 * c and long_weights_fit(p, times)
    return microbatches >= 2 * p and in_beats and (at_end or long)


def early_devices(devices: int, times: Times, whole: bool = False) -> int:
    """Return the number of devices, counted from device 0, that run one more W before their last B's.

    The other devices have enough time to run that W after their last B. The result is the least k >= 1 with
    (2k + 1) w <= k (f + b + 2c), but at most `devices`; f, b, w and c are the ticks of an F, a B, a W and a
    message. If the devices share one frame, it is b + c in place of f + b + 2c.
    """
    spare = _trip(times, whole) - 2 * times.weight
    return min(devices, -(-times.weight // spare)) if spare > 0 else devices


def _trip(times: Times, whole: bool) -> int:
    """Return how much more time a device has after its last B than the device before it, in ticks."""
    return times.backward + times.comm if whole else times.hops


def v_beat_order(instance: Instance, budget: Budget = UNLIMITED) -> Order:
    """Return the order of V-Beat, with errors as those of `family`; it needs at least 2p microbatches.

    Where all devices share one frame, most of the time of the budget may go into the ends of the devices.
    """
    check_placement(instance, "v-beat", "v")
    p, n = instance.devices, instance.microbatches
    if n < 2 * p:
        raise NoScheduleError(f"v-beat needs at least {2 * p} microbatches on {p} devices, and has {n}")
    times = _mean_times(instance)
    if instance.whole and long_weights_fit(p, times):
        spread = _order_of(p, [_moves(p, n, d, between=weights_between(times)) for d in range(p)])
        if cost(retime(instance, spread)) == least_makespan(p, n, times):
            return within_limits(instance, "v-beat", spread)
    order = within_limits(instance, "v-beat", _order_of(p, _all_moves(p, n, times, instance.whole)))
    durations = stage_costs(instance).duration
    # ends that are packed for the mean of stages that differ seldom fit these
    share = 0.8 if (durations == durations[:, :1]).all() else 0.1
    packed = _packed_moves(instance, times, budget.part(share)) if instance.whole else None
    orders = [order]
    if packed:
        with suppress(NoScheduleError):  # stages that differ may hold more than stage 0, which is packed
            orders.append(within_limits(instance, "v-beat", _order_of(p, packed)))
    return cheapest(instance, orders)


def _order_of(p: int, moves: Sequence[Iterable[Move]]) -> Order:
    return Order.from_lists([numbered(moves[d], d, 2 * p - 1 - d) for d in range(p)])


def _packed_moves(instance: Instance, times: Times, budget: Budget) -> list[list[Move]] | None:
    """Return the moves of each device with packed ends; None if none are found."""
    p, n = instance.devices, instance.microbatches
    if not has_tails(p, n, times):
        return None
    limits = (instance.memory_limit(d) for d in range(p))
    limit = min(NO_LIMIT if each is None else each for each in limits)
    forward, pending = (instance.memory_delta(kind, 0) for kind in (OpKind.F, OpKind.W))
    tails = packed_tails(p, n, times, Held(forward, -pending, limit), budget)
    if tails is None:
        return None
    # the numbers of kinds in `v_tails` are the places in this list
    kinds = [LOWER_F, UPPER_F, UPPER_B, LOWER_B, OLDEST_W]
    return [
        [*islice(_moves(p, n, d, False), 2 * p + 3 * tail.beats), *(kinds[k] for k in tail.kinds)]
        for d, tail in enumerate(tails)
    ]


def _all_moves(p: int, n: int, times: Times, whole: bool) -> Sequence[Iterable[Move]]:
    """Return the `Move`s of each device: those of `filled_moves` if it finds some, else those of `_moves`."""
    early = early_devices(p, times, whole and meets_bound(p, n, times, whole))
    return filled_moves(p, n, times) or [_moves(p, n, d, d < early) for d in range(p)]


def _mean_times(instance: Instance) -> Times:
    costs, hops = stage_costs(instance), max(1, instance.stages - 2)
    f, b, w = (int(ticks) // instance.stages for ticks in costs.duration.sum(axis=1))
    return Times(f, b, w, int(costs.lag[OpKind.F].sum()) // hops)


def _moves(p: int, n: int, device: int, early: bool = False, between: int | None = None) -> Iterator[Move]:
    """Yield the moves of a device up to its last B; an `early` one runs one more W before its last B's.

    With `between`, a W runs after each pair of B's, and so many between two of the last lower B's, if left.
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
    yield from [UPPER_B, LOWER_B, *([] if between is None else [OLDEST_W])] * device
    yield UPPER_B
    if between is None:
        yield from [OLDEST_W] * early
        yield from [LOWER_B, OLDEST_W] * below
        yield LOWER_B
    else:
        yield LOWER_B
        yield from [*[OLDEST_W] * between, LOWER_B] * below


_Timed = tuple[int, Move]
"""The start of a move, in ticks from the first start on device 0, and the move."""
_NEVER = maxsize
"""A tick that is later than every start."""


def filled_moves(devices: int, microbatches: int, times: Times) -> list[list[Move]] | None:
    """Return the moves of each device; None if there is no skeleton or a device cannot be filled in time."""
    if not _has_skeleton(devices, times):
        return None
    timetable: list[list[_Timed]] = []
    arrivals = _lower_backwards_of_last_device(devices, microbatches, times)
    for device in reversed(range(devices)):
        timed = _device_in_time(devices, microbatches, device, times, arrivals)
        if timed is None:
            return None
        timetable.insert(0, timed)
        arrivals = [start + times.backward + times.comm for start, move in timed if move == LOWER_B]
    return [[move for _, move in timed] for timed in timetable]


def _has_skeleton(p: int, times: Times) -> bool:
    """Return whether the times satisfy the conditions of theorem 3 in `docs/theorem.md`, such as B > F."""
    f, b, w, c = times.forward, times.backward, times.weight, times.comm
    return f < b <= f + 2 * c and c <= f and 2 * c <= w and (p - 2) * (b - f) <= times.beat


def _lower_backwards_of_last_device(p: int, n: int, times: Times) -> list[int]:
    """Return the starts of the last device's lower B's: in every other beat, then after upper B's."""
    first, last_forward = _first_beat(p, p - 1, times), _end_of_last_forward(p, n, times)
    in_beats = [first + (2 * k + 1) * times.beat for k in range(n - p)]
    return in_beats + [last_forward + q * times.hops + times.backward for q in range(p)]


def _first_beat(p: int, device: int, times: Times) -> int:
    """Return the start of the device's first beat, in ticks."""
    return 2 * p * times.forward + 2 * (p - 1) * times.comm + device * (times.backward + times.comm)


def _end_of_last_forward(p: int, n: int, times: Times) -> int:
    """Return the tick at which the last device ends its last F, called t2 in `docs/theorem.md`."""
    return _first_beat(p, p - 1, times) + 2 * (n - p) * times.beat


def _end(p: int, n: int, device: int, times: Times) -> int:
    """Return the latest end at which the device's span does not exceed the formula in `docs/theorem.md`."""
    f, b, w, c = times.forward, times.backward, times.weight, times.comm
    after = (p - 1) * f + 2 * p * b + 3 * (p - 1) * c + w
    return _end_of_last_forward(p, n, times) + after + device * (f + c)


def _device_in_time(
    p: int, n: int, device: int, times: Times, arrivals: Sequence[int]
) -> list[_Timed] | None:
    """Return the moves of a device with their starts; None if they cannot end by the tick `_end`.

    `arrivals` has for each microbatch the earliest start of its B on the lower stage of the device.
    """
    skeleton = [*_before_beats(p, device, times), *_beats(p, n, device, times), *_after(p, n, device, times)]
    for eager in (False, True):
        timed = _Filling(times, arrivals, eager).fill(skeleton)
        in_time = timed[-1][0] + times.weight <= _end(p, n, device, times)
        if in_time and _possible(timed, times, 2 * p):
            return timed
    return None


def _before_beats(p: int, device: int, times: Times) -> Iterator[_Timed]:
    """Yield the F's before the first beat."""
    alone = 2 * (p - 1 - device) + 1
    begin = device * (times.forward + times.comm)
    for number in range(2 * p):
        wait = (alone - 1) * times.comm if number >= alone else 0
        upper = number >= alone and (number - alone) % 2 == 0
        yield begin + number * times.forward + wait, UPPER_F if upper else LOWER_F


def _beats(p: int, n: int, device: int, times: Times) -> Iterator[_Timed]:
    """Yield the upper B's and the F's of all beats but the last ones, which `_after` yields."""
    below, first = p - 1 - device, _first_beat(p, device, times)
    for beat in range(2 * (n - p) - below):
        both_upper, odd = beat < below, (beat - below) % 2 == 1
        if both_upper or not odd:
            yield first + beat * times.beat, UPPER_B
        forward = UPPER_F if both_upper or odd else LOWER_F
        yield first + (beat + 1) * times.beat - times.forward, forward


def _after(p: int, n: int, device: int, times: Times) -> Iterator[_Timed]:
    """Yield the upper B's and F's of the last beats, half of which have no F, and then the last upper B's."""
    below = p - 1 - device
    for left in range(below - 1, -1, -1):
        yield _upper_forward_end(p, n, device, left + 1, times), UPPER_B
        yield _upper_forward_end(p, n, device, left, times) - times.forward, UPPER_F
    last = _upper_forward_end(p, n, device, 0, times)
    yield from ((last + q * times.hops, UPPER_B) for q in range(device + 1))


def _upper_forward_end(p: int, n: int, device: int, left: int, times: Times) -> int:
    """Return the end, in ticks, of the upper F after which the device has `left` more upper F's.

    `left` is at most the number of devices behind this one. The end is e_m in `docs/theorem.md`, with
    m = `left`. For the same `left` it is later than on the next device by a B and a message, but for the last
    upper F by an F and a message.
    """
    below = p - 1 - device
    spare = times.weight - 2 * times.comm
    last = _end_of_last_forward(p, n, times) + below * (times.forward + times.comm)
    later = (below - left) * (times.backward - times.forward) if left else 0
    return last + left * (spare - 2 * times.beat) + later


@dataclass(slots=True)
class _Filling:
    """A device whose gaps are being filled, from the earliest to the latest."""

    times: Times  #: the times of equal stages and links
    arrivals: Sequence[int]  #: for each microbatch, the earliest start of its lower B
    eager: bool  #: whether a W may delay a lower B, as long as that B ends by the arrival of the next lower B
    now: int = 0  #: the end of the last move so far, in ticks
    pending: int = 0  #: number of B's so far whose W has not run
    lower: int = 0  #: number of lower B's so far
    timed: list[_Timed] = field(default_factory=list)  #: the moves so far with their starts

    def fill(self, skeleton: Sequence[_Timed]) -> list[_Timed]:
        """Return the moves of the skeleton and those that fill its gaps or follow it, with their starts."""
        for start, move in skeleton:
            self._fill_gap(start)
            self._add(start, move)
        self._fill_gap(_NEVER)
        return self.timed

    def _fill_gap(self, until: int) -> None:
        while True:
            start = max(self.now, self.arrivals[self.lower]) if self.lower < len(self.arrivals) else _NEVER
            fits = start + self.times.backward <= until
            if self.pending and self.now + self.times.weight <= self._free_until(
                start if fits else until, until
            ):
                self._add(self.now, OLDEST_W)
            elif fits:
                self._add(start, LOWER_B)
            else:
                return

    def _free_until(self, start: int, until: int) -> int:
        """Return the tick by which a W that runs now has to end, before the skeleton goes on at `until`.

        The next lower B can start at `start`, which is `until` if the B has to wait for a later gap.
        """
        if not self.eager or start == until or self.lower + 1 >= len(self.arrivals):
            return start
        return max(start, min(self.arrivals[self.lower + 1], until) - self.times.backward)

    def _add(self, start: int, move: Move) -> None:
        self.timed.append((start, move))
        self.now = start + self.times.of(move)
        self.pending += {OpKind.F: 0, OpKind.B: 1, OpKind.W: -1}[move[0]]
        self.lower += move == LOWER_B


def _possible(timed: Sequence[_Timed], times: Times, activations: int) -> bool:
    """Return whether no two moves overlap, and at most `activations` F's are without their W at any time."""
    held = 0
    for (start, move), (after, _) in zip(timed, [*timed[1:], (_NEVER, OLDEST_W)], strict=True):
        held += {OpKind.F: 1, OpKind.B: 0, OpKind.W: -1}[move[0]]
        if held > activations or start + times.of(move) > after:
            return False
    return True
