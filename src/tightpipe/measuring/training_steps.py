"""The training steps of a run: the whole steps of all devices, matched with each other.

What a device ran is cut into stretches: whole training steps, and the stretches before, between and after
them. A whole training step is a sequence of consecutive operations in which every stage of the device ran F,
and B and W or the fused BW, once for each microbatch, and each F before its backward. Validation passes, and
steps that the trace does not have from begin to end, lie in the other stretches, and are left out with a
warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, product
from typing import NamedTuple

from ..base.errors import InputError
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
    """Return the stretches of a device's operations, which are sorted by start.

    Of no two that follow each other, both are no whole step. The operations must not have BW besides B or W
    for the same stage and microbatch.
    """
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
    """Return for each operation the first place from which on a step with it may begin.

    A step must not have an operation twice, a backward before its F, or a W before its B.
    """
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
    """Return the training steps that are whole on all devices, and a sentence on all else that ran.

    Raise an InputError if no step is whole on all devices, the traces do not say which of their steps belong
    together, or BW ran besides B or W.
    """
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
    """Yield the differences of clocks, in half nanoseconds, by which two whole steps coincide.

    One of the two is the first or the last of its device.
    """
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
