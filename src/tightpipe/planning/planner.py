"""`tightpipe.plan` finds a plan for a model on a cluster, with a bound over all plans."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

from ..core.allowance import Allowance
from ..core.budget import Budget, TimeUpError
from ..core.interruption import reason_of, was_stopped
from ..core.params.solve_params import DEFAULTS, SolveParams
from ..core.progress import Progress, ignore
from ..core.result import LogEntry, Proof, Status
from ..solving.ensure_compiled import ensure_compiled
from ..solving.methods import find_method
from ..solving.starts import loops_of_starts
from .candidate_pool import CandidatePool
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .incomplete_cuts import incomplete_bound
from .not_searched import RULE, not_searched
from .partitions import Partitions, partitions_of
from .plan import Plan, no_plan
from .plan_search import Search
from .problem import PlanningProblem
from .search_space import configurations_of
from .why_nothing_fits import why_nothing_fits

_NOTHING_FOUND = "no schedule was found in this time by these methods"
_NOTHING_FITS = "every plan is proven not to fit"
_WITHIN = "within the cuts in which every stage has F, B and W"
_OUTSIDE = f"cuts with {RULE} are outside the search space"


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
        The best plan that was found, with a lower bound on the cost of every plan in the search space. The
        bound also holds for plans with a stage whose F, B or W takes no time, which are not in the search
        space. Ctrl-C ends the search, and the best plan so far is returned, with `reason` "interrupted".

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
        beyond = incomplete_bound(configurations, NEVER, _first_part(budget))
        answer = _unfit(problem, beyond, _why_nothing_fits(problem, configurations, budget))
        return replace(answer, seconds=perf_counter() - begun, params=params)
    search = Search(problem, sources, budget, progress or ignore)
    try:
        reason = search.run()
    except KeyboardInterrupt as stop:
        reason = reason_of(stop)
    if search.pool.best is None:
        search.rush()
    beyond, reason = _beyond(configurations, search.pool.bound, budget, reason)
    answer = _answer(problem, search.pool, beyond, reason)
    return replace(
        answer,
        seconds=perf_counter() - begun,
        considered=search.pool.considered,
        params=params,
        log=_lowered(search.pool.log, beyond),
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


def _beyond(configurations: list[Configuration], cap: int, budget: Budget, reason: str) -> tuple[int, str]:
    """Return a lower bound, in ticks, on the cost of all plans whose cuts are not searched, and a reason.

    The reason is the given one, with which the search has ended, or that of a signal that has ended the work
    on this bound. After a signal, the bound rests on the work of all layers alone. From `cap` ticks on, it
    does not matter how large the bound is.
    """
    try:
        if not was_stopped(reason):
            return incomplete_bound(
                configurations, cap, budget.first_part(1.0, budget.params.plan.bounding_least)
            ), reason
    except KeyboardInterrupt as stop:
        reason = reason_of(stop)
    return incomplete_bound(configurations, cap, budget.within(0.0)), reason


def _unfit(problem: PlanningProblem, beyond: int, reason: str) -> Plan:
    """Return the answer where no cut that is searched fits, for the given reason.

    `beyond` is a lower bound, in ticks, on the cost of all plans whose cuts are not searched.
    """
    if beyond >= NEVER:
        either = f"; cuts with {RULE} do not fit, either" if not_searched(problem) else ""
        return no_plan(problem, reason + either)
    reason = f"{_WITHIN}, {reason}; {_OUTSIDE}, and one of them may fit"
    return replace(no_plan(problem, reason, status=Status.UNKNOWN), bound=beyond, proof=Proof.FORMULA)


def _answer(problem: PlanningProblem, pool: CandidatePool, beyond: int, reason: str) -> Plan:
    """Return the answer of a search that has ended with the given reason, '' if by itself.

    The bound of the answer is at most `beyond`, which `_unfit` explains.
    """
    best, bound = pool.best, min(pool.bound, beyond)
    proof = Proof.FORMULA if beyond < pool.bound else pool.proof
    if best is None and pool.bound >= NEVER and not reason:
        return _unfit(problem, beyond, _NOTHING_FITS)
    if best is None:
        nothing = f"{_NOTHING_FOUND}; {_OUTSIDE}" if not_searched(problem) else _NOTHING_FOUND
        answer = no_plan(problem, reason or nothing, status=Status.UNKNOWN)
        return answer if bound >= NEVER else replace(answer, bound=bound, proof=proof)
    status = Status.OPTIMAL if bound == best.cost else Status.FEASIBLE
    if bound < pool.bound == best.cost:
        reason = reason or f"this plan is the best one {_WITHIN}; {_OUTSIDE}, and one of them may be faster"
    return Plan(
        *(problem, status, best.candidate, best.schedule, best.method, bound, proof, 0.0),
        reason=reason,
    )


def _lowered(log: list[LogEntry], beyond: int) -> tuple[LogEntry, ...]:
    """Return the entries of a log with bounds of at most `beyond` ticks, without repeated ones."""
    found: list[LogEntry] = []
    for entry in log:
        if entry.bound is not None and entry.bound > beyond:
            entry = replace(entry, bound=beyond, proof=Proof.FORMULA)
        if not found or (entry.cost, entry.bound) != (found[-1].cost, found[-1].bound):
            found.append(entry)
    return tuple(found)
