"""Schedules that repeat a block, from blocks of one microbatch and of a few."""

from __future__ import annotations

from fractions import Fraction
from math import inf

from tightpipe.core.budget import Budget
from tightpipe.core.graph_arrays import arrays_of
from tightpipe.core.instance import Instance
from tightpipe.core.params.search import BlockParams
from tightpipe.core.schedule import Schedule
from tightpipe.core.validate import validate

from ..block import Block, Shape, unrolled
from ..cpsat.race import SECONDS_OF_EFFORT
from ..incumbent import Incumbent
from ..modelled import is_modelled
from ..two_sides import Side, Turns
from .period_search import PeriodSearch
from .steady import steady_block


def block_turns(instance: Instance, incumbent: Incumbent, share: float, side: Side) -> Turns:
    """Search for blocks of small period, and offer the schedule that each of them unrolls to.

    Parameters
    ----------
    instance
        The problem.
    incumbent
        Receives the schedules as they are unrolled; their warm-up and cool-down can mostly be improved.
    share
        The share of the time left that the search for blocks may take, 0 to 1.
    side
        The limits. Without a deadline the effort is counted, and with one thread every run gives the same
        result.

    Returns
    -------
    Turns
        Each question to CP-SAT is a turn. In the end the generator returns why blocks are not searched for,
        or why a question ended early; the empty string if neither happened.
    """
    params = side.whole.params.blocks
    reason = out_of_reach(instance, params)
    if reason:
        return reason
    end = side.seconds + share * side.left if side.whole.limited else inf
    searches = [
        PeriodSearch(
            Shape(instance, copies), steady_block(incumbent.schedule, copies, params.least_equal), params
        )
        for copies in _fitting(instance, params)
    ]

    def best_pace() -> Fraction:
        return min(search.block.pace for search in searches)

    def limits() -> Budget:
        left = max(0.0, end - side.seconds)
        if not side.whole.endless:
            return side.budget.within(left)
        # nothing ends a question whose effort is counted, so none begins that would take more than is left
        return side.budget if left >= effort * SECONDS_OF_EFFORT else side.budget.within(0.0)

    for doubled in range(params.rounds):
        effort = params.first_effort * 2**doubled * searches[0].least_effort
        for search in searches:
            if effort < search.least_effort:
                continue
            for block in search.ask_round(limits, effort, best_pace):
                if block is not None:
                    incumbent.offer(_validated(block, instance))
                yield effort * SECONDS_OF_EFFORT
            if search.reason or limits().left <= 0:
                return search.reason
    return ""


def out_of_reach(instance: Instance, params: BlockParams) -> str:
    """Return why blocks of an instance are not searched for, the empty string if they are."""
    if not is_modelled(instance):
        return "repeating blocks have neither operations that overlap nor flushes between iterations"
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


def _validated(block: Block, instance: Instance) -> Schedule:
    schedule = unrolled(block, instance)
    violations = validate(instance, schedule)
    if violations:
        raise AssertionError(f"a block unrolled to an invalid schedule, please report: {violations[0]}")
    return schedule
