"""The method ``block``: schedules that repeat a short block, with improved warm-up and cool-down."""

from __future__ import annotations

from functools import partial

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Result
from tightpipe.core.schedule import Schedule

from ..improve.improve_method import improve_turns
from ..incumbent import Incumbent
from ..run_search import run_search
from ..two_sides import Side, Turns, alone
from .block_search import block_turns


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
    return run_search(
        *("block", instance, budget, warm_start, None, progress),
        lambda incumbent: alone(budget, incumbent, partial(_turns, instance, incumbent)),
        energetic=True,
    )


def _turns(instance: Instance, incumbent: Incumbent, side: Side) -> Turns:
    reason = yield from block_turns(instance, incumbent, side.whole.params.blocks.share, side)
    return reason or (yield from improve_turns(instance, incumbent, side))
