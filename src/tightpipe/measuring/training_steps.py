"""The training steps of a run: where a device repeats an operation of the current step, a new step begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..core.errors import InputError
from ..core.operation import Operation, OpKind
from .tracks import Timed, Track

Step = tuple[tuple[Timed, ...], ...]
"""The operations of each device in one training step, sorted by start."""


def steps_of(tracks: Sequence[Track]) -> list[Step]:
    """Return the training steps of the tracks, each with the operations of all devices.

    Raises
    ------
    InputError
        If the tracks have different numbers of steps, or a step lacks an operation or has a BW besides the B
        or W.
    """
    cut = [_cut(track.operations) for track in tracks]
    for track, steps in zip(tracks, cut, strict=True):
        if len(steps) != len(cut[0]):
            rule = f"{tracks[0].source} has {len(cut[0])}: record the same whole steps on all ranks"
            raise InputError(rule, key="training steps", value=len(steps), source=track.source)
    count = 1 + max(timed.operation.microbatch for track in tracks for timed in track.operations)
    for track, steps in zip(tracks, cut, strict=True):
        for number, step in enumerate(steps):
            fault = next(_faults(track.stages, count, {timed.operation for timed in step}), None)
            if fault is not None:
                raise InputError(f"training step {number}: {fault}", source=track.source)
    return list(zip(*cut, strict=True))


def _cut(operations: Sequence[Timed]) -> list[tuple[Timed, ...]]:
    steps: list[list[Timed]] = []
    seen: set[Operation] = set()
    for timed in operations:
        if not steps or timed.operation in seen:
            steps.append([])
            seen = set()
        steps[-1].append(timed)
        seen.add(timed.operation)
    return [tuple(step) for step in steps]


def _faults(stages: Sequence[int], count: int, ran: set[Operation]) -> Iterator[str]:
    """Yield each fault of a step: at each stage, every microbatch needs F, and either B and W or BW."""
    for stage in stages:
        for microbatch in range(count):
            f, b, w, fused = (Operation(kind, stage, microbatch) for kind in OpKind)
            if fused in ran and (b in ran or w in ran):
                yield f"{fused} ran besides {b if b in ran else w}; BW is both gradients"
            for operation in (f,) if fused in ran else (f, b, w):
                if operation not in ran:
                    yield f"{operation} did not run; record whole steps, {_hint(operation)}"


def _hint(missing: Operation) -> str:
    if missing.kind is OpKind.W:
        return "and name a backward BW that has both gradients"
    return "with a range for each operation"
