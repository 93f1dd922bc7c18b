"""What all methods that search have in common: a start, a first bound, and a result even after a failure."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.progress import Progress
from tightpipe.core.result import Result, Status
from tightpipe.core.schedule import Schedule

from ..bounds.formulas import best_bound
from ..outcome import FINISHED, Ended, failed, stopped_by
from ..start import checked_start
from .bound_search import Search, bounding
from .incumbent import Incumbent
from .portfolio import alone
from .sequence import in_sequence
from .worker import FAILURES


def run(
    method: str,
    instance: Instance,
    budget: Budget,
    start: Schedule | None,
    lower_bound: int | None,
    progress: Progress,
    work: Callable[[Incumbent], Ended],
    *,
    opening: Search | None = None,
    program: str = "CP-SAT",
    failures: tuple[type[Exception], ...] = FAILURES,
) -> Result:
    """Work on an incumbent from a start until the gap is closed, time is up, or a signal ends the work.

    If the instance has no schedule at all, the result says so, and no work is done.

    Parameters
    ----------
    method
        Name of the method, for the result.
    instance
        The problem.
    budget
        The deadline, threads, seed and memory cap of the solve.
    start
        A valid schedule; None to start from one microbatch after another.
    lower_bound
        A proven bound of the cost in ticks, used if it is better than the bounds of `bounds.formulas`.
    progress
        Called with each new incumbent or bound.
    work
        Runs the members of the method on the incumbent, and returns how they ended.
    opening
        A search for a bound that runs before that, for a share of the time. It is left out if `lower_bound`
        is given.
    program
        Name of the program behind the solver, for the message when it fails.
    failures
        Errors with which that program may fail. They end the work, and the incumbent is kept.

    Raises
    ------
    InputError
        If the start is not a valid schedule of the instance.
    """
    begun = perf_counter()
    reason = instance.infeasibility()
    if reason is not None:
        return Result(instance, method, Status.INFEASIBLE, None, None, perf_counter() - begun, reason=reason)
    incumbent = _first_incumbent(checked_start(instance, start), lower_bound, begun, progress)
    ended = FINISHED
    try:
        if opening is not None and lower_bound is None:
            share = budget.params.best.energetic
            ended = alone(budget, incumbent, in_sequence(*bounding(opening, incumbent, share)))
        if not (ended.early or incumbent.closed) and budget.left > 0:
            ended = work(incumbent)
    except KeyboardInterrupt as stop:
        ended = stopped_by(stop)
    except failures as error:
        ended = failed(error, program)
    return incumbent.result(method, ended)


def unsearched(
    method: str, instance: Instance, start: Schedule | None, ended: Ended, progress: Progress
) -> Result:
    """Return the result of a solve that ended before its search began, without any work that takes long.

    Parameters
    ----------
    method
        Name of the method, for the result.
    instance
        A problem that has a schedule.
    start
        A schedule that the validator has accepted; None for one microbatch after another.
    ended
        How the solve ended.
    progress
        Called with the cost of the start and the bound by formula.
    """
    first = checked_start(instance, None) if start is None else start
    return _first_incumbent(first, None, perf_counter(), progress).result(method, ended)


def _first_incumbent(first: Schedule, lower_bound: int | None, begun: float, progress: Progress) -> Incumbent:
    """Return the incumbent with which a search begins, with the better of the bounds given and by formula."""
    formula = best_bound(first.instance)
    if lower_bound is not None and lower_bound > formula.value:
        return Incumbent(first, lower_bound, None, begun, progress)
    return Incumbent(first, formula.value, formula.proof, begun, progress, formula.name)
