"""What a device ran is cut into stretches: whole training steps, and what ran before, between and after them.

A whole training step is a sequence of consecutive operations in which every stage of the device ran F, and B
and W or the fused BW, once for each microbatch, and each F before its backward. Validation passes, and steps
that the trace does not have from their begin to their end, lie in the other stretches.

Consecutive operations may form a whole step in several ways. Of a last device that runs F0 B0 F1 B1 again and
again, F1 B1 F0 B0 is also all of a step. The steps are chosen before which the device was idle longest:
between two steps, the pipeline runs empty and fills again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from ..core.operation import Operation, OpKind
from .tracks import Timed

_SHARE = {OpKind.F: 1, OpKind.B: 1, OpKind.W: 1, OpKind.BW: 2}
"""How much each kind of operation is of the work of a microbatch at a stage, of which the sum is 3."""

_NOT_BEFORE = {
    OpKind.F: tuple(OpKind),
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
    """Return begin and end of the whole steps, chosen for the most idle time before them, then for number."""
    stages = len({timed.operation.stage for timed in operations})
    done = list(accumulate((_SHARE[timed.operation.kind] for timed in operations), initial=0))
    begin_of = {work: begin for begin, work in enumerate(done)}
    barriers, idle = _barriers(operations, microbatches), _idle(operations)
    best = [(0, 0)]  # for the operations up to each end: idle time before chosen steps, and their number
    chosen: list[int | None] = [None]  # begin of the chosen step with this end
    for end in range(1, len(operations) + 1):
        best.append(best[-1])
        chosen.append(None)
        begin = begin_of.get(done[end] - 3 * stages * microbatches)
        if begin is None or barriers[end - 1] > begin:
            continue
        waited, number = best[begin]
        if (step := (waited + idle[begin], number + 1)) > best[end]:
            best[end], chosen[end] = step, begin
    steps = []
    end = len(operations)
    while end:
        if (begin := chosen[end]) is not None:
            steps.append((begin, end))
        end = end - 1 if begin is None else begin
    return steps[::-1]


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


def _idle(operations: Sequence[Timed]) -> list[int]:
    """Return the nanoseconds before each operation in which none ran; 0 for the first."""
    ends = accumulate((timed.end for timed in operations), max)
    return [0] + [max(0, timed.start - end) for end, timed in zip(ends, operations[1:], strict=False)]
