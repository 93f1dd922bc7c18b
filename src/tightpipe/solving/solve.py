"""`tightpipe.solve`: one instance, one method, one result."""

from __future__ import annotations

from dataclasses import replace

from ..core.errors import InputError
from ..core.instance import Instance
from ..core.options import Options, Progress
from ..core.result import LogEntry, Result
from ..core.schedule import Schedule
from .ensure_compiled import ensure_compiled
from .methods import Method, Run, all_methods, find_method
from .own_heuristic import OwnHeuristic, name_of
from .starts import WarmStart


def solve(
    instance: Instance,
    method: str | OwnHeuristic = "best",
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
        One of `methods()`. The usual one, `best`, combines heuristics, bounds, CP-SAT and improvement. Or a
        heuristic of your own: a function that is given the instance and returns an `Order`. Its order
        gets the best start times and is validated, as that of any other heuristic.
    time_limit
        Wall seconds for methods that search; None for no limit, 0 for the warm start alone. They begin
        when the solver is loaded and its inner loops are compiled, which takes minutes once for a user.
    workers
        Threads; None takes the machine's cores.
    seed
        Seed of every random choice.
    warm_start
        For methods that take one: a schedule of the instance, the name of a heuristic, a function as for
        `method`, "best" for the best of all heuristics that fit, or None for none.
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
        If the method is unknown or does not fit the placement, or an option is out of range; or if a
        function of your own returns no order, or one that breaks a rule, which the message names.
    """
    options = Options(time_limit, workers, seed, backend, max_memory)
    if progress is not None:
        options = replace(options, progress=progress)
    chosen = find_method(method)
    run = _fitting_run(instance, chosen, backend, warm_start)
    if display:
        run = _displayed(run, chosen.name)
    return run(instance, options, warm_start)


def _fitting_run(instance: Instance, chosen: Method, backend: str | None, warm_start: WarmStart) -> Run:
    """Load the method, and what is compiled, where the instance and these options go with it."""
    _refuse_contradictions(chosen, backend, warm_start)
    if instance.placement.name not in chosen.placements:
        rule = f"schedules placement {', '.join(chosen.placements)}, not {instance.placement.name}"
        fitting = [m.name for m in all_methods().values() if instance.placement.name in m.placements]
        raise InputError(f"{rule}; methods that do: {', '.join(fitting)}", key="method", value=chosen.name)
    run = chosen.load()
    ensure_compiled()
    return run


def _displayed(run: Run, method: str) -> Run:
    """Return the run with a progress bar on stderr beside whoever else is told about progress."""
    from ..terminal.progress_bar import progress_bar  # takes longer to load than what runs without it

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
        rule = f"goes with methods that search, not with {method.name}"
        raise InputError(rule, key="warm_start", value=_shown(warm_start))


def _shown(warm_start: WarmStart) -> object:
    if isinstance(warm_start, Schedule):
        return "a schedule"
    return warm_start if warm_start is None or isinstance(warm_start, str) else name_of(warm_start)
