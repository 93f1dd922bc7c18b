"""The part of a solve that all solvers share: a start, a first bound, and a result even after a failure."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.interruption import reason_of
from tightpipe.core.metrics import cost
from tightpipe.core.progress import Progress
from tightpipe.core.result import Result, Status
from tightpipe.core.schedule import Schedule

from .bounds.formulas import best_bound
from .bounds.relaxed import relaxed
from .bounds.searches.energetic import energetic_bound
from .incumbent import Incumbent
from .modelled import is_modelled
from .start import checked_start

Search = Callable[[Incumbent], str]

FAILURES = (MemoryError, RuntimeError)
"""Errors with which CP-SAT may fail."""
TOO_LARGE = "the model is too large to be built and searched within the time limit"


def failure(error: Exception, program: str = "CP-SAT") -> str:
    """Return the reason that a result gives if a solver program has failed with this error."""
    return f"{program} failed: {str(error) or type(error).__name__}"


def run_search(
    method: str,
    instance: Instance,
    budget: Budget,
    start: Schedule | None,
    lower_bound: int | None,
    progress: Progress,
    search: Search,
    *,
    energetic: bool = False,
    program: str = "CP-SAT",
    failures: tuple[type[Exception], ...] = FAILURES,
) -> Result:
    """Search from a start until the gap is closed, time is up, or a signal ends the search.

    If the instance has no schedule at all, the result says so, and nothing is searched.

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
    search
        A function that improves the incumbent, and returns why the search ended early. The empty string says
        that nothing ended the search early.
    energetic
        Whether the energetic bound is computed before the search. It is left out all the same if
        `lower_bound` is given, or if the instance has a rule that the energetic bound does not model.
    program
        Name of the program behind the solver, for the message when it fails.
    failures
        Errors with which that program may fail. They end the search, and the incumbent is kept.

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
    reason = ""
    try:
        for narrow in relaxed(instance) if energetic and lower_bound is None else ():
            if not is_modelled(narrow.instance) or budget.left <= 0:
                break
            part, around = budget.part(budget.params.best.energetic), narrow.around
            known = cost(incumbent.schedule) - around, incumbent.bound - around
            bound = energetic_bound(narrow.instance, known[0], part, known[1], narrow.tell(progress))
            incumbent.prove(bound.value + around, bound.proof)
        if not incumbent.closed and budget.left > 0:
            reason = search(incumbent)
        return incumbent.result(method, reason)
    except KeyboardInterrupt as stop:
        reason = reason_of(stop)
    except failures as error:
        reason = failure(error, program)
    return incumbent.result(method, reason)


def unsearched(
    method: str, instance: Instance, start: Schedule | None, reason: str, progress: Progress
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
    reason
        Why the solve ended.
    progress
        Called with the cost of the start and the bound by formula.
    """
    first = checked_start(instance, None) if start is None else start
    return _first_incumbent(first, None, perf_counter(), progress).result(method, reason)


def _first_incumbent(first: Schedule, lower_bound: int | None, begun: float, progress: Progress) -> Incumbent:
    """Return the incumbent with which a search begins, with the better of the bounds given and by formula."""
    formula = best_bound(first.instance)
    if lower_bound is not None and lower_bound > formula.value:
        return Incumbent(first, lower_bound, None, begun, progress)
    return Incumbent(first, formula.value, formula.proof, begun, progress, formula.name)
