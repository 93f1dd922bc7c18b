"""Lower bounds of an instance's cost come from formulas, and from searches under a time limit."""

from __future__ import annotations

from tightpipe.solver.bounds.formulas import all_bounds
from tightpipe.solver.bounds.relaxed import is_searchable, relaxed
from tightpipe.solver.queues import Rule, is_modelled

from ..base.errors import InfeasibleError
from ..base.interruption import raise_again, reason_of
from ..model.instance import Instance
from ..model.result import Bound, Progress, ignore
from ..params.budget import Allowance
from ..params.solve_params import DEFAULTS, SolveParams
from .ensure_compiled import ensure_compiled
from .starts import loops_of_starts, warm_starts

SEARCH_LOOPS = ("energetic bound", "shaving", "prefixes")
"""Groups of compiled loops that the searches call, as `tightpipe.exercise` names them."""


def bound(
    instance: Instance,
    *,
    time_limit: float | None = 20,
    workers: int | None = None,
    params: SolveParams = DEFAULTS,
) -> Bound:
    """Return the best known lower bound of an instance's cost: no schedule of the instance costs less.

    Formulas give the first bounds. Within the time limit, searches then try to prove that costs below the
    cost of the best heuristic schedule are impossible.

    Parameters
    ----------
    instance
        The problem.
    time_limit
        Wall seconds for the searches; 0 for the formulas alone, None for no limit.
    workers
        Number of threads; None takes as many as the machine has cores.
    params
        The numbers that tune the searches.

    Returns
    -------
    Bound
        The bound's `value` in ticks, its name and the argument that proves it.

    Raises
    ------
    InfeasibleError
        If the instance has no schedule at all.
    InputError
        If an option is out of range.
    """
    found, reason = bounds_within(instance, Allowance(time_limit, workers, params=params))
    raise_again(reason)
    return max(found, key=lambda bound: bound.value)


def bounds_within(
    instance: Instance, allowance: Allowance, progress: Progress = ignore
) -> tuple[list[Bound], str]:
    """Return the bounds of an instance: first those by formula, then each better one that a search finds.

    The searches try to refute costs below the cost of the best heuristic schedule. They run only on instances
    that the exact models cover, if need be in a narrower form (`relaxed`), and only where a heuristic finds a
    schedule.

    Parameters
    ----------
    instance
        The problem.
    allowance
        The limits of the searches; with a time limit of 0, only the formulas are used.
    progress
        Function that the searches call with a log entry for each better bound.

    Returns
    -------
    bounds
        The bounds.
    reason
        `interrupted` or `terminated` if a signal ended the searches, and else empty.

    Raises
    ------
    InfeasibleError
        If the instance has no schedule at all.
    ContradictionError
        If a bound is found to be above the cost of the best heuristic schedule.
    """
    reason = instance.infeasibility()
    if reason is not None:
        raise InfeasibleError(reason)
    narrower = (narrow.instance for narrow in relaxed(instance))
    covered = is_searchable(instance) or any(is_modelled(one, Rule.CLASSES) for one in narrower)
    if allowance.time_limit != 0 and covered:
        ensure_compiled((*loops_of_starts(instance, "best"), *SEARCH_LOOPS))
    budget = allowance.begin()
    found = all_bounds(instance)
    try:
        starts = warm_starts(instance, budget) if budget.left > 0 and covered else []
        if starts:
            from tightpipe.solver.bound import raise_bounds  # imported late because OR-Tools loads slowly

            raise_bounds(starts[0][1], budget, found, progress)
    except KeyboardInterrupt as stop:
        return found, reason_of(stop)
    return found, ""
