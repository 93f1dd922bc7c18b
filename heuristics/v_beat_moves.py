"""Data that the two forms of V-Beat share: the times of equal stages, and operations without microbatches.

A `Move` is an operation whose microbatch is left out; these are not the moves of annealing. On a device, the
k-th F of a stage is the F of microbatch k, and likewise for B, so a sequence of moves determines the order.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from tightpipe.core.operation import OpKind

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
        """Ticks of an F and a B, each with a message.

        Each device has this much more time after its last lower B than the device before it.
        """
        return self.forward + self.backward + 2 * self.comm

    def of(self, move: Move) -> int:
        """Return the ticks that a move takes."""
        return {OpKind.F: self.forward, OpKind.B: self.backward, OpKind.W: self.weight}[move[0]]


def numbered(moves: Iterable[Move], lower: int, upper: int) -> list[tuple[OpKind, int, int]]:
    """Return the operations of a device's moves, followed by the W's that are left.

    `lower` and `upper` are the stages of the device. The k-th F of a stage, counted from 0, is of microbatch
    k, and likewise for B. A W belongs to the oldest B without a W.
    """
    done: Counter[Move] = Counter()
    pending: deque[tuple[OpKind, int, int]] = deque()
    operations = []
    for kind, is_upper in moves:
        if kind is OpKind.W:
            operations.append(pending.popleft())
            continue
        stage, microbatch = upper if is_upper else lower, done[kind, is_upper]
        done[kind, is_upper] += 1
        operations.append((kind, stage, microbatch))
        if kind is OpKind.B:
            pending.append((OpKind.W, stage, microbatch))
    return [*operations, *pending]
