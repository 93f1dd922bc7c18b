"""`tightpipe.solve` runs one method on one instance, and `tightpipe.bound` all bounds that apply to it."""

from __future__ import annotations

from dataclasses import replace

from tightpipe.solver.bounds.formulas import all_bounds

from ..base.errors import InfeasibleError, InputError
from ..base.interruption import raise_again, reason_of
from ..kernels.compiled import are_compiled, ensure_compiled
from ..model.instance import Instance
from ..model.result import Bound, LogEntry, Progress, Result, ignore
from ..model.schedule import Schedule
from ..params.budget import Allowance, Budget
from ..params.solve_params import DEFAULTS, SolveParams
from .methods import (
    Method,
    Run,
    all_methods,
    compiled_for_search,
    find_method,
    loops_at_first,
    loops_of,
    loops_of_search,
)
from .own_heuristics import OwnHeuristic, name_of
from .starts import WarmStart, loops_of_starts, warm_starts

_COUNTING = ("best", "block", "cpsat", "improve")  # methods that take `effort`, because they count their work


def solve(
    instance: Instance,
    method: str | OwnHeuristic = "best",
    *,
    time_limit: float | None = 60,
    workers: int | None = None,
    seed: int = 0,
    warm_start: WarmStart = "best",
    max_memory: float | None = None,
    effort: float | None = None,
    progress: Progress | None = None,
    display: bool = False,
    params: SolveParams = DEFAULTS,
) -> Result:
    """Solve an instance with one method.

    Parameters
    ----------
    instance
        The problem.
    method
        One of `methods()`. The method `best` combines heuristics, bounds, CP-SAT and local search. In
        place of a name, a heuristic of your own may be given: a function that takes the instance and returns
        an `Order`. As with any other heuristic, the order gets the best start times and is validated.
    time_limit
        Wall seconds for methods that search; None for no limit, 0 for the warm start alone. The clock starts
        once the solver is loaded and the inner loops that it calls are compiled. Compiling takes seconds,
        and up to a minute for `best`, once for each user and version.
    workers
        Number of threads; None takes one for each core that the process may use.
    seed
        Seed of every random choice, 0 to 2**31 - 1.
    warm_start
        Schedule from which a method that searches starts: a schedule of the instance, the name of a
        heuristic, a function as for `method`, "best" for the best of all heuristics that fit the instance,
        or None for no start. Of a tuple of these, the cheapest schedule is taken. A schedule may have been
        found for the other objective.
    max_memory
        Resident memory in GB at which `cpsat` and `milp` end with the best schedule so far; None for no cap.
    effort
        A deterministic limit that replaces `time_limit`, for the methods `best`, `block`, `cpsat` and
        `improve`. The work done is counted and converted to seconds of one thread on a usual machine; the
        clock is not read. So with one worker every run gives the same result, though its wall time depends
        on the machine.
    progress
        Function that is called with a log entry for each new incumbent (best schedule so far) or bound.
    display
        Whether to show the incumbent, the bound and the time left on stderr while the method runs, and a line
        at its end. Where stderr is no terminal, only that line is shown.
    params
        The numbers that tune the searches, e.g. ``SolveParams(anneal=AnnealParams(reach=4))`` or what
        `load_params` has read. The result says which of them are not the defaults.

    Returns
    -------
    Result
        The result has a validated schedule unless its status is `infeasible` or `unknown`. A method that
        searches and is ended by Ctrl-C returns the best schedule so far, with `reason` "interrupted".

    Raises
    ------
    InputError
        If the method is unknown or does not fit the placement, if an option is out of range, or if a
        function of your own returns no order, or an order that breaks a rule, which the message names.
    """
    allowance = Allowance(
        None if effort is not None else time_limit, workers, seed, max_memory, effort, params
    )
    chosen = find_method(method)
    if effort is not None and chosen.name not in _COUNTING:
        rule = f"goes with methods {', '.join(_COUNTING)}, not with {chosen.name}"
        raise InputError(rule, key="effort", value=effort)
    run = _fitting_run(instance, chosen, warm_start)
    if display:
        run = _displayed(run, chosen.name, allowance.time_limit)
    return replace(run(instance, allowance.begin(), warm_start, progress or ignore), params=params)


def _fitting_run(instance: Instance, chosen: Method, warm_start: WarmStart) -> Run:
    """Return the function that runs the method, after a check that it fits the instance and the options."""
    _refuse_idle_start(chosen, warm_start)
    if instance.placement.name not in chosen.placements:
        rule = f"schedules placement {', '.join(chosen.placements)}, not {instance.placement.name}"
        fitting = [m.name for m in all_methods().values() if instance.placement.name in m.placements]
        raise InputError(f"{rule}; methods that do: {', '.join(fitting)}", key="method", value=chosen.name)
    run = chosen.load()
    searching = are_compiled(loops_of_search(chosen.loops, instance))
    loops = loops_of if searching else loops_at_first  # a search may not be needed
    ensure_compiled(loops(chosen, instance, warm_start))
    return run


def _displayed(run: Run, method: str, time_limit: float | None) -> Run:
    """Return a function that does the same as `run` and also shows a progress bar on stderr."""
    from ..terminal import ProgressBar  # imported late because it takes long to load

    def show(instance: Instance, budget: Budget, warm_start: WarmStart, progress: Progress) -> Result:
        with ProgressBar(1, time_limit) as bar:
            watch = bar.begin(method)

            def tell(entry: LogEntry) -> None:
                progress(entry)
                watch(entry)

            result = run(instance, budget, warm_start, tell)
            found = f"cost {result.cost} bound {result.bound} in {result.seconds:.1f} s"
            bar.finish(f"{method}: {result.status} {found}", None)
        return result

    return show


def _refuse_idle_start(method: Method, warm_start: WarmStart) -> None:
    """Raise an InputError if `warm_start` is given and the method has no use for it."""
    given = isinstance(warm_start, Schedule | tuple) or warm_start not in ("best", None)
    if given and method.kind == "heuristic":
        rule = f"goes with methods that search, not with {method.name}"
        raise InputError(rule, key="warm_start", value=_shown(warm_start))


def _shown(warm_start: WarmStart) -> object:
    if isinstance(warm_start, Schedule):
        return "a schedule"
    if isinstance(warm_start, tuple):
        return ", ".join(str(_shown(one)) for one in warm_start)
    return warm_start if warm_start is None or isinstance(warm_start, str) else name_of(warm_start)


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
        Number of threads; None takes one for each core that the process may use.
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

    With a time limit of 0, only the formulas are used. With the bounds comes `interrupted` or `terminated` if
    a signal ended the searches, else an empty text. Raise an InfeasibleError if there is no schedule at all.
    """
    reason = instance.infeasibility()
    if reason is not None:
        raise InfeasibleError(reason)
    if allowance.time_limit != 0:
        searching = SEARCH_LOOPS if are_compiled(SEARCH_LOOPS) else ()
        ensure_compiled((*loops_of_starts(instance, "best"), *searching))
    budget = allowance.begin()
    found = all_bounds(instance)
    try:
        starts = warm_starts(instance, budget) if budget.left > 0 else []
        if starts:
            from tightpipe.solver.best import raise_bounds  # imported late because OR-Tools loads slowly

            waited = compiled_for_search(SEARCH_LOOPS, instance, starts[0][1])
            raise_bounds(starts[0][1], budget.later(waited), found, progress)
    except KeyboardInterrupt as stop:
        return found, reason_of(stop)
    return found, ""
