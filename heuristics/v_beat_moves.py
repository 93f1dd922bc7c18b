"""What the two forms of V-Beat share: the times of equal stages, and moves, which leave out microbatches.

The k-th move of a kind and stage is that of microbatch k, so that a sequence of moves says all.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from tightpipe.core.operation import OpKind

Move = tuple[OpKind, bool]
"""A kind, and for an F or a B whether it is one of the upper stage."""
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
        """An F, a B and a W."""
        return self.forward + self.backward + self.weight

    @property
    def hops(self) -> int:
        """An F and a B, each with its message: for how much longer each next device may run at its end."""
        return self.forward + self.backward + 2 * self.comm

    def of(self, move: Move) -> int:
        """Return the ticks that a move takes."""
        return {OpKind.F: self.forward, OpKind.B: self.backward, OpKind.W: self.weight}[move[0]]


def numbered(moves: Iterable[Move], lower: int, upper: int) -> list[tuple[OpKind, int, int]]:
    """Return the operations of a device's moves, followed by the W's that are left.

    The k-th move of a kind and stage is that of microbatch k. A W is that of the oldest B without one.
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
