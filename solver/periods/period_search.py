"""Search the least period of the blocks of a shape, from above by blocks and from below by refutations.

Blocks exist for every period from the least one on (`compress` says why), so the search asks for periods
between the largest one that is refuted and the smallest one that is found. Whether CP-SAT finds a block or
proves that there is none varies by factors of hundreds between seeds and between periods that lie close
together. So a *round* asks many questions with little effort each, and the next round asks again with twice
the effort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import ceil

from tightpipe.core.budget import Budget

from ..block import Block, Shape, compressed, period_bound, serial_block
from .ask import ask

_FIRST_EFFORT = (
    0.1  # of each question of the first round, in CP-SAT's deterministic time: about half a second
)
_STEP = 0.5  # where to ask next: the share of the periods between the lowest open one and the best known one
_CLOSE = 0.005  # the share of the best period by which the last question of a round may lie above the others


class PeriodSearch:
    """The search of the least period of the blocks of one shape.

    Parameters
    ----------
    shape
        What the blocks consist of.

    Attributes
    ----------
    block
        The block of the smallest period so far; at first, one microbatch after another.
    bound
        A proven lower bound of the period of every block of the shape, in ticks.
    reason
        Why a question ended early; empty if none did.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.bound = period_bound(shape)
        self.block = compressed(serial_block(shape), self.bound)
        self.reason = ""
        self._rounds = self._questions = 0

    @property
    def closed(self) -> bool:
        """Whether no block of the shape has a smaller period than `block`."""
        return self.bound == self.block.period

    def ask_round(self, budget: Budget, below: Callable[[], Fraction] | None = None) -> Iterator[Block]:
        """Ask the questions of a round, and yield each block that is shorter than the ones before.

        A question that stays open is passed over: the next one is asked halfway between it and the best
        period. The last one asks for one tick less than the best period, because to refute that closes the
        search.

        Parameters
        ----------
        budget
            The limits. Each question has a seed of its own, counted up from the budget's.
        below
            Returns the pace, in ticks per microbatch of each route, below which blocks are asked for. None
            for the pace of the best block of this shape.
        """
        effort = _FIRST_EFFORT * 2**self._rounds
        self._rounds += 1
        low = self.bound
        while budget.left > 0 and not self.reason and low <= (high := self._most(below)):
            period = low + int(_STEP * (high - low)) if high - low > _CLOSE * high else high
            answer = ask(self.shape, period, budget.reseeded(self._questions), effort)
            self._questions += 1
            self.reason = answer.reason
            if answer.block is not None:
                self.block = answer.block
                yield answer.block
            else:
                low = period + 1
            if answer.refuted:
                self.bound = period + 1

    def _most(self, below: Callable[[], Fraction] | None) -> int:
        pace = self.block.pace if below is None else min(self.block.pace, below())
        return ceil(pace * self.shape.copies) - 1


def search_period(shape: Shape, budget: Budget) -> PeriodSearch:
    """Search the least period of the blocks of a shape until it is proven or the budget ends.

    Parameters
    ----------
    shape
        What the blocks consist of.
    budget
        The limits; without a deadline the search goes on until the least period is proven.
    """
    found = PeriodSearch(shape)
    while not found.closed and not found.reason and budget.left > 0:
        for _ in found.ask_round(budget):
            pass
    return found
