"""`tightpipe.plan` finds a plan for a model on a cluster, with a bound over all plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from time import perf_counter
from typing import Any

from ..base.errors import InputError
from ..base.interruption import reason_of
from ..kernels.compiled import ensure_compiled
from ..model.result import Progress, Status, ignore
from ..params.budget import UNLIMITED, Allowance, Budget, TimeUpError
from ..params.solve_params import DEFAULTS, SolveParams
from ..registry.methods import IMPROVE_WIDE, find_method
from ..registry.starts import loops_of_all_starts
from .candidate import Candidate, bytes_lacking, resolved, static_of, units_of, unsharded_of
from .candidate_pool import CandidatePool
from .cluster import Host
from .configuration import Configuration, configurations_of
from .device_bound_kernel import NEVER
from .fixed_orders import orders_of
from .layered_model import Model
from .partitions import Partitions, least_excess, partitions_of, tightest, tightest_near_even
from .problem import RUNTIMES, PlanningProblem
from .result import Plan, layer_names, no_plan
from .search import Search
from .sharding import state_from_table


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
        Number of threads; None takes one for each core that the process may use.
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
    if problem.batch.sampling is not None:
        raise InputError("needs plan_steps, which plans for many steps", key="batch.lengths")
    allowance = Allowance(time_limit, workers, seed, params=params)
    configurations = configurations_of(problem)
    ensure_compiled(loops_of_plan(configurations))
    begun, budget = perf_counter(), allowance.begin()
    try:
        sources = sources_of(configurations, budget)
        if min(source.bound for source in sources) == NEVER:
            whole = replace(problem, space=replace(problem.space, slices=(1,)))
            why = why_nothing_fits(whole, configurations_of(whole), budget)
            return replace(no_plan(problem, why), seconds=perf_counter() - begun, params=params)
    except KeyboardInterrupt as stop:
        nothing = no_plan(problem, reason_of(stop), status=Status.UNKNOWN)
        return replace(nothing, seconds=perf_counter() - begun, params=params)
    search = Search(problem, sources, budget, progress or ignore)
    try:
        if problem.cluster.host is not None and budget.limited:  # a plan without copies is one with them, too
            alone = replace(problem, cluster=replace(problem.cluster, host=None))
            options = replace(allowance, time_limit=_WITHOUT_COPIES * budget.left).options
            search.begin_with(plan(alone, **options))
        reason = search.run()
    except KeyboardInterrupt as stop:
        reason = reason_of(stop)
    bound = search.pool.bound
    if search.pool.best is None:
        search.rush()
    if reason:  # a candidate may have been lost in whatever a signal has ended: later bounds do not count it
        search.pool.bound = min(bound, search.pool.bound)
    return replace(
        _answer(problem, search.pool, reason),
        seconds=perf_counter() - begun,
        considered=search.pool.considered,
        params=params,
        log=tuple(search.pool.log),
    )


_MORE_CHUNKS = (2, 4)  # numbers of stages per device that are tried where a model file has fewer
_MOST_TIMES = 4  # the most devices that are tried, as a multiple of the cluster's largest number of devices
_WITHOUT_COPIES = 0.3  # share of the time in which a plan without copies is found, from which others start


def why_nothing_fits(
    problem: PlanningProblem, configurations: list[Configuration], until: Budget = UNLIMITED
) -> str:
    """Return a line of text that says why no partition of the search space fits, and what would help."""
    excess, best = _tightest(configurations, until)
    if best is None:
        return _NOTHING_FITS
    placement, even = best.placement, "even " if until.left > 0 else ""  # else others may lack fewer bytes
    where = f"{placement.devices} devices in placement {placement.name} with {placement.stages} stages"
    held = "what is in flight" if orders_of(problem, placement) else "one microbatch"
    fullest = bytes_lacking(problem, best).index(excess)
    stages = (best.stages[s] for s in placement.stages_on(fullest))
    names = ", ".join(layer_names(problem.model.layers, *stage) for stage in stages)
    kept = resolved(problem, best)
    texts = [
        f"no partition fits: {even}on {where}, the fullest device lacks {excess} bytes to hold {held} "
        f"(device {fullest} with {names})"
    ]
    units = units_of(kept, best)
    state = static_of(placement, units, fullest) + unsharded_of(kept, placement, units, fullest)
    if state > max(problem.cluster.memory_of(placement.devices) or (state,)) - problem.cluster.reserve:
        texts.append(f"its parameters alone take {state} bytes")
    with suppress(TimeUpError):
        texts.extend(_what_helps(problem, configurations, excess, until))
    return "; ".join(texts)


def _tightest(configurations: list[Configuration], until: Budget) -> tuple[int, Candidate | None]:
    """Return the fewest bytes that the fullest device of a candidate lacks, and this candidate.

    Once time is up, only candidates near some even cuts are looked at.
    """
    least, best = NEVER, None
    for one in configurations:
        try:
            found = tightest(one, until)
        except TimeUpError:
            found = tightest_near_even(one, until)
        excess = NEVER if found is None else max(bytes_lacking(one.problem, found))
        if excess < least:
            least, best = excess, found
    return least, best


def _what_helps(
    problem: PlanningProblem, configurations: list[Configuration], excess: int, until: Budget
) -> Iterator[str]:
    """Yield in words what would let a plan fit, or lack fewer than `excess` bytes, until time is up."""
    cluster, most = problem.cluster, problem.cluster.devices[-1]
    helping = []
    for words, change in _remedies(problem):
        lacking = _excess(change(problem), excess, until)
        if lacking < excess:
            yield f"with {words} it " + (f"lacks {lacking} bytes" if lacking else "fits")
            helping.append((change, lacking))
    if len(helping) > 1 and all(lacking for _, lacking in helping):
        changed = reduce(lambda so_far, one: one[0](so_far), helping, problem)
        lacking = _excess(changed, min(lacking for _, lacking in helping), until)
        if lacking < NEVER:
            yield "with all of these it " + (f"lacks {lacking} bytes" if lacking else "fits")
    yield from _what_chunks_help(problem, configurations, until)
    if isinstance(cluster.memory, int) and not isinstance(cluster.comm, tuple) and not cluster.speeds:
        for devices in range(most + 1, _MOST_TIMES * most + 1):
            if _fits(replace(problem, cluster=replace(cluster, devices=(devices,))), until):
                yield f"it fits on {devices} devices"
                return


def _remedies(problem: PlanningProblem) -> Iterator[tuple[str, Callable[[PlanningProblem], PlanningProblem]]]:
    """Yield what may help where memory is scarce, in words, and how it changes the problem."""
    space, model, cluster = problem.space, problem.model, problem.cluster
    pipelines = problem.batch.data_parallel

    def on(**changes: Any) -> Callable[[PlanningProblem], PlanningProblem]:
        return lambda asked: replace(asked, cluster=replace(asked.cluster, **changes))

    if set(model.kinds) - set(space.recompute):
        more = f"search.recompute = [{', '.join(model.kinds)}]"
        yield more, lambda asked: replace(asked, space=replace(asked.space, recompute=model.kinds))
    if cluster.host is None and space.runtime == "any" and problem.law is None:
        host = on(host=Host(Fraction(1), Fraction(1)))
        if any(layer.offload for layer in model.layers):
            yield "offload, over a cluster.host_bandwidth,", host
        else:
            every = Model(tuple(replace(layer, offload=layer.activation) for layer in model.layers))
            yield (
                "offload (layers.offload = true, over a cluster.host_bandwidth)",
                lambda asked: host(replace(asked, model=every)),
            )
    named = cluster.sharding.resident is not None and not (problem.in_pairs or space.runtime == "torch")
    if named and cluster.sharding.kept(problem.most_stages) > 1:
        yield "cluster.resident = 1", on(sharding=replace(cluster.sharding, resident=1))
    if pipelines > 1 and not cluster.sharding.gathered:
        state = state_from_table({"sharding": "parameters"}, pipelines)
        shared = on(bytes_per_parameter=state.held, sharding=state.sharding)
        yield "cluster.sharding = parameters", shared


def _what_chunks_help(
    problem: PlanningProblem, configurations: list[Configuration], until: Budget
) -> Iterator[str]:
    """Yield in words the fewest chunks, of some that are tried, with which a plan fits, if there are any."""
    space, most = problem.space, max(one.placement.stages_per_device for one in configurations)
    for chunks in (number for number in _MORE_CHUNKS if number > most):
        for name in dict.fromkeys((*space.placements, *RUNTIMES[space.runtime].placements)):
            more = replace(space, placements=(name,), chunks=(chunks,))
            if _fits(replace(problem, space=more), until):
                where = "" if name in space.placements else f"search.placements = [{name}] and "
                yield f"with {where}search.chunks = {chunks} it fits"
                return


def _fits(problem: PlanningProblem, until: Budget) -> bool:
    return _excess(problem, 1, until) == 0


def _excess(problem: PlanningProblem, below: int, until: Budget) -> int:
    """Return the fewest bytes that the fullest device lacks, if fewer than `below`, else `NEVER`."""
    try:
        found = (least_excess(each, until, below) for each in configurations_of(problem))
        return min(found)
    except InputError:  # more devices than layers, or no placement with so many chunks
        return NEVER


_NOTHING_FOUND = "no schedule was found in this time by these methods"
_NOTHING_FITS = "every plan is proven not to fit"
_NOTHING_RUNS = "every plan is proven not to fit, or to have a stage that {} does not run"
_NOT_SEEN = "orders of some cuts are solved, but for later gathers, which no search for orders sees"


def loops_of_plan(configurations: list[Configuration]) -> tuple[str, ...]:
    """Return the groups of compiled loops that the search for a plan calls."""
    placements = sorted({configuration.placement.name for configuration in configurations})
    layers = [layer for each in configurations for layer in each.problem.model.layers]
    fused = any(layer.fused is not None for layer in layers)
    starts = (group for placement in placements for group in loops_of_all_starts(placement, fused))
    copies = ("copies",) if any(each.problem.cluster.host for each in configurations) else ()
    again = (
        each.problem.cluster.sharding.gathers_again(each.placement.stages_per_device)
        for each in configurations
    )
    gathers = ("copies",) if any(again) else ()  # they are timed by the same loop
    pairs = any(layer.experts is not None for layer in layers)
    wide = (IMPROVE_WIDE,) if fused or pairs or copies else ()  # as `is_wide` will say of candidates
    return ("plan", *starts, *(copies or gathers), *find_method("best").loops, *wide)


def sources_of(configurations: list[Configuration], budget: Budget) -> list[Partitions]:
    """Return what yields the candidates of each configuration, found within a part of the time."""
    params = budget.params.plan
    parts = budget.first_part(params.bounding, params.bounding_least).in_turn(len(configurations))
    return [partitions_of(each, part) for each, part in zip(configurations, parts, strict=True)]


def _answer(problem: PlanningProblem, pool: CandidatePool, reason: str) -> Plan:
    """Return the answer of a search that has ended with the given reason, '' if by itself."""
    best, bound = pool.best, pool.bound
    if best is None and bound >= NEVER and not reason:
        runtime = RUNTIMES[problem.space.runtime]
        needs_more = runtime.needs_both or runtime.joins_first
        return no_plan(problem, _NOTHING_RUNS.format(runtime.name) if needs_more else _NOTHING_FITS)
    if best is None:
        answer = no_plan(problem, reason or _NOTHING_FOUND, status=Status.UNKNOWN)
        return answer if bound >= NEVER else replace(answer, bound=bound, proof=pool.proof)
    parts = best.candidate, best.schedule, best.method, bound, pool.proof, 0.0
    found = Plan(problem, Status.FEASIBLE, *parts, reason=reason)
    if bound == found.cost:
        return replace(found, status=Status.OPTIMAL)
    unseen = any(each.solved and not each.closed for each in pool.open)
    return replace(found, reason=reason or _NOT_SEEN) if unseen else found
