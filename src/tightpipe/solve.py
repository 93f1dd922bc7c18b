"""solve and methods: the one place that knows every heuristic and every solver by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from tightpipe.heuristics import HEURISTICS, Heuristic
from tightpipe.solver.bounds import all_bounds, best_bound
from tightpipe.solver.clock import Clock
from tightpipe.solver.modelled import is_modelled, refuse_unmodelled

from .contradiction import refuse_contradiction
from .errors import InfeasibleError, InputError, NoScheduleError
from .instance import Instance
from .interruption import reason_of
from .kernels import ensure_compiled
from .metrics import cost
from .options import Options, Progress
from .placement import PLACEMENTS
from .result import Bound, LogEntry, Result, Status
from .retime import retime
from .schedule import Schedule
from .validate import validate

WarmStart = Schedule | str | None
Run = Callable[[Instance, Options, WarmStart], Result]
BoundSearch = Callable[[Instance, int, Options, int], Bound]


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


def solve(
    instance: Instance,
    method: str = "best",
    *,
    time_limit: float | None = 60,
    workers: int | None = None,
    seed: int = 0,
    warm_start: WarmStart = "best",
    backend: str | None = None,
    max_memory: float | None = None,
    progress: Progress | None = None,
    display: bool = False,
) -> Result:
    """Solve an instance with one method.

    Parameters
    ----------
    instance
        The problem.
    method
        One of `methods()`. The usual one, `best`, combines heuristics, bounds, CP-SAT and improvement.
    time_limit
        Wall seconds for methods that search; None for no limit, 0 for the warm start alone. They begin
        when the solver is loaded and its inner loops are compiled, which takes minutes once for a user.
    workers
        Threads; None takes the machine's cores.
    seed
        Seed of every random choice.
    warm_start
        For methods that take one: a schedule of the instance, the name of a heuristic, "best" for
        the best of all heuristics that fit, or None for none.
    backend
        Solver behind `milp`: `highs` (the default) or `cbc`.
    max_memory
        GB of resident memory at which `cpsat` and `milp` end with the best schedule; None for no cap.
    progress
        Called with each new incumbent or bound.
    display
        Show the incumbent, the bound and the time left on stderr while the method runs, and a line at its
        end. Where stderr is no terminal, there is only that line.

    Returns
    -------
    Result
        With a validated schedule unless the status is `infeasible` or `unknown`. A method that searches and
        is ended by Ctrl-C returns the best schedule so far, with `reason` "interrupted".

    Raises
    ------
    InputError
        If the method is unknown or does not fit the placement, or an option is out of range.
    """
    options = Options(time_limit, workers, seed, backend, max_memory)
    if progress is not None:
        options = replace(options, progress=progress)
    run = _fitting_run(instance, method, backend, warm_start)
    if display:
        run = _displayed(run, method)
    return run(instance, options, warm_start)


def _fitting_run(instance: Instance, method: str, backend: str | None, warm_start: WarmStart) -> Run:
    """Load the method, and what is compiled, where the instance and these options go with it."""
    chosen = find_method(method)
    _refuse_contradictions(chosen, backend, warm_start)
    if instance.placement.name not in chosen.placements:
        rule = f"schedules placement {', '.join(chosen.placements)}, not {instance.placement.name}"
        fitting = [m.name for m in METHODS.values() if instance.placement.name in m.placements]
        raise InputError(f"{rule}; methods that do: {', '.join(fitting)}", key="method", value=method)
    run = chosen.load()
    ensure_compiled()
    return run


def _displayed(run: Run, method: str) -> Run:
    """Return the run with a progress bar on stderr beside whoever else is told about progress."""
    from .progress_bar import progress_bar  # takes longer to load than what runs without it

    def show(instance: Instance, options: Options, warm_start: WarmStart) -> Result:
        with progress_bar(1, options.time_limit) as bar:
            watch = bar.begin(method)

            def tell(entry: LogEntry) -> None:
                options.progress(entry)
                watch(entry)

            result = run(instance, replace(options, progress=tell), warm_start)
            found = f"cost {result.cost} bound {result.bound} in {result.seconds:.1f} s"
            bar.finish(f"{method}: {result.status} {found}", None)
        return result

    return show


def _refuse_contradictions(method: Method, backend: str | None, warm_start: WarmStart) -> None:
    """Raise where an option is given that the method has no use for."""
    if backend is not None and method.name != "milp":
        raise InputError(f"goes with method milp, not with {method.name}", key="backend", value=backend)
    given = isinstance(warm_start, Schedule) or warm_start not in ("best", None)
    if given and method.kind == "heuristic":
        shown = "a schedule" if isinstance(warm_start, Schedule) else warm_start
        rule = f"goes with methods that search, not with {method.name}"
        raise InputError(rule, key="warm_start", value=shown)


def find_method(name: str) -> Method:
    """Return the method of this name.

    Raises
    ------
    InputError
        If there is none; the message lists the names.
    """
    if name not in METHODS:
        raise InputError(f"must be one of {', '.join(METHODS)}", key="method", value=name)
    return METHODS[name]


def warm_starts(instance: Instance) -> list[tuple[str, Schedule]]:
    """Return a validated schedule of each heuristic that has one for this instance, cheapest first."""
    return sorted(_heuristic_schedules(instance), key=lambda pair: cost(pair[1]))


def _heuristic_schedules(instance: Instance) -> Iterator[tuple[str, Schedule]]:
    for heuristic in HEURISTICS.values():
        if instance.placement.name not in heuristic.placements:
            continue
        try:
            schedule = _checked(retime(instance, heuristic.order(instance)))
        except NoScheduleError:
            continue
        yield heuristic.name, schedule


def bound_searches() -> tuple[tuple[BoundSearch, float], ...]:
    """Return the bounds by search, each with its share of the time left."""
    from tightpipe.solver.bounds.energetic import energetic_bound
    from tightpipe.solver.bounds.fluid import fluid_bound
    from tightpipe.solver.bounds.refute import refutation_bound
    from tightpipe.solver.bounds.shaving import shaving_bound

    return (energetic_bound, 0.2), (shaving_bound, 0.3), (fluid_bound, 0.5), (refutation_bound, 1.0)


def bound(instance: Instance, *, time_limit: float | None = 20, workers: int | None = None) -> Bound:
    """Return the best lower bound of an instance's cost: no schedule of it costs less.

    Bounds by formula come first. Within the time limit, searches then refute costs below that of the best
    heuristic.

    Parameters
    ----------
    instance
        The problem.
    time_limit
        Wall seconds for the searches; 0 for the formulas alone, None for no limit.
    workers
        Threads; None takes the machine's cores.

    Returns
    -------
    Bound
        Its `value` in ticks, with the name of the bound and the argument that proves it.

    Raises
    ------
    InfeasibleError
        If the instance has no schedule at all.
    InputError
        If an option is out of range.
    """
    return max(bounds_within(instance, Options(time_limit, workers)), key=_value)


def bounds_within(instance: Instance, options: Options) -> Iterator[Bound]:
    """Yield all bounds of an instance: by formula, then each better one by search within the time limit.

    The searches refute costs below that of the best heuristic, and apply where the exact models do.

    Raises
    ------
    InfeasibleError
        If the instance has no schedule at all.
    """
    reason = instance.infeasibility()
    if reason is not None:
        raise InfeasibleError(reason)
    searches = bound_searches()
    ensure_compiled()
    clock = Clock(options.time_limit)
    formulas = all_bounds(instance)
    yield from formulas
    starts = warm_starts(instance) if options.time_limit != 0 and is_modelled(instance) else []
    if not starts:
        return
    _, start = starts[0]
    upper, best = cost(start), max(formulas, key=_value)
    for search, share in searches:
        refuse_contradiction(start, best.value, best.proof)
        if best.value == upper:
            break
        bound = search(instance, upper, clock.part(share).limit(options), best.value)
        if bound.value > best.value:
            best = bound
            yield bound


def _value(bound: Bound) -> int:
    return bound.value


def _checked(schedule: Schedule) -> Schedule:
    violations = validate(schedule.instance, schedule)
    if violations:
        raise AssertionError(f"a method returned an invalid schedule, please report: {violations[0]}")
    return schedule


def _run_heuristic(heuristic: Heuristic, instance: Instance, options: Options, _: WarmStart) -> Result:
    begin = time.perf_counter()
    try:
        schedule = _checked(retime(instance, heuristic.order(instance)))
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
        for schedule in _starts(instance, warm_start):
            starts.append(schedule)
        spent = time.perf_counter() - begin
        left = None if options.time_limit is None else max(0.0, options.time_limit - spent)
        result = solver(instance, replace(options, time_limit=left), min(starts, key=cost, default=None))
    except KeyboardInterrupt as stop:  # before the solver had more to keep than what it starts from
        at_once = replace(options, time_limit=0.0)
        result = solver(instance, at_once, min(starts, key=cost, default=None))
        result = replace(result, reason=reason_of(stop))
    return replace(result, seconds=time.perf_counter() - begin)


def _load_cpsat() -> Run:
    from tightpipe.solver.cpsat import solve_cpsat

    def run(instance: Instance, options: Options, warm_start: WarmStart) -> Result:
        refuse_unmodelled("cpsat", instance)
        return _run_solver("cpsat", solve_cpsat, instance, options, warm_start)

    return run


def _load_milp() -> Run:
    from tightpipe.solver.milp import solve_milp

    def run(instance: Instance, options: Options, warm_start: WarmStart) -> Result:
        solver = partial(solve_milp, backend=options.backend or "highs")
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


def _starts(instance: Instance, warm_start: WarmStart) -> Iterator[Schedule]:
    """Yield the schedules, as they are found, of which the cheapest is the one that `warm_start` asks for."""
    if warm_start == "best":
        yield from (schedule for _, schedule in _heuristic_schedules(instance))
    elif warm_start is not None:
        yield _resolve(instance, warm_start)


def _resolve(instance: Instance, warm_start: Schedule | str) -> Schedule:
    """Turn a `warm_start` argument into a valid schedule."""
    if isinstance(warm_start, Schedule):
        violations = validate(instance, warm_start)
        if violations:
            raise InputError(f"is not valid for this instance: {violations[0]}", key="warm_start")
        return warm_start
    heuristic = HEURISTICS.get(warm_start)
    if heuristic is None or instance.placement.name not in heuristic.placements:
        fitting = [h.name for h in HEURISTICS.values() if instance.placement.name in h.placements]
        rule = f"must be best or a heuristic for placement {instance.placement.name}: {', '.join(fitting)}"
        raise InputError(rule, key="warm_start", value=warm_start)
    try:
        return _checked(retime(instance, heuristic.order(instance)))
    except NoScheduleError as error:
        raise InputError(str(error), key="warm_start", value=warm_start) from None


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
