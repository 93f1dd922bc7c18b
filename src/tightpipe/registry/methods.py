"""All methods by name: each runs a heuristic or a solver, and returns a `Result`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module

from tightpipe.heuristics import HEURISTICS, Heuristic, known_heuristic
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.queues import refuse_unmodelled

from ..base.errors import InfeasibleError, InputError, NoScheduleError
from ..kernels.compiled import are_compiled, ensure_compiled
from ..model.graph import is_wide
from ..model.instance import Instance
from ..model.metrics import cost
from ..model.placement import PLACEMENTS
from ..model.result import LogEntry, Progress, Result, Status, refuse_contradiction
from ..model.schedule import Schedule
from ..params.budget import Budget
from .own_heuristics import Installed, OwnHeuristic, as_heuristic, heuristic_at, installed_heuristics
from .starts import (
    FUSING,
    Start,
    WarmStart,
    cheapest,
    loops_of_heuristic,
    loops_of_starts,
    requested_starts,
    schedule_of,
)

Run = Callable[[Instance, Budget, WarmStart, Progress], Result]


@dataclass(frozen=True, slots=True)
class Method:
    """A heuristic or a solver, as listed by ``tightpipe methods``.

    Solvers take long to import. So `load` imports a method's code only when the method is to run, and returns
    the function that runs the method. A list of methods imports no solver.
    """

    name: str
    kind: str  #: "heuristic", "exact" or "search"
    placements: tuple[str, ...]  #: names of those that it can schedule
    memory: str  #: which limits it respects, in words
    source: str  #: the paper or the algorithm
    load: Callable[[], Run]
    #: groups of compiled loops that it calls itself, as `tightpipe.exercise` names them; see `loops_of`
    loops: tuple[str, ...]
    code: str = ""  #: hash of the code of an installed heuristic; empty for tightpipe's own methods


def methods() -> list[str]:
    """Return the names of all methods: tightpipe's own, then the heuristics of installed packages."""
    return list(all_methods())


def all_methods() -> dict[str, Method]:
    """Return all methods by name: tightpipe's own, then the heuristics of installed packages."""
    return {**METHODS, **{name: _installed_method(found) for name, found in installed_heuristics().items()}}


def find_method(method: str | OwnHeuristic) -> Method:
    """Return the method of this name, or the method that runs the given function or `Heuristic`.

    A name such as ``my_file:my_function`` names a function in a module, and imports the module. Behind the
    name of a heuristic may stand a sequence of microbatches that differ, e.g. ``1f1b:longest-first``, or a
    rule by which activations leave, e.g. ``1f1b:pipe-offload``. Raise an InputError if there is no such
    method, heuristic or function.
    """
    if not isinstance(method, str):
        return _heuristic_method(as_heuristic(method, key="method"))
    ours = METHODS | _VARIANTS
    known = ours if method in ours else all_methods()
    heuristic = None if method in known else known_heuristic(method)
    if heuristic is not None:
        return _heuristic_method(heuristic)
    if method not in known and ":" in method:
        return _installed_method(heuristic_at(method))
    if method not in known:
        rule = f"must be one of {', '.join(known)}, or module:function of your own"
        raise InputError(rule, key="method", value=method)
    return known[method]


def is_heuristic(name: str) -> bool:
    """Return whether this is the name of a heuristic, tightpipe's own or an installed one.

    The answer for a name such as ``module:function`` is False: the name may come from a file, so the module
    is not imported.
    """
    if known_heuristic(name) is not None:
        return True
    known = METHODS if name in METHODS else all_methods()
    return name in known and known[name].kind == "heuristic"


def loops_of(method: Method, instance: Instance, warm_start: WarmStart) -> tuple[str, ...]:
    """Return the groups of compiled loops that a method calls on an instance, from these starts."""
    searching = () if method.kind == "heuristic" else loops_of_search(method.loops, instance)
    return (*loops_at_first(method, instance, warm_start), *searching)


IMPROVE_WIDE = "improve wide"
"""The group of loops of local search that replaces `improve` for an instance that `is_wide`."""


def loops_of_search(loops: tuple[str, ...], instance: Instance) -> tuple[str, ...]:
    """Return the groups for an instance: for local search, with the moves of wide instances if it is one."""
    wide = is_wide(instance)
    return tuple(IMPROVE_WIDE if wide and group == "improve" else group for group in loops)


def loops_at_first(method: Method, instance: Instance, warm_start: WarmStart) -> tuple[str, ...]:
    """Return those that it calls before it searches; a search that is needed compiles its own then."""
    if method.kind != "heuristic":
        return loops_of_starts(instance, warm_start)
    fusing = (FUSING,) if instance.fusing_saves else ()
    return (*method.loops, *fusing, *(() if instance.offload is None else ("copies",)))


def _run_heuristic(
    heuristic: Heuristic, instance: Instance, budget: Budget, _: WarmStart, progress: Progress
) -> Result:
    begin = time.perf_counter()
    try:
        schedule = schedule_of(instance, heuristic, budget.unlimited())
    except (InfeasibleError, NoScheduleError) as error:
        infeasible = isinstance(error, InfeasibleError)
        status = Status.INFEASIBLE if infeasible else Status.UNKNOWN
        seconds = time.perf_counter() - begin
        return Result(instance, heuristic.name, status, None, None, seconds, reason=str(error))
    seconds = time.perf_counter() - begin
    bound, value = best_bound(instance), cost(schedule)
    refuse_contradiction(schedule, bound.value, bound.proof, bound.name)
    entry = LogEntry(seconds, value, bound.value, bound.proof)
    progress(entry)
    status = Status.OPTIMAL if value == bound.value else Status.FEASIBLE
    return Result(
        *(instance, heuristic.name, status, schedule, bound.value, seconds, (entry,)), proof=bound.proof
    )


def _run_solver(
    name: str,
    solver: Callable[..., Result],
    instance: Instance,
    budget: Budget,
    warm_start: WarmStart,
    progress: Progress,
) -> Result:
    """Run a solver from the cheapest of the requested starts, which are found within the same budget."""
    from tightpipe.solver.engine.run import unsearched
    from tightpipe.solver.outcome import stopped_by

    begin = time.perf_counter()
    reason = instance.infeasibility()
    if reason is not None:
        return Result(instance, name, Status.INFEASIBLE, None, None, 0.0, reason=reason)
    starts: list[Start] = []
    waited = 0.0
    try:
        for start in requested_starts(instance, warm_start, budget):
            starts.append(start)
        waited = compiled_for_search(
            loops_of_search(METHODS[name].loops, instance), instance, cheapest(starts)
        )
        result = solver(instance, budget.later(waited), cheapest(starts), progress=progress)
    except KeyboardInterrupt as stop:  # the solver has not yet found a better schedule than its warm start
        result = unsearched(name, instance, cheapest(starts), stopped_by(stop), progress)
    return replace(result, seconds=time.perf_counter() - begin - waited)


def compiled_for_search(groups: tuple[str, ...], instance: Instance, start: Schedule | None) -> float:
    """Compile groups of loops of searches where they are not compiled yet; return the seconds that this took.

    Nothing is compiled where the start costs as little as a bound by formula: no search is then needed.
    """
    begun = time.perf_counter()
    if are_compiled(groups) or (start is not None and cost(start) == best_bound(instance).value):
        return 0.0
    ensure_compiled(groups)
    return time.perf_counter() - begun


def _load(name: str, path: str, **fixed: object) -> Run:
    """Return a function that runs the solver at a path below `tightpipe.solver`, which is imported."""
    module, _, function = path.partition(":")
    solver = getattr(import_module(f"tightpipe.solver.{module}"), function)
    return partial(_run_solver, name, partial(solver, **fixed))


def _load_block() -> Run:
    from tightpipe.solver.blocks import KNOWN

    solve = _load("block", "blocks:solve_block")

    def run(instance: Instance, budget: Budget, warm_start: WarmStart, progress: Progress) -> Result:
        refuse_unmodelled("block", instance, *KNOWN)
        return solve(instance, budget, warm_start, progress)

    return run


def _heuristic_method(heuristic: Heuristic) -> Method:
    def load() -> Run:
        return partial(_run_heuristic, heuristic)

    return Method(
        *(heuristic.name, "heuristic", heuristic.placements, heuristic.memory, heuristic.source, load),
        loops_of_heuristic(heuristic),
    )


def _installed_method(found: Installed) -> Method:
    return replace(_heuristic_method(found.heuristic), code=found.code)


def _solver(name: str, kind: str, path: str, loops: tuple[str, ...], source: str) -> Method:
    return Method(name, kind, PLACEMENTS, "any limit", source, partial(_load, name, path), loops)


_LATTICE = "Google OR-Tools CP-SAT on first-in-first-out queues with a lattice of order booleans"
_BIG_M = "the same queues with big-M rows in PuLP, as in Qi et al., arXiv:2401.10241, appendix; HiGHS"
_ANNEALING = "simulated annealing (Kirkpatrick et al. 1983) over the sequences, with exact costs"
_BLOCKS = "repeating blocks of few microbatches with the least period, by CP-SAT modulo the period; improve"
_TOGETHER = "bounds, CP-SAT and improve under one time limit"
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        *map(_heuristic_method, HEURISTICS.values()),
        _solver("cpsat", "exact", "cpsat:solve_cpsat", ("energetic bound", "shaving"), _LATTICE),
        _solver("milp", "exact", "milp:solve_milp", ("shaving",), _BIG_M),
        _solver("improve", "search", "improve:improve", ("improve",), _ANNEALING),
        replace(_solver("block", "search", "", ("improve",), _BLOCKS), load=_load_block),
        _solver("best", "exact", "best:solve_best", ("improve", "shaving", "prefixes"), _TOGETHER),
    )
}
"""Tightpipe's own methods by name."""

_VARIANTS: dict[str, Method] = {
    "cpsat:plain": replace(
        METHODS["cpsat"],
        name="cpsat:plain",
        load=partial(_load, "cpsat", "cpsat:solve_cpsat", formulation="plain"),
    )
}
"""Other formulations of methods, for comparisons, which lists of methods leave out."""
