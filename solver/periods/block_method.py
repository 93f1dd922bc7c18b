"""The method ``block``: schedules that repeat an optimal block, with improved warm-up and cool-down."""

from __future__ import annotations

from functools import partial

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Result
from tightpipe.core.schedule import Schedule

from ..improve import improve
from ..progress import Incumbent
from ..run import run_search
from .block_search import out_of_reach, search_blocks

_SHARE_OF_BLOCKS = 0.35  # of the time, for blocks; the rest is for the schedule that the best one unrolls to


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
        The problem.
    budget
        The limits. Without a deadline the effort is fixed, and with one thread so is the result.
    warm_start
        A valid schedule, which is kept unless a block or its improvement is cheaper. None for one microbatch
        after another.
    progress
        Called with each new incumbent or bound.

    Raises
    ------
    InputError
        If the warm start is not a valid schedule of the instance.
    """
    return run_search(
        *("block", instance, budget, warm_start, None, progress, partial(_search, instance, budget)),
        energetic=True,
        program="CP-SAT",
        failures=(MemoryError, RuntimeError),
    )


def _search(instance: Instance, budget: Budget, incumbent: Incumbent) -> str:
    reason = out_of_reach(instance) or search_blocks(instance, budget.part(_SHARE_OF_BLOCKS), incumbent)
    if reason or incumbent.closed or budget.left <= 0:
        return reason
    improved = improve(instance, budget, incumbent.schedule, incumbent.bound, incumbent.follow)
    incumbent.offer(improved.schedule)
    incumbent.prove(improved.bound, improved.proof)
    return improved.reason
