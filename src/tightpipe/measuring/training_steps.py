"""The training steps of a run: the whole steps of all devices, matched with each other, by one clock.

What a device ran is cut into stretches: whole training steps, and the stretches before, between and after
them. A whole training step is a sequence of consecutive operations in which every stage of the device ran F,
and B and W or the fused BW, once for each microbatch, and each F before its backward. Validation passes, and
steps that the trace does not have from begin to end, lie in the other stretches, and are left out with a
warning.

The clocks of the devices are aligned by the messages between them. A message cannot arrive before it was
sent. If the clock of device a is put forward by o[a], each message from a to b demands o[a] - o[b] <= (when b
starts to compute with it) - (when a has computed it), each time by the device's own clock. These difference
constraints have a solution exactly when no cycle of devices has a negative sum. If all o = 0 satisfy the
constraints, the clocks are kept. Otherwise o[0] is 0, and messages in both directions bound every other
offset from both sides. The middle of the bounds is taken, as NTP does; an offset without two bounds is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, product
from typing import NamedTuple

import numpy as np

from ..base.errors import InputError
from ..kernels.arrays import Ints
from ..model.operation import COMPUTES, Operation, OpKind
from .tracks import Timed, Track, chosen_windows, idle_before

_SHARE = {OpKind.F: 1, OpKind.B: 1, OpKind.W: 1, OpKind.BW: 2}
"""How much each kind of operation is of the work of a microbatch at a stage, of which the sum is 3."""

_NOT_BEFORE = {
    OpKind.F: COMPUTES,
    OpKind.B: (OpKind.B, OpKind.W),
    OpKind.W: (OpKind.W,),
    OpKind.BW: (OpKind.BW,),
}
"""The kinds that do not come before a kind in one step, for the same stage and microbatch."""


class Stretch(NamedTuple):
    """Consecutive operations of a device, and whether they are a whole training step."""

    operations: tuple[Timed, ...]
    whole: bool


def microbatches_of(operations: Iterable[Timed]) -> int:
    """Return the number of microbatches of a training step.

    Backwards tell it if there are any, because a validation pass may have another number of microbatches.
    """
    ran = [timed.operation for timed in operations]
    trained = [operation for operation in ran if operation.kind is not OpKind.F]
    return 1 + max(operation.microbatch for operation in trained or ran)


def stretches_of(operations: Sequence[Timed], microbatches: int) -> list[Stretch]:
    """Return the stretches of a device's operations, which are sorted by start."""
    found: list[Stretch] = []
    at = 0
    for start, end in _whole_steps(operations, microbatches):
        if at < start:
            found.append(Stretch(tuple(operations[at:start]), False))
        found.append(Stretch(tuple(operations[start:end]), True))
        at = end
    if at < len(operations):
        found.append(Stretch(tuple(operations[at:]), False))
    return found


def _whole_steps(operations: Sequence[Timed], microbatches: int) -> list[tuple[int, int]]:
    """Return begin and end of the whole steps."""
    stages = len({timed.operation.stage for timed in operations})
    done = list(accumulate((_SHARE[timed.operation.kind] for timed in operations), initial=0))
    begin_of = {work: begin for begin, work in enumerate(done)}
    begins: list[int | None] = [None]
    for work, barrier in zip(done[1:], _barriers(operations, microbatches), strict=True):
        begin = begin_of.get(work - 3 * stages * microbatches)
        begins.append(None if begin is None or begin < barrier else begin)
    return chosen_windows(begins, idle_before((timed.start, timed.end) for timed in operations))


def _barriers(operations: Sequence[Timed], microbatches: int) -> list[int]:
    """Return for each operation the first place from which on a step with it may begin."""
    barriers: list[int] = []
    behind: dict[Operation, int] = {}  # the place behind the latest of each operation
    least = 0
    for place, timed in enumerate(operations):
        kind, stage, microbatch = timed.operation
        for other in _NOT_BEFORE[kind]:
            least = max(least, behind.get(Operation(other, stage, microbatch), 0))
        behind[timed.operation] = place + 1
        if microbatch >= microbatches:
            least = place + 1
        barriers.append(least)
    return barriers


Step = tuple[tuple[Timed, ...], ...]
"""The operations of each device in one training step, sorted by start."""

_Pairing = dict[int, int]
"""The place of each whole step among the stretches of one device, and of the same step on another device."""


def steps_of(tracks: Sequence[Track]) -> tuple[list[Step], list[str]]:
    """Return the training steps that are whole on all devices, and a sentence on all else that ran."""
    for track in tracks:
        _check_fused(track)
    count = microbatches_of(chain.from_iterable(track.operations for track in tracks))
    cut = [stretches_of(track.operations, count) for track in tracks]
    fewest = min(range(len(cut)), key=lambda device: len(_whole(cut[device])))
    if not _whole(cut[fewest]):
        raise _no_step(cut[fewest:], tracks[fewest:], count)
    pairings = []
    for device, own in enumerate(cut):
        pairing = _pairing(cut[fewest], own)
        if pairing is None:
            have, wanted = (len(_whole(cut[d])) for d in (device, fewest))
            known = f"{tracks[fewest].source} has {wanted}, and it is not known which belong together"
            rule, source = f"{known}: record the same whole steps on all ranks", tracks[device].source
            raise InputError(rule, key="training steps", value=have, source=source)
        pairings.append(pairing)
    common = [place for place in _whole(cut[fewest]) if all(place in pairing for pairing in pairings)]
    if not common:
        raise _no_step(cut, tracks, count)
    places = [[pairing[place] for place in common] for pairing in pairings]
    steps = [
        tuple(own[place].operations for own, place in zip(cut, step, strict=True))
        for step in zip(*places, strict=True)
    ]
    between = zip(*map(_between, cut, places), strict=True)
    return steps, [
        f"what ran {_where(number, len(steps))} is left out: {_why(others, tracks, count)}"
        for number, others in enumerate(between)
        if any(others)
    ]


def _whole(stretches: Sequence[Stretch]) -> list[int]:
    return [place for place, stretch in enumerate(stretches) if stretch.whole]


def _between(stretches: Sequence[Stretch], places: Sequence[int]) -> list[Sequence[Stretch]]:
    """Return the stretches before the first of these places, between them, and behind the last."""
    ends = [*places, len(stretches)]
    return [
        stretches[begin:end] for begin, end in zip([0, *(place + 1 for place in places)], ends, strict=True)
    ]


def _check_fused(track: Track) -> None:
    ran = {timed.operation for timed in track.operations}
    for kind, stage, microbatch in sorted(ran):
        fused = Operation(OpKind.BW, stage, microbatch)
        if kind in (OpKind.B, OpKind.W) and fused in ran:
            rule = f"{fused} ran besides {Operation(kind, stage, microbatch)}; BW is both gradients"
            raise InputError(rule, source=track.source)


def _pairing(first: Sequence[Stretch], other: Sequence[Stretch]) -> _Pairing | None:
    """Return which whole steps of two devices belong together; None if that is not known.

    Steps belong together if they run at the same time. The clocks of the devices may differ, so the most
    pairs count that are possible with any difference of the clocks. If several pairings have as many, the
    one by the clocks as they are counts.
    """
    numbers = len(_whole(first)), len(_whole(other))
    plain = _pairs(first, other, 0)
    best = [] if plain is None else [plain]
    if len(best) and len(best[0]) == min(numbers):
        return best[0]
    for offset in _offsets(first, other):
        pairing = _pairs(first, other, offset)
        if not pairing:
            continue
        if len(pairing) == numbers[0] == numbers[1]:
            return pairing  # there is no other one of all steps
        if not best or len(pairing) > len(best[0]):
            best = [pairing]
        elif len(pairing) == len(best[0]) and pairing not in best:
            best.append(pairing)
    return best[0] if len(best) == 1 or plain in best else None


def _offsets(first: Sequence[Stretch], other: Sequence[Stretch]) -> Iterator[int]:
    """Yield the differences of clocks, in half nanoseconds, by which two whole steps coincide."""
    a, b = ([sum(_times(found[place])) for place in _whole(found)] for found in (first, other))
    for x, y in chain(product(a[:1], b), product(a, b[:1]), product(a[-1:], b), product(a, b[-1:])):
        yield x - y


def _times(stretch: Stretch) -> tuple[int, int]:
    return stretch.operations[0].start, stretch.operations[-1].end


def _pairs(first: Sequence[Stretch], other: Sequence[Stretch], offset: int) -> _Pairing | None:
    """Return the whole steps of two devices of which one runs for over half of its time during the other.

    The clock of the second device is put forward by `offset` half nanoseconds. None is returned if a whole
    step has no partner and no place at which the other device ran something that is no whole step.
    """
    pairing: _Pairing = {}
    rest = _whole(other)
    for place in _whole(first):
        start, end = (2 * time for time in _times(first[place]))
        while rest:
            begin, until = (2 * time + offset for time in _times(other[rest[0]]))
            if 2 * (min(end, until) - max(start, begin)) > min(end - start, until - begin):
                pairing[place] = rest.pop(0)
                break
            if begin + until > start + end:
                break
            rest.pop(0)
    sides = _between(first, list(pairing)), _between(other, list(pairing.values()))
    for a, b in zip(*sides, strict=True):
        for one, counterpart in ((a, b), (b, a)):
            if any(stretch.whole for stretch in one) and all(stretch.whole for stretch in counterpart):
                return None
    return pairing


def _where(number: int, steps: int) -> str:
    """Return where something ran before which there are this number of whole steps."""
    if number == 0:
        return "before training step 0"
    return f"after training step {number - 1}" + (f" and before {number}" if number < steps else "")


def _why(others: Sequence[Sequence[Stretch]], tracks: Sequence[Track], count: int) -> str:
    """Return why the stretches of each device at one place are no training step."""
    ran = [timed for own in others for stretch in own for timed in stretch.operations]
    if all(timed.operation.kind is OpKind.F for timed in ran):
        return "only forwards ran there, as in a validation pass"
    for own, track in zip(others, tracks, strict=True):
        for stretch in own:
            if not stretch.whole:
                return f"{_fault(stretch, track, count)[0]} in {track.source}"
    raise AssertionError("a step that is whole on one device has a counterpart on another")


def _no_step(cut: Sequence[Sequence[Stretch]], tracks: Sequence[Track], count: int) -> InputError:
    """Return the error that no step is whole, with the first stretch that is none."""
    others = ((stretch, track) for own, track in zip(cut, tracks, strict=True) for stretch in own)
    stretch, track = next((stretch, track) for stretch, track in others if not stretch.whole)
    fault, hint = _fault(stretch, track, count)
    return InputError(f"training step 0: {fault}; record whole steps, {hint}", source=track.source)


def _fault(stretch: Stretch, track: Track, count: int) -> tuple[str, str]:
    """Return why a stretch is no whole step, and a hint on how one is recorded."""
    ran = {timed.operation for timed in stretch.operations}
    missing = next((op for op in _needed(track, count) if op not in ran), None)
    if missing is None:
        return "no whole step ran from its first to its last operation", "from begin to end"
    hint = "with a range for each operation"
    if missing.kind is OpKind.W:
        hint = "and name a backward BW that has both gradients"
    return f"{missing} did not run", hint


def _needed(track: Track, count: int) -> Iterator[Operation]:
    """Yield what a step needs: at each stage, for every microbatch, F, and either BW or B and W."""
    ever = {timed.operation for timed in track.operations}
    for stage in track.stages:
        for microbatch in range(count):
            f, b, w, fused = (Operation(kind, stage, microbatch) for kind in COMPUTES)
            yield from (f, fused) if fused in ever else (f, b, w)


_FAR = 1 << 61  # nanoseconds; stands for no constraint, and the sum of two of them fits an int64


def aligned(
    steps: Sequence[Step], sources: Sequence[str], tolerance: int
) -> tuple[list[Step], tuple[int, ...]]:
    """Return the steps with times by one clock, and the nanoseconds by which each clock was put forward.

    No operation then starts before its input was computed or its device is free: one that seems to gets the
    earliest such start, because its recorded time began with the wait for its input, or is slightly wrong.
    Raise an InputError if no offsets satisfy the messages within the tolerance, or two operations of a device
    overlap by more. `sources` has the name of each device's trace.
    """
    offsets = _clock_offsets(_slack(steps), sources, tolerance)
    return [_settled(step, offsets, sources, tolerance) for step in steps], offsets


def inputs_of(operation: Operation, stages: int) -> tuple[Operation, ...]:
    """Return the operations that may make the input of `operation`; none for an F of stage 0."""
    kind, stage, microbatch = operation
    if kind is OpKind.F:
        return (Operation(OpKind.F, stage - 1, microbatch),) if stage else ()
    if kind is OpKind.W:
        return (Operation(OpKind.B, stage, microbatch),)
    if stage == stages - 1:
        return (Operation(OpKind.F, stage, microbatch),)
    return tuple(Operation(kind, stage + 1, microbatch) for kind in (OpKind.B, OpKind.BW))


def edges(step: Step) -> Iterator[tuple[int, Timed, int, Timed]]:
    """Yield the device of the sender, the sender, the device of the receiver, and the receiver of each input.

    Receivers come sorted by their ends, so that with aligned clocks an operation receives before it sends.
    """
    homes = {timed.operation: (device, timed) for device, ran in enumerate(step) for timed in ran}
    stages = 1 + max(operation.stage for operation in homes)
    for device, timed in sorted(homes.values(), key=lambda home: home[1].end):
        inputs = inputs_of(timed.operation, stages)
        if timed.operation.kind is OpKind.W and inputs[0] not in homes:  # its stage has no B
            inputs = inputs_of(inputs[0], stages)
        for operation in inputs:
            if operation in homes:
                yield *homes[operation], device, timed


def _slack(steps: Sequence[Step]) -> Ints:
    """Return the least nanoseconds from the end of an operation to the use of its result, by both devices.

    If the recorded time of an operation begins with the wait for its input, its end counts as the use.
    """
    slack = np.full((len(steps[0]), len(steps[0])), _FAR, np.int64)
    for step in steps:
        for sender, sent, receiver, used in edges(step):
            by = used.end if used.waits else used.start
            slack[sender, receiver] = min(slack[sender, receiver], by - sent.end)
    return slack


def _clock_offsets(slack: Ints, sources: Sequence[str], tolerance: int) -> tuple[int, ...]:
    apart = ~np.eye(len(slack), dtype=bool)
    if (slack[apart] >= -tolerance).all():
        return (0,) * len(slack)
    least = np.where(slack < _FAR, slack + tolerance, _FAR)
    np.fill_diagonal(least, 0)
    for middle in range(len(least)):  # the shortest paths (Floyd and Warshall)
        least = np.minimum(least, np.clip(least[:, middle, None] + least[middle], -_FAR, _FAR))
    if (np.diag(least) < 0).any():
        raise _unaligned(slack, sources, tolerance)
    bounded = (least[0] < _FAR) & (least[:, 0] < _FAR)
    middle_of = (least[:, 0] - least[0]) // 2
    return tuple(np.where(bounded, middle_of, 0).tolist())


def _unaligned(slack: Ints, sources: Sequence[str], tolerance: int) -> InputError:
    """Return the error that names the two devices whose messages contradict each other most."""
    both = slack + slack.T
    np.fill_diagonal(both, _FAR)
    a, b = divmod(int(np.argmin(both)), len(both))
    early = int(both[a, b])
    if early >= -2 * tolerance:  # only a longer cycle of devices has a contradiction
        a, b = divmod(int(np.argmin(slack)), len(slack))
        early = int(slack[a, b])
    return InputError(
        f"the clocks of {sources[a]} and {sources[b]} cannot be aligned: whatever their offset, a message "
        f"arrives {-early / 1000:,.1f} us before it was sent (the tolerance is {tolerance / 1000:g} us); "
        "are the traces of the same steps?"
    )


def _settled(step: Step, offsets: tuple[int, ...], sources: Sequence[str], tolerance: int) -> Step:
    """Return a step by one clock, in which no operation starts before its input and its device are ready."""
    moved = tuple(
        tuple(timed._replace(start=timed.start + o, end=timed.end + o) for timed in ran)
        for ran, o in zip(step, offsets, strict=True)
    )
    ready = _ready_times(moved)
    settled: list[tuple[Timed, ...]] = []
    for ran, source in zip(moved, sources, strict=True):
        before: list[Timed] = []
        for timed in ran:
            free = before[-1].end if before else timed.start
            if not timed.waits and free - timed.start > tolerance:
                both = f"{before[-1].operation} and {timed.operation}"
                rule = f"{both} overlap by {(free - timed.start) / 1000:,.1f} us"
                raise InputError(f"{rule}; a device runs one operation at a time", source=source)
            start = max(timed.start, free, ready.get(timed.operation, timed.start))
            before.append(timed._replace(start=start, end=max(start, timed.end)))
        settled.append(tuple(before))
    return tuple(settled)


def _ready_times(step: Step) -> dict[Operation, int]:
    """Return when the input of each operation was computed, in nanoseconds."""
    ends: dict[Operation, int] = {}
    ready: dict[Operation, int] = {}
    for _, sent, _, used in edges(step):
        ready[used.operation] = ends.get(sent.operation, sent.end)
        ends[used.operation] = max(used.end, ready[used.operation])
    return ready
