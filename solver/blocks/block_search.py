"""The method ``block``: schedules that repeat a short block, with improved ends."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from math import inf

from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.result import Progress, Result, ignore
from tightpipe.model.schedule import Schedule
from tightpipe.model.validate import validate
from tightpipe.params.budget import Budget
from tightpipe.params.search import BlockParams

from ..bounds.searches.energetic import energetic_bound
from ..cpsat.race import SECONDS_OF_EFFORT
from ..engine.incumbent import Incumbent
from ..engine.portfolio import alone, in_sequence
from ..engine.run import run
from ..engine.worker import Worker
from ..improve.improve_method import local_search
from ..outcome import FINISHED, End, Ended, Outcome, Worked
from ..queues import Rule, is_modelled
from .block import Block, Shape
from .period_search import PeriodSearch
from .unroll import steady_block, unrolled


class BlockSearch:
    """Searches for blocks of small period, and offers the schedule that each of them unrolls to.

    Parameters
    ----------
    instance
        The problem. There is no search if `out_of_reach` gives a reason against blocks.
    incumbent
        Receives the schedules as they are unrolled; their warm-up and cool-down can mostly be improved.
    share
        The share of the time left that the search for blocks may take, 0 to 1.
    worker
        The worker that runs this member. Without a deadline the effort is counted, and with one thread every
        run gives the same result.
    """

    def __init__(self, instance: Instance, incumbent: Incumbent, share: float, worker: Worker) -> None:
        self._instance, self._incumbent, self._worker = instance, incumbent, worker
        self._params = worker.whole.params.blocks
        self._end = worker.seconds + share * worker.expected if worker.whole.limited else inf
        self._reason = out_of_reach(instance, self._params)
        self._answers, self._effort = self._ask(), 0.0  # effort of a question of the present round

    def step(self, worker: Worker) -> Outcome:
        """Ask CP-SAT the next question, and offer the schedule of a better block."""
        if self._reason:
            return Ended(End.UNSUITED, self._reason)
        answer = next(self._answers, None)
        if answer is None:
            return FINISHED
        search, block, effort = answer
        if block is not None:
            self._incumbent.offer(_validated(block, self._instance))
        return search.ended if search.ended.early else Worked(effort * SECONDS_OF_EFFORT)

    def _ask(self) -> Iterator[tuple[PeriodSearch, Block | None, float]]:
        """Ask in rounds, each with twice the effort; yield each search with its better block and effort."""
        params, start = self._params, self._incumbent.schedule
        searches = [
            PeriodSearch(
                Shape(self._instance, copies), steady_block(start, copies, params.least_equal), params
            )
            for copies in _fitting(self._instance, params)
        ]

        def best_pace() -> Fraction:
            return min(search.block.pace for search in searches)

        for doubled in range(params.rounds):
            effort = self._effort = params.first_effort * 2**doubled * searches[0].least_effort
            for search in searches:
                if effort < search.least_effort:
                    continue
                for block in search.ask_round(self._limits, effort, best_pace):
                    yield search, block, effort
                if self._limits().left <= 0:
                    return

    def _limits(self) -> Budget:
        """Return the limits of the next question."""
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
            "repeating blocks have no pairs, no slices, no flushes between iterations "
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


def _validated(block: Block, instance: Instance) -> Schedule:
    schedule = unrolled(block, instance)
    violations = validate(instance, schedule)
    if violations:
        raise AssertionError(f"a block unrolled to an invalid schedule, please report: {violations[0]}")
    return schedule


def solve_block(
    instance: Instance,
    budget: Budget,
    warm_start: Schedule | None = None,
    progress: Progress = ignore,
) -> Result:
    """Find a block of few microbatches with a small period, repeat it, and improve the whole schedule.

    Parameters
    ----------
    instance
        The problem. If `out_of_reach` gives a reason against blocks, the schedule is not improved, and the
        result has this reason.
    budget
        The limits. Without a deadline the effort is fixed, and with one thread every run gives the same
        result.
    warm_start
        A valid schedule, which is returned unless a cheaper one is found. None to start from one microbatch
        after another.
    progress
        Called with each new incumbent or bound.

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

    return run("block", instance, budget, warm_start, None, progress, work, opening=energetic_bound)
