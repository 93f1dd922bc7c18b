"""Lower bounds of an instance's cost come from formulas, and from searches under a time limit."""

from __future__ import annotations

from collections.abc import Iterator

from tightpipe.solver.bounds.formulas import all_bounds
from tightpipe.solver.modelled import is_modelled

from ..core.allowance import Allowance
from ..core.contradiction import refuse_contradiction
from ..core.errors import InfeasibleError
from ..core.instance import Instance
from ..core.metrics import cost
from ..core.params.solve_params import DEFAULTS, SolveParams
from ..core.progress import Progress, ignore
from ..core.result import Bound
from .bound_searches import SEARCH_LOOPS, bound_searches
from .ensure_compiled import ensure_compiled
from .starts import loops_of_starts, warm_starts


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
    return max(bounds_within(instance, Allowance(time_limit, workers, params=params)), key=_value)


def bounds_within(instance: Instance, allowance: Allowance, progress: Progress = ignore) -> Iterator[Bound]:
    """Yield the bounds of an instance: first those by formula, then each better one that a search finds.

    The searches try to refute costs below the cost of the best heuristic schedule. They run only on instances
    that the exact models cover, and only where a heuristic finds a schedule.

    Parameters
    ----------
    instance
        The problem.
    allowance
        The limits of the searches; with a time limit of 0, only the formulas are used.
    progress
        Function that the searches call with a log entry for each better bound.

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
    searches = bound_searches(allowance.params.bounds)
    if allowance.time_limit != 0 and is_modelled(instance):
        ensure_compiled((*loops_of_starts(instance.placement.name, "best"), *SEARCH_LOOPS))
    budget = allowance.begin()
    formulas = all_bounds(instance)
    yield from formulas
    starts = warm_starts(instance, budget) if budget.left > 0 and is_modelled(instance) else []
    if not starts:
        return
    _, start = starts[0]
    upper, best = cost(start), max(formulas, key=_value)
    for search, share in searches:
        refuse_contradiction(start, best.value, best.proof, best.name)
        if best.value == upper or budget.left <= 0:
            break
        bound = search(instance, upper, budget.part(share), best.value, progress)
        if bound.value > best.value:
            best = bound
            yield bound


def _value(bound: Bound) -> int:
    return bound.value
