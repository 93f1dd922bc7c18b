"""Every method by name: the one place that knows all heuristics and all solvers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from tightpipe.heuristics import HEURISTICS, Heuristic
from tightpipe.solver.bounds import best_bound
from tightpipe.solver.modelled import refuse_unmodelled

from ..core.contradiction import refuse_contradiction
from ..core.errors import InfeasibleError, InputError, NoScheduleError
from ..core.instance import Instance
from ..core.interruption import reason_of
from ..core.metrics import cost
from ..core.options import Options
from ..core.placement import PLACEMENTS
from ..core.result import LogEntry, Result, Status
from ..core.schedule import Schedule
from .starts import WarmStart, requested_starts, validated

Run = Callable[[Instance, Options, WarmStart], Result]


@dataclass(frozen=True, slots=True)
class Method:
    """A way to get a schedule, as listed by ``tightpipe methods``.

    Solvers take long to load, so a method knows how to load what it runs, and a list of methods loads none.
    """

    name: str
    kind: str  #: "heuristic", "exact" or "search"
    placements: tuple[str, ...]
    memory: str
    source: str
    load: Callable[[], Run]


def methods() -> list[str]:
    """Return the names of all methods."""
    return list(METHODS)


def find_method(name: str) -> Method:
    """Return the method of this name.

    Raises
    ------
    InputError
        If there is none; the message lists the names.
    """
    found = METHODS.get(name) or _VARIANTS.get(name)
    if found is None:
        raise InputError(f"must be one of {', '.join(METHODS)}", key="method", value=name)
    return found


def _run_heuristic(heuristic: Heuristic, instance: Instance, options: Options, _: WarmStart) -> Result:
    begin = time.perf_counter()
    try:
        schedule = validated(instance, heuristic.order(instance))
    except (InfeasibleError, NoScheduleError) as error:
        infeasible = isinstance(error, InfeasibleError)
        status = Status.INFEASIBLE if infeasible else Status.UNKNOWN
        seconds = time.perf_counter() - begin
        return Result(instance, heuristic.name, status, None, None, seconds, reason=str(error))
    seconds = time.perf_counter() - begin
    bound, value = best_bound(instance), cost(schedule)
    refuse_contradiction(schedule, bound.value, bound.proof)
    entry = LogEntry(seconds, value, bound.value, bound.proof)
    options.progress(entry)
    status = Status.OPTIMAL if value == bound.value else Status.FEASIBLE
    return Result(
        *(instance, heuristic.name, status, schedule, bound.value, seconds, (entry,)), proof=bound.proof
    )


def _run_solver(
    name: str, solver: Callable[..., Result], instance: Instance, options: Options, warm_start: WarmStart
) -> Result:
    """Run a solver on what the time limit leaves after the warm start was found."""
    begin = time.perf_counter()
    reason = instance.infeasibility()
    if reason is not None:
        return Result(instance, name, Status.INFEASIBLE, None, None, 0.0, reason=reason)
    starts: list[Schedule] = []
    try:
        for schedule in requested_starts(instance, warm_start):
            starts.append(schedule)
        spent = time.perf_counter() - begin
        left = None if options.time_limit is None else max(0.0, options.time_limit - spent)
        result = solver(instance, replace(options, time_limit=left), min(starts, key=cost, default=None))
    except KeyboardInterrupt as stop:  # before the solver had more to keep than what it starts from
        at_once = replace(options, time_limit=0.0)
        result = solver(instance, at_once, min(starts, key=cost, default=None))
        result = replace(result, reason=reason_of(stop))
    return replace(result, seconds=time.perf_counter() - begin)


def _load_cpsat(formulation: Literal["lattice", "plain"] = "lattice") -> Run:
    from tightpipe.solver.cpsat import solve_cpsat

    def run(instance: Instance, options: Options, warm_start: WarmStart) -> Result:
        refuse_unmodelled("cpsat", instance)
        solver = partial(solve_cpsat, formulation=formulation)
        return _run_solver("cpsat", solver, instance, options, warm_start)

    return run


def _load_milp(backend: str = "highs") -> Run:
    from tightpipe.solver.milp import solve_milp

    def run(instance: Instance, options: Options, warm_start: WarmStart) -> Result:
        solver = partial(solve_milp, backend=options.backend or backend)
        return _run_solver("milp", solver, instance, options, warm_start)

    return run


def _load_improve() -> Run:
    from tightpipe.solver.improve import improve

    def run(instance: Instance, options: Options, warm_start: WarmStart) -> Result:
        refuse_unmodelled("improve", instance, flushes=True)
        return _run_solver("improve", improve, instance, options, warm_start)

    return run


def _load_best() -> Run:
    from tightpipe.solver.best import solve_best

    return partial(_run_solver, "best", solve_best)


def _heuristic_method(heuristic: Heuristic) -> Method:
    def load() -> Run:
        return partial(_run_heuristic, heuristic)

    return Method(heuristic.name, "heuristic", heuristic.placements, heuristic.memory, heuristic.source, load)


METHODS: dict[str, Method] = {
    **{heuristic.name: _heuristic_method(heuristic) for heuristic in HEURISTICS.values()},
    "cpsat": Method(
        "cpsat",
        "exact",
        PLACEMENTS,
        "any limit",
        "Google OR-Tools CP-SAT on first-in-first-out queues with a lattice of order booleans",
        _load_cpsat,
    ),
    "milp": Method(
        "milp",
        "exact",
        PLACEMENTS,
        "any limit",
        "the same queues with big-M rows in PuLP, as in Qi et al., arXiv:2401.10241, appendix; HiGHS or CBC",
        _load_milp,
    ),
    "improve": Method(
        "improve",
        "search",
        PLACEMENTS,
        "any limit",
        "simulated annealing (Kirkpatrick et al. 1983) over the sequences, with exact costs",
        _load_improve,
    ),
    "best": Method(
        "best",
        "exact",
        PLACEMENTS,
        "any limit",
        "bounds, CP-SAT and improve under one time limit",
        _load_best,
    ),
}
"""All methods by name."""

_VARIANTS: dict[str, Method] = {
    "cpsat:plain": replace(METHODS["cpsat"], name="cpsat:plain", load=partial(_load_cpsat, "plain")),
    "milp:cbc": replace(METHODS["milp"], name="milp:cbc", load=partial(_load_milp, "cbc")),
}
"""Other formulations and backends of the methods, found by name but not listed: they are there to compare."""
