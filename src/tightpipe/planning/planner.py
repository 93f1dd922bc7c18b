"""`tightpipe.plan` finds a plan for a model on a cluster, with a bound over all plans."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from ..core.allowance import Allowance
from ..core.budget import Budget, TimeUpError
from ..core.interruption import reason_of
from ..core.params.solve_params import DEFAULTS, SolveParams
from ..core.progress import Progress, ignore
from ..core.result import Status
from ..solving.ensure_compiled import ensure_compiled
from ..solving.methods import find_method
from ..solving.starts import loops_of_starts
from .candidate_pool import CandidatePool
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .partitions import Partitions, partitions_of
from .plan import Plan, no_plan
from .plan_search import Search
from .problem import PlanningProblem
from .search_space import configurations_of
from .why_nothing_fits import why_nothing_fits

_NOTHING_FOUND = "no schedule was found in this time by these methods"
_NOTHING_FITS = "every plan is proven not to fit"


def plan(
    problem: PlanningProblem,
    *,
    time_limit: float | None = 60,
    workers: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    params: SolveParams = DEFAULTS,
) -> Plan:
    """Find where to cut a model, where to run the stages, what to recompute and when everything runs.

    Parameters
    ----------
    problem
        The model, the cluster, the batch, and the plans among which to choose.
    time_limit
        Wall seconds for the search; None to go on until the best plan is proven best. Without a limit and
        with one worker, the same seed gives the same plan in every run. The time starts after all loops have
        been compiled. Compiling takes a minute, once per user.
    workers
        Number of threads; None takes as many as the machine has cores.
    seed
        Seed of every random choice, 0 to 2**31 - 1.
    progress
        Function that is called with a log entry for each new cost or bound.
    params
        The numbers that tune the search and the methods that it calls.

    Returns
    -------
    Plan
        The best plan that was found, with a lower bound on the cost of every plan in the search space. Ctrl-C
        ends the search, and the best plan so far is returned, with `reason` "interrupted".

    Raises
    ------
    InputError
        If the search space has no configuration, e.g. since no placement allows the number of chunks, if it
        has a placement with two routes, if a stage could be recomputed in too many ways, or if a number is
        out of its range.
    """
    allowance = Allowance(time_limit, workers, seed, params=params)
    configurations = configurations_of(problem)
    ensure_compiled(loops_of_plan(configurations))
    begun, budget = perf_counter(), allowance.begin()
    sources = _sources(configurations, budget)
    if min(source.bound for source in sources) == NEVER:
        answer = no_plan(problem, _why_nothing_fits(problem, configurations, budget))
        return replace(answer, seconds=perf_counter() - begun, params=params)
    search = Search(problem, sources, budget, progress or ignore)
    try:
        reason = search.run()
    except KeyboardInterrupt as stop:
        reason = reason_of(stop)
    if search.pool.best is None:
        search.rush()
    return replace(
        _answer(problem, search.pool, reason),
        seconds=perf_counter() - begun,
        considered=search.pool.considered,
        params=params,
        log=tuple(search.pool.log),
    )


def loops_of_plan(configurations: list[Configuration]) -> tuple[str, ...]:
    """Return the groups of compiled loops that the search for a plan calls."""
    placements = sorted({configuration.placement.name for configuration in configurations})
    starts = (group for placement in placements for group in loops_of_starts(placement, "best"))
    return ("plan", *starts, *find_method("best").loops)


def _sources(configurations: list[Configuration], budget: Budget) -> list[Partitions]:
    """Return what yields the candidates of each configuration, found within a part of the time."""
    parts = _first_part(budget).in_turn(len(configurations))
    return [partitions_of(each, part) for each, part in zip(configurations, parts, strict=True)]


def _first_part(budget: Budget) -> Budget:
    """Return the part of the time in which candidates are bounded before the search."""
    return budget.first_part(budget.params.plan.bounding, budget.params.plan.bounding_least)


def _why_nothing_fits(problem: PlanningProblem, configurations: list[Configuration], budget: Budget) -> str:
    try:
        return why_nothing_fits(problem, configurations, budget)
    except TimeUpError:
        return _NOTHING_FITS


def _answer(problem: PlanningProblem, pool: CandidatePool, reason: str) -> Plan:
    """Return the answer of a search that has ended with the given reason, '' if by itself."""
    best, bound = pool.best, pool.bound
    if best is None and bound >= NEVER and not reason:
        return no_plan(problem, _NOTHING_FITS)
    if best is None:
        answer = no_plan(problem, reason or _NOTHING_FOUND, status=Status.UNKNOWN)
        return answer if bound >= NEVER else replace(answer, bound=bound, proof=pool.proof)
    status = Status.OPTIMAL if bound == best.cost else Status.FEASIBLE
    return Plan(
        *(problem, status, best.candidate, best.schedule, best.method, bound, pool.proof, 0.0),
        reason=reason,
    )
