"""The method ``improve``: a local search that always has a schedule, and finds better ones with more time."""

from __future__ import annotations

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.progress import Progress, ignore
from tightpipe.core.result import Result
from tightpipe.core.schedule import Schedule

from ..bounds.searches.energetic import energetic_bound
from ..engine.portfolio import alone
from ..engine.run import run
from .local_search import local_search


def improve(
    instance: Instance,
    budget: Budget,
    start: Schedule | None = None,
    lower_bound: int | None = None,
    progress: Progress = ignore,
) -> Result:
    """Search for a cheaper schedule by local search.

    First comes a search for a dispatching rule: a few weights from which a whole schedule follows
    (`dispatch_kernel`). The weights of several rules are annealed at once, and bad rules give way to copies
    of good ones. Then the sequences of operations are annealed, from the better of the start and the schedule
    of the best rule. A move takes an operation to another place of its device's sequence, joins operations to
    one that saves time, parts them, or lets a device begin at another time. The cost after each move is
    computed, not estimated. Where the schedule repeats itself, warm-up and cool-down are annealed first, with
    fewer microbatches (`fold`). Where annealing converges, CP-SAT searches large neighbourhoods of the best
    schedule for the rest of the time.

    Parameters
    ----------
    instance
        The problem.
    budget
        The limits. Every thread anneals on its own, and all of them start each round from the best words.
        Without a deadline the number of moves is fixed by the effort or, if that is not limited either, by
        the size of the instance. With one thread the result is then the same in every run.
    start
        A valid schedule; None to start from the schedule that runs one microbatch after another.
    lower_bound
        A proven lower bound of the cost in ticks, used if it is larger than the bounds of `bounds.formulas`.
        The search ends when the cost reaches the bound.
    progress
        Called with each new incumbent or bound.

    Returns
    -------
    Result
        Its schedule costs no more than the start, and its status is `optimal` if the cost equals the bound.

    Raises
    ------
    InputError
        If the start is not a valid schedule of the instance.
    """
    return run(
        *("improve", instance, budget, start, lower_bound, progress),
        lambda incumbent: alone(budget, incumbent, local_search(instance, incumbent)),
        opening=energetic_bound,
    )
