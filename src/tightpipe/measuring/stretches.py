"""What a device ran is cut into stretches: whole training steps, and what ran before, between and after them.

A whole training step is a sequence of consecutive operations in which every stage of the device ran F, and B
and W or the fused BW, once for each microbatch, and each F before its backward. Validation passes, and steps
that the trace does not have from their begin to their end, lie in the other stretches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from ..core.operation import Operation, OpKind
from .tracks import Timed
from .windows import chosen_windows, idle_before

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
