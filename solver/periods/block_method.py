"""The method ``block``: schedules that repeat a short block, with improved warm-up and cool-down."""

from __future__ import annotations

from functools import partial

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Result
from tightpipe.core.schedule import Schedule

from ..bounds.searches.energetic import energetic_bound
from ..engine.incumbent import Incumbent
from ..engine.portfolio import alone
from ..engine.run import run
from ..engine.sequence import in_sequence
from ..improve.local_search import local_search
from ..outcome import End, Ended
from .block_search import BlockSearch, out_of_reach


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
