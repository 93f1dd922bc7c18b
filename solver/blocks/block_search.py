"""The method ``block``: blocks of small period, which it repeats, and improvement of the whole schedule."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from math import inf

from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.result import Progress, Result, ignore
from tightpipe.model.schedule import Schedule
from tightpipe.params.budget import Budget
from tightpipe.params.search import BlockParams

from ..bounds.destructive import energetic_bound
from ..cpsat.race import SECONDS_OF_EFFORT
from ..engine.portfolio import Worker, alone, in_sequence
from ..engine.run import Incumbent, run
from ..improve import local_search
from ..outcome import FINISHED, End, Ended, Outcome, Worked
from ..queues import Rule, is_modelled
from .block import Block, Shape
from .grown import GrownSearch, growth_of
from .period_search import PeriodSearch
from .unroll import steady_block, unrolled, with_late_weights


class BlockSearch:
    """Searches for blocks of small period, and offers the schedule that each of them unrolls to.

    There is no search if `out_of_reach` gives a reason against blocks. Warm-up and cool-down of the schedules
    can mostly be improved. Without a deadline the effort is counted, and with one thread every run gives the
    same result. `share` is the share of the time left, 0 to 1, that the search may take. A search that gains
    goes on: after each block whose schedule is the cheapest so far, it may take `patience` times as long as
    it has taken by then, up to the share `most`.
    """

    def __init__(self, instance: Instance, incumbent: Incumbent, share: float, worker: Worker) -> None:
        self._instance, self._incumbent, self._worker = instance, incumbent, worker
        self._params = worker.whole.params.blocks
        self._begun, limited = worker.seconds, worker.whole.limited
        self._end = self._begun + share * worker.expected if limited else inf
        most = max(share, self._params.most)
        self._latest = self._begun + most * worker.expected if limited else inf
        self._reason = out_of_reach(instance, self._params)
        self._answers, self._effort = self._ask(), 0.0  # effort of a question of the present round

    def step(self, worker: Worker) -> Outcome:
        """Ask CP-SAT the next question, and offer the schedule of a better block."""
        if self._reason:
            return Ended(End.UNSUITED, self._reason)
        answer = next(self._answers, None)
        if answer is None:
            return FINISHED
        ended, block, effort = answer
        if block is not None:
            before = self._incumbent.cost
            late = with_late_weights(block)
            for one in [block] if late is block else [block, late]:
                self._incumbent.offer(unrolled(one, self._instance))
            if self._incumbent.cost < before:
                enough = self._begun + self._params.patience * (worker.seconds - self._begun)
                self._end = min(self._latest, max(self._end, enough))
        return ended if ended.early else Worked(effort * SECONDS_OF_EFFORT)

    def _ask(self) -> Iterator[tuple[Ended, Block | None, float]]:
        """Ask in rounds, each with twice the effort; yield how each question ended, its block, its effort.

        Where devices are many and a block of some number of microbatches is known, only such numbers are
        asked for, first for blocks that grow.
        """
        params, wide = self._params, self._instance
        every = [PeriodSearch(Shape(wide, k), self._repeated(k), params) for k in _fitting(wide, params)]
        searches = [one for one in every if one.gallops] or every
        growth = growth_of(wide, params)
        grown = [
            GrownSearch(growth, one)
            for one in searches
            if growth is not None and one.gallops and one.shape.copies == growth.narrow.copies
        ]
        asked: list[GrownSearch | PeriodSearch] = [*grown, *searches]

        def best_pace() -> Fraction:
            return min(one.block.pace for one in searches)

        for doubled in range(params.rounds):
            most = params.first_effort * 2**doubled * every[0].least_effort
            for one in asked:
                if most < one.least_effort:
                    continue
                own = params.first_effort * 2**doubled * one.least_effort
                effort = self._effort = min(most, own) if one.gallops else most
                for block in one.ask_round(self._limits, effort, best_pace):
                    yield one.ended, block, effort
                if self._limits().left <= 0:
                    return

    def _repeated(self, copies: int) -> Block | None:
        """Return the shortest block that the incumbent repeats now, or repeated before any search."""
        least, known = self._params.least_equal, self._incumbent
        schedules = [known.schedule, *([] if known.first is known.schedule else [known.first])]
        blocks = [steady_block(schedule, copies, least) for schedule in schedules]
        return min((block for block in blocks if block), key=lambda block: block.period, default=None)

    def _limits(self) -> Budget:
        left, worker = max(0.0, self._end - self._worker.seconds), self._worker
        if not worker.whole.endless:
            return worker.budget.within(left)
        # nothing ends a question whose effort is counted, so none begins that would take more than is left
        fits = left >= self._effort * SECONDS_OF_EFFORT
        return worker.budget if fits else worker.budget.within(0.0)


def out_of_reach(instance: Instance, params: BlockParams) -> str:
    """Return why blocks of an instance are not searched for, the empty string if they are."""
    if not is_modelled(instance, *KNOWN):
        return (
            "repeating blocks have no pairs, no slices, no empty stages, no flushes between iterations "
            "and no microbatches that differ"
        )
    if arrays_of(instance).links:
        return "repeating blocks do not model links that make messages wait"
    if not _fitting(instance, params):
        fewest = params.fewest_periods * min(params.copies)
        return f"too few microbatches for a period: repeating blocks need {fewest} of each route"
    return ""


def _fitting(instance: Instance, params: BlockParams) -> list[int]:
    """Return those numbers in `copies` for which at least `fewest_periods` periods fit into a schedule."""
    count = instance.microbatches // len(instance.placement.routes)
    return [copies for copies in params.copies if params.fewest_periods * copies <= count]


KNOWN = (Rule.FUSED, Rule.ABSENT, Rule.STEP)
"""The rules that repeating blocks know. What a step takes around its operations changes no period."""


def solve_block(
    instance: Instance,
    budget: Budget,
    warm_start: Schedule | None = None,
    progress: Progress = ignore,
) -> Result:
    """Find a block of few microbatches with a small period, repeat it, and improve the whole schedule.

    Parameters
    ----------
    instance, budget, warm_start, progress
        As for `tightpipe.solver.best.solve_best`. If `out_of_reach` gives a reason against blocks of the
        instance, the schedule is not improved, and the result has this reason. Without a deadline the effort
        is fixed, and with one thread every run gives the same result.

    Raises
    ------
    InputError
        If the warm start is not a valid schedule of the instance.
    """

    def work(incumbent: Incumbent) -> Ended:
        params = budget.params.blocks
        reason = out_of_reach(instance, params)
        if reason:
            return Ended(End.UNSUITED, reason)
        members = in_sequence(
            partial(BlockSearch, instance, incumbent, params.share), local_search(instance, incumbent)
        )
        return alone(budget, incumbent, members)

    return run("block", instance, budget, warm_start, progress, work, opening=energetic_bound)
