"""The search for the least period of a shape's blocks.

The period is searched for from above by blocks and from below by proofs. If there is a block of one period,
the same sequences give a block of every larger period (the proof is in the docstring of `unroll`). So the
search asks for periods between the largest one that is refuted and the smallest one for which a block is
found. The time in which CP-SAT finds a block, or proves that there is none, varies by factors of hundreds
between seeds and between periods that lie close together. So a *round* asks many questions with little effort
each, and the next round asks again with twice the effort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from math import ceil, comb

from ortools.sat.python import cp_model

from tightpipe.params.budget import Budget
from tightpipe.params.search import BlockParams
from tightpipe.params.solve_params import DEFAULTS

from ..cpsat.race import search, solver_on_one_thread
from ..outcome import FINISHED, Ended
from .block import Block, Shape, period_bound, serial_block
from .periodic_model import PeriodicModel, Tie
from .unroll import compressed


@dataclass(frozen=True, slots=True)
class Answer:
    """CP-SAT's answer to the question whether there is a block whose period is at most a given one."""

    block: Block | None  #: a valid block whose period is at most the given one, None if CP-SAT has found none
    refuted: bool  #: whether CP-SAT has proven that there is no such block
    ended: Ended = FINISHED  #: how the search ended; `FINISHED` also if time or effort was up


def settle(shape: Shape, period: int, budget: Budget, effort: float) -> Answer:
    """Search for a block of a period by CP-SAT with its presolve and linear programs, on one thread.

    If there is no such block, this search mostly proves so in a second, where a search without presolve and
    linear programs needs minutes. If there is one, the search without them finds it sooner. A signal such as
    Ctrl-C takes effect only when the search ends.
    """
    solver, model = solver_on_one_thread(budget, effort), PeriodicModel(shape, period)
    status = solver.solve(model.model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        model.order([solver.value(var) for var in model.decisions])
    block = None if model.block is None else compressed(model.block, period_bound(shape))
    return Answer(block, status == cp_model.INFEASIBLE)


def ask(
    shape: Shape,
    period: int,
    budget: Budget,
    effort: float,
    like: Block | None = None,
    tie: Tie | None = None,
) -> Answer:
    """Ask CP-SAT for a repeating block whose period is at most `period` ticks, and at least `period_bound`.

    One search runs on each thread, each with so much effort; the first that ends stops the others. The block
    is probably `like` a given one. With a `tie`, the period of the block is `period`.
    """
    model = PeriodicModel(shape, period, like, tie)
    found = search(model, budget, lambda *_: None, effort=effort)
    if found.schedule is None or model.block is None:
        return Answer(None, found.exhausted, found.ended)
    block = model.block if tie else compressed(model.block, period_bound(shape))
    return Answer(block, False, found.ended)


class PeriodSearch:
    """The search for the least period of the blocks of one shape.

    It starts from a valid block; without one from one microbatch after another, and blocks are probably like
    `like`, which need not be valid. With a `tie` it searches only for blocks that have it. There may be such
    a block of one period and none of a longer one, so that a refutation says nothing of other periods.

    - `block`: the block of the smallest period so far.
    - `bound`: a proven lower bound of the period of every block of the shape, in ticks.
    - `least_effort`: the effort, in CP-SAT's deterministic time, below which questions are rarely answered.
    - `ended`: how the last question ended.
    """

    def __init__(
        self,
        shape: Shape,
        start: Block | None = None,
        params: BlockParams = DEFAULTS.blocks,
        like: Block | None = None,
        tie: Tie | None = None,
    ) -> None:
        self.shape, self.params, self._tie = shape, params, tie
        self.bound = period_bound(shape)
        self.block = compressed(start or serial_block(shape), self.bound)
        self._like = self.block if start else like  # nothing good is like one microbatch after another
        self.ended = FINISHED
        self._questions = self._shifts = 0
        self._refuted: set[int] = set()  # periods that no block with the tie has
        pairs = sum(comb(len(shape.on(device)), 2) for device in range(shape.instance.devices))
        self.least_effort = params.effort_per_pair * pairs

    @property
    def closed(self) -> bool:
        """Whether it is proven that no block of the shape has a smaller period than `block`."""
        return self.bound == self.block.period

    @property
    def gallops(self) -> bool:
        """Whether questions go down from the best period, as a block is known and devices are many."""
        many = self._tie is not None or self.shape.instance.devices > self.params.few
        return self._like is not None and many

    def ask_round(
        self, limits: Callable[[], Budget], effort: float, below: Callable[[], Fraction] | None = None
    ) -> Iterator[Block | None]:
        """Ask the questions of a round; after each one, yield the block of smaller period found, or None.

        With many devices the round gallops from a known block. Else it sweeps from the bound upward, where
        models are small enough that periods close to the bound have answers. The last question asks for one
        tick less than the best period, because its refutation closes the search, or for a pace below that of
        `below` in ticks per microbatch of each route. The round ends early if time is up or a question ended
        early. `limits` returns those of the next question; `effort` is in CP-SAT's deterministic time.
        """
        return (self._gallop if self.gallops else self._sweeps)(limits, effort, below)

    def _gallop(
        self, limits: Callable[[], Budget], effort: float, below: Callable[[], Fraction] | None
    ) -> Iterator[Block | None]:
        """Ask for periods from the best one downward, in steps that double while they succeed.

        The first question lies a share of the way from the best period to the bound. After each block found
        the share doubles, and after each question without one it is halved, until the step is small, where
        the round ends if there is a tie. Most of a sweep from the bound would go to periods that no block
        has.
        """
        step = self.params.step * (1 + self._next_shift()) / 2
        while not self.ended.early and limits().left > 0:
            high = self._most(below)
            way = step * (high - self.bound)
            small = way <= self.params.least_step * high
            period = high if small else high - round(way)
            if period < self.bound or (small and self._tie):
                return
            block = self.ask(period, limits(), effort)
            yield block
            if block is None and period == high:
                return
            step = step / 2 if block is None else min(1.0, 2 * step)

    def _sweeps(
        self, limits: Callable[[], Budget], effort: float, below: Callable[[], Fraction] | None
    ) -> Iterator[Block | None]:
        """Ask the questions of a round in sweeps, each of which begins at the least period that may exist.

        A *sweep* asks for periods between the bound and the best period, the smallest first, until it finds a
        block. The next sweep asks for periods between the last one that gave no block and the period of that
        block. The round ends after a sweep that finds no block.
        """
        low, found = self.bound, True
        while found:
            found = False
            for period in self._sweep(low, below):
                if self.ended.early or limits().left <= 0:
                    break
                block = self.ask(period, limits(), effort)
                found = block is not None
                yield block
                if found:
                    break
                low = period

    def _next_shift(self) -> float:
        """Return another share, 0 to 1, each time, so that no two rounds or sweeps ask the same."""
        self._shifts += 1
        return self._shifts * self.params.shift % 1

    def _sweep(self, low: int, below: Callable[[], Fraction] | None) -> list[int]:
        """Return the periods that the next sweep asks for, in ticks and ascending, from `low` up.

        Whether CP-SAT finds a block depends on the period far more than on the seed, so each sweep asks for
        other periods. Only the largest one, whose refutation may close the search, may be asked for again.
        """
        low, high = max(low, self.bound), self._most(below)
        if low > high:
            return []
        shift, parts = self._next_shift(), self.params.periods
        periods = (round(low * (high / low) ** ((k + shift) / parts)) for k in range(parts))
        return sorted({*(period for period in periods if low <= period < high), high})

    def ask(self, period: int, budget: Budget, effort: float) -> Block | None:
        """Ask for a block of at most a period, and return what is found."""
        if not self.bound <= period < self.block.period or period in self._refuted:
            return None
        seeded = budget.reseeded(self._questions)
        return self._learned(period, ask(self.shape, period, seeded, effort, self._like, self._tie))

    def learn(self, block: Block) -> bool:
        """Take a valid block of the shape that was found elsewhere; return whether it is the best so far."""
        better = block.period < self.block.period
        if better:
            self.block = self._like = block
        return better

    def _learned(self, period: int, answer: Answer) -> Block | None:
        """Take note of the answer about a period, and return its block."""
        self._questions += 1
        self.ended = answer.ended
        self.block, self._like = answer.block or self.block, answer.block or self._like
        if answer.refuted and self._tie is not None:
            self._refuted.add(period)
        elif answer.refuted:
            self.bound = period + 1
        return answer.block

    def settle(self, budget: Budget, effort: float) -> None:
        """Ask by `settle` for one tick less than the best period, and for about the middle to the bound."""
        for period in (self.block.period - 1, (self.bound + self.block.period - 1) // 2):
            if self.closed or budget.left <= 0 or not self.bound <= period < self.block.period:
                continue
            self._learned(period, settle(self.shape, period, budget.reseeded(self._questions), effort))

    def _most(self, below: Callable[[], Fraction] | None) -> int:
        pace = self.block.pace if below is None else min(self.block.pace, below())
        return ceil(pace * self.shape.copies) - 1


def search_period(shape: Shape, budget: Budget, start: Block | None = None) -> PeriodSearch:
    """Search for the least period of the blocks of a shape until it is proven or the budget ends."""
    found = PeriodSearch(shape, start, budget.params.blocks)
    for doubled in count():
        if found.closed or found.ended.early or budget.left <= 0:
            return found
        for _ in found.ask_round(lambda: budget, found.least_effort * 2**doubled):
            pass
        found.settle(budget, budget.params.blocks.effort_to_settle * 2**doubled)
    raise AssertionError("there is no last round")
