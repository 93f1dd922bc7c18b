"""`tightpipe.plan` finds a plan for a model on a cluster, with a bound over all plans."""

from __future__ import annotations

from time import perf_counter

from ..core.allowance import Allowance
from ..core.errors import InputError
from ..core.interruption import reason_of
from ..core.placement import Placement, Route
from ..core.progress import Progress, ignore
from ..core.result import Status
from ..solving.ensure_compiled import ensure_compiled
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .partitions import least_excess, partitions_of
from .plan import Plan
from .problem import PlanningProblem
from .recompute_options import RecomputeOptions
from .search import Search
from .tables import tables_of

_MOST_LAYERS = 1000  # bounds need room for each pair of layers
_NOTHING_FOUND = "no schedule was found in this time by these methods"


def plan(
    problem: PlanningProblem,
    *,
    time_limit: float | None = 60,
    workers: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Plan:
    """Find where to cut a model, where to run the stages, what to recompute and when everything runs.

    Parameters
    ----------
    problem
        The model, the cluster, the batch, and the plans among which to choose.
    time_limit
        Wall seconds for the search; None to go on until the best plan is proven best. The time counts from
        when all loops are compiled, which takes minutes once per user.
    workers
        Number of threads; None takes as many as the machine has cores.
    seed
        Seed of every random choice, 0 to 2**31 - 1.
    progress
        Function that is called with a log entry for each new cost or bound.

    Returns
    -------
    Plan
        The best plan that was found, and a bound that no plan in the search space is below. Ctrl-C ends the
        search, and the best plan so far is returned, with `reason` "interrupted".

    Raises
    ------
    InputError
        If the search space has no configuration, e.g. since no placement allows the number of chunks, or if a
        number is out of its range.
    """
    allowance = Allowance(time_limit, workers, seed)
    configurations = configurations_of(problem)
    ensure_compiled()
    begun, budget = perf_counter(), allowance.begin()
    sources = [partitions_of(configuration) for configuration in configurations]
    if min(source.bound for source in sources) == NEVER:
        reason = why_nothing_fits(configurations)
        return Plan(
            problem, Status.INFEASIBLE, None, None, "", None, None, perf_counter() - begun, reason=reason
        )
    search = Search(problem, sources, budget, progress or ignore)
    try:
        reason = search.run()
    except KeyboardInterrupt as stop:
        reason = reason_of(stop)
    return _answer(problem, search, perf_counter() - begun, reason)


def _answer(problem: PlanningProblem, search: Search, seconds: float, reason: str) -> Plan:
    best = search.best
    bound = search.bound if search.bound < NEVER else None
    proof = None if bound is None else search.proof
    if best is None:
        status = Status.UNKNOWN if bound is not None else Status.INFEASIBLE
        return Plan(
            *(problem, status, None, None, "", bound, proof, seconds),
            *(search.considered, tuple(search.log), reason or _NOTHING_FOUND),
        )
    status = Status.OPTIMAL if bound == best.cost else Status.FEASIBLE
    return Plan(
        *(problem, status, best.candidate, best.schedule, best.method, bound, proof, seconds),
        *(search.considered, tuple(search.log), reason),
    )


def configurations_of(problem: PlanningProblem) -> list[Configuration]:
    """Return the configurations of the search space, each with its arrays.

    Raises
    ------
    InputError
        If there is none, if a placement has two routes, on which this search cannot cut a model, or if the
        model has too many layers.
    """
    layers, options = len(problem.model.layers), dict[int, RecomputeOptions]()
    if layers > _MOST_LAYERS:
        rule = f"must be at most {_MOST_LAYERS} for a search; join layers between which you need no cut"
        raise InputError(rule, key="layers", value=layers)
    found = []
    for placement in _placements(problem):
        longest = layers - placement.stages + 1
        if longest not in options:
            options[longest] = RecomputeOptions(problem, longest)
        tables = tables_of(problem, placement, options[longest])
        found.append(Configuration(placement, tables, options[longest]))
    return found


def _placements(problem: PlanningProblem) -> list[Placement]:
    """Return the placements of the search space, without those whose stages lie as those of another one."""
    space, found = problem.space, dict[tuple[Route, ...], Placement]()
    refused = ""
    for name in space.placements:
        if name == "bidirectional":
            rule = "must not hold bidirectional: its devices have the stages of two routes"
            raise InputError(rule, key="search.placements", value=list(space.placements))
        for devices in problem.cluster.devices:
            for chunks in space.chunks or (None,):
                try:
                    placement = Placement(name, devices, chunks)
                except InputError as error:
                    refused = error.rule
                else:
                    found.setdefault(placement.routes, placement)
    if not found:
        raise InputError(f"allows no placement: {refused}", key="search.chunks", value=space.chunks)
    fewest, layers = min(placement.stages for placement in found.values()), len(problem.model.layers)
    if fewest > layers:
        rule = f"must be at least {fewest} layers, one for each stage of the smallest placement"
        raise InputError(rule, key="layers", value=layers)
    return list(found.values())


def why_nothing_fits(configurations: list[Configuration]) -> str:
    """Return why no partition fits, in one sentence for people."""
    lacking = [(least_excess(found), found.placement) for found in configurations]
    excess, placement = min(lacking, key=lambda pair: pair[0])
    where = f"{placement.devices} devices in placement {placement.name} with {placement.stages} stages"
    if excess == NEVER:
        return f"no partition gives every stage an F, a B and a W that take time, even on {where}"
    return (
        f"no partition fits: even on {where}, the fullest device lacks {excess} bytes to hold one microbatch"
    )
