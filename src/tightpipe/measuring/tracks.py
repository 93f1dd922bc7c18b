"""Tracks: the operations that each device of a pipeline ran, found and numbered in the recordings.

A `Track` has the operations of one device with their times. Where the names of ranges do not number the
microbatches, these are counted: at each stage, F and the backwards of a training step are counted apart, from
0. So it must be known where a step begins: a validation pass may have another number of microbatches, and a
trace may begin within a step. A step has as many F and backwards of each kind as it has microbatches, and at
no time more backwards than F.

Several windows of consecutive operations may be such steps. Where a last device runs F0 B0 F1 B1 again and
again, F1 B1 F0 B0 is also all of a step. But between two steps the pipeline runs empty and fills again, which
takes longer than any wait within a step. So windows that begin after idle time are chosen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from ..base.errors import InputError, about_file
from ..model.instance import Instance
from ..model.operation import Operation, OpKind
from .recordings import Named, Range, Reader, Recording


def chosen_windows(begins: Sequence[int | None], idle: Sequence[int]) -> list[tuple[int, int]]:
    """Return begin and end of windows, of which none overlap, with the most idle time before them in sum.

    `begins` has for each number of operations the begin of the window that ends behind so many, or None.
    """
    best = [(0, 0)]  # idle time and number of the windows chosen among so many operations
    last: list[int | None] = [None]  # begin of the window that is chosen with this end
    for begin in begins[1:]:
        best.append(best[-1])
        last.append(None)
        if begin is not None:
            waited, number = best[begin]
            step = waited + idle[begin], number + 1
            if step > best[-1]:
                best[-1], last[-1] = step, begin
    windows = []
    end = len(last) - 1
    while end:
        begin = last[end]
        if begin is not None:
            windows.append((begin, end))
        end = end - 1 if begin is None else begin
    return windows[::-1]


def idle_before(times: Iterable[tuple[int, int]]) -> list[int]:
    """Return the time before each interval in which none of the earlier ones lasted; 0 for the first."""
    starts, ends = zip(*times, strict=True)
    return [0, *(max(0, start - end) for end, start in zip(accumulate(ends, max), starts[1:], strict=False))]


_INPUT, _WEIGHT = (OpKind.B, OpKind.BW), (OpKind.W, OpKind.BW)
"""The kinds of operations that compute the gradient of the input, and that of the weights."""


def microbatches_counted(
    kinds: Sequence[OpKind], times: Sequence[tuple[int, int]], microbatches: int
) -> list[int]:
    """Return the microbatch of each operation of a stage, whose operations are sorted by start."""
    found: list[int] = []
    for begin, end in chosen_windows(_begins(kinds, microbatches), idle_before(times)):
        found += _counted(kinds[len(found) : begin], microbatches)
        found += _counted(kinds[begin:end], microbatches)
    return found + _counted(kinds[len(found) :], microbatches)


def _counted(kinds: Iterable[OpKind], microbatches: int) -> list[int]:
    seen: dict[OpKind, int] = defaultdict(int)
    found = []
    for kind in kinds:
        found.append(seen[kind] % microbatches)
        seen[kind] += 1
    return found


def _begins(kinds: Sequence[OpKind], microbatches: int) -> list[int | None]:
    """Return where the step begins that ends behind each number of operations; None where there is none."""
    forwards, inputs, weights = (
        list(accumulate((kind in group for kind in kinds), initial=0))
        for group in ((OpKind.F,), _INPUT, _WEIGHT)
    )
    levels = [[f - other for f, other in zip(forwards, others, strict=True)] for others in (inputs, weights)]
    lower = [_next_lower(level) for level in levels]
    begin_of = {
        (f + i + w): begin for begin, (f, i, w) in enumerate(zip(forwards, inputs, weights, strict=True))
    }
    begins: list[int | None] = []
    for end, counts in enumerate(zip(forwards, inputs, weights, strict=True)):
        begin = begin_of.get(sum(counts) - 3 * microbatches)
        if begin is not None and (
            any(level[begin] != level[end] for level in levels) or any(then[begin] <= end for then in lower)
        ):
            begin = None
        begins.append(begin)
    return begins


def _next_lower(level: Sequence[int]) -> list[int]:
    """Return for each place the next one with a lower level; the length if there is none."""
    found = [len(level)] * len(level)
    waiting: list[int] = []
    for place, height in enumerate(level):
        while waiting and level[waiting[-1]] > height:
            found[waiting.pop()] = place
        waiting.append(place)
    return found


_HOW = (
    "has no ranges of operations: record with names such as 'tightpipe F0.3' or run PyTorch 2.9 or later, "
    "whose pipeline runtime names its ranges PP:<action>, or say with --pattern how the ranges are named"
)


class Timed(NamedTuple):
    """An operation that ran, with its start and end in nanoseconds."""

    operation: Operation
    start: int
    end: int
    waits: bool  #: whether the start may lie before the arrival of the operation's input


@dataclass(frozen=True, slots=True)
class Track:
    """The operations that one device ran, and its messages."""

    source: str  #: name of the recording, for the texts of errors
    operations: tuple[Timed, ...]  #: of all training steps, sorted by start
    messages: tuple[tuple[int, int], ...]  #: when it sent or waited to receive, in nanoseconds, sorted
    #: for each stage with a B or a W alone, which of the two; in `operations` it is a BW, as in PyTorch
    alone: Mapping[int, OpKind]

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages that the device holds, in ascending order."""
        return tuple(sorted({timed.operation.stage for timed in self.operations}))

    def named(self, operations: Iterable[Timed]) -> tuple[Timed, ...]:
        """Return operations of the track with the only backward of a stage as what it is, a B or a W."""
        return tuple(
            timed._replace(operation=timed.operation._replace(kind=self.alone[timed.operation.stage]))
            if timed.operation.kind is not OpKind.F and timed.operation.stage in self.alone
            else timed
            for timed in operations
        )


def tracks_of(
    recordings: Sequence[Recording], read: Reader, plan: Instance | None, microbatches: int | None
) -> list[Track]:
    """Return one track for each recording, sorted by device.

    The recording with the smallest stage belongs to device 0, and so on: in every placement with one route,
    the smallest stage of a device grows with its number. `microbatches` is that of a step, where names do not
    number them; None takes that of `plan`.
    """
    count = microbatches if microbatches is not None or plan is None else plan.microbatches
    tracks = [
        _track(recording, device, read, plan, count) for device, recording in enumerate(_by_rank(recordings))
    ]
    tracks.sort(key=lambda track: track.stages)
    _check_stages(tracks)
    return tracks


def _by_rank(recordings: Sequence[Recording]) -> list[Recording]:
    """Return the recordings sorted by rank, or in the given sequence if some rank is unknown."""
    known: dict[int, str] = {}
    for recording in recordings:
        if recording.rank is not None and recording.rank in known:
            rule = f"is also the rank of {known[recording.rank]}; give one trace of each rank"
            raise InputError(rule, key="rank", value=recording.rank, source=recording.source)
        if recording.rank is not None:
            known[recording.rank] = recording.source
    complete = len(known) == len(recordings)
    return sorted(recordings, key=lambda r: r.rank or 0) if complete else list(recordings)


def _track(
    recording: Recording, device: int, read: Reader, plan: Instance | None, count: int | None
) -> Track:
    found = [(ranged, named) for ranged in recording.ranges if (named := read(ranged.name))]
    operations = [(ranged, named) for ranged, named in found if named.kind is not None]
    exact = [(ranged, named) for ranged, named in operations if not named.waits]
    chosen = sorted(exact or operations, key=lambda pair: pair[0].start)
    if not chosen:
        raise InputError(_HOW, source=recording.source)
    with about_file(recording.source):
        stages = [_stage(named, device, plan) for _, named in chosen]
        alone = _alone(chosen, stages, plan)
        timed = _timed(chosen, stages, alone, count)
    messages = [(ranged.start, ranged.end) for ranged, named in found if named.kind is None]
    if exact:
        messages += _waits([ranged for ranged, named in operations if named.waits], timed)
    return Track(recording.source, tuple(timed), tuple(sorted(messages)), alone)


def _waits(waiting: Iterable[Range], operations: Sequence[Timed]) -> Iterator[tuple[int, int]]:
    """Yield the wait at the begin of each range in `waiting`, until its operation without the wait begins."""
    begins = [timed.start for timed in operations]
    for ranged in waiting:
        k = bisect_left(begins, ranged.start)
        if k < len(begins) and operations[k].end <= ranged.end:
            yield ranged.start, begins[k]


def _alone(
    chosen: Sequence[tuple[Range, Named]], stages: Sequence[int], plan: Instance | None
) -> dict[int, OpKind]:
    """Return, for each stage with a B or a W alone, which of the two.

    The plan says what a stage has. Without one, a stage that ran W's, but never a B or a BW, has no B.
    """
    ran = {(stage, _kind(named)) for (_, named), stage in zip(chosen, stages, strict=True)}
    found = {}
    for stage in set(stages):
        if plan is None or stage >= plan.stages:
            others = {(stage, OpKind.B), (stage, OpKind.BW)}
            only = [] if ran & others else [OpKind.W]
        else:
            only = [kind for kind in (OpKind.B, OpKind.W) if plan.has(kind, stage, 0)]
        if len(only) == 1 and ran & {(stage, OpKind.BW), (stage, only[0])}:
            found[stage] = only[0]
    return found


def _timed(
    chosen: Sequence[tuple[Range, Named]],
    stages: Sequence[int],
    alone: Mapping[int, OpKind],
    count: int | None,
) -> list[Timed]:
    """Return the operations of ranges; a stage's only backward is a BW, and what the stage lacks goes."""
    rows = [
        (pair, stage, OpKind.BW if alone.get(stage) is _kind(pair[1]) else _kind(pair[1]))
        for pair, stage in zip(chosen, stages, strict=True)
    ]
    rows = [row for row in rows if row[1] not in alone or row[2] in (OpKind.F, OpKind.BW)]
    chosen, stages = [pair for pair, _, _ in rows], [stage for _, stage, _ in rows]
    microbatches = [named.microbatch for _, named in chosen]
    for stage in sorted({stage for stage, known in zip(stages, microbatches, strict=True) if known is None}):
        if count is None:
            unnumbered = chosen[microbatches.index(None)][0]
            rule = "names without microbatches need --microbatches or --schedule: how many a step has"
            raise InputError(rule, value=unnumbered.name)
        places = [place for place, other in enumerate(stages) if other == stage]
        kinds = [rows[place][2] for place in places]
        times = [(chosen[place][0].start, chosen[place][0].end) for place in places]
        for place, counted in zip(places, microbatches_counted(kinds, times, count), strict=True):
            if microbatches[place] is None:
                microbatches[place] = counted
    return [
        Timed(Operation(kind, stage, microbatch or 0), ranged.start, ranged.end, named.waits)
        for ((ranged, named), stage, kind), microbatch in zip(rows, microbatches, strict=True)
    ]


def _kind(named: Named) -> OpKind:
    assert named.kind is not None
    return named.kind


def _stage(named: Named, device: int, plan: Instance | None) -> int:
    """Return the stage of the operation that a name describes."""
    if named.stage is not None:
        return named.stage
    if plan is None:
        if named.chunk is not None:
            raise InputError("names with chunks need --schedule, which says what stages they are")
        return device
    held = plan.placement.stages_on(device) if device < plan.devices else ()
    chunk = named.chunk or 0
    if chunk >= len(held):
        raise InputError(f"device {device} of the schedule has {len(held)} chunks", key="chunk", value=chunk)
    return held[chunk]


def _check_stages(tracks: Sequence[Track]) -> None:
    homes: dict[int, str] = {}
    for track in tracks:
        for stage in track.stages:
            if stage in homes:
                rule = f"is also in {homes[stage]}; give the traces of one pipeline, one per rank"
                raise InputError(rule, key="stage", value=stage, source=track.source)
            homes[stage] = track.source
    for stage in range(max(homes)):
        if stage not in homes:
            raise InputError(
                "no trace has this stage; give the traces of all ranks", key="stage", value=stage
            )
