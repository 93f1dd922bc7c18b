"""Run CP-SAT on a model: limits, progress, interruption, and what came out, checked."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from math import ceil, inf
from typing import Any, Protocol

from ortools.sat.python import cp_model, cp_model_helper

from tightpipe.instance import Instance
from tightpipe.options import Options
from tightpipe.result import INTERRUPTED
from tightpipe.retime import retime
from tightpipe.schedule import Order, Schedule
from tightpipe.validate import validate

from ..clock import LONGEST
from ..memory import MemoryCap

Report = Callable[[int | None, int | None], None]
_LOOK = 0.1  # seconds between two looks at the memory that is taken


class SearchModel(Protocol):
    """A CP-SAT model whose solutions are read from start times."""

    instance: Instance
    model: cp_model.CpModel

    @property
    def start(self) -> list[cp_model.IntVar]:
        """Start times, in the sequence that `order` takes."""

    def order(self, start: list[int]) -> Order:
        """Return the order of a solution."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Parameters
    ----------
    schedule
        A valid schedule, or None.
    bound
        A proven bound of the cost, or None.
    exhausted
        Whether the search space was searched to the end: the schedule is optimal, or there is none.
    reason
        Why it ended early; empty when it did not, or when time was up.
    """

    schedule: Schedule | None
    bound: int | None
    exhausted: bool
    reason: str = ""


class _OnSolution(cp_model.CpSolverSolutionCallback):
    def __init__(self, report: Report, enough: int) -> None:
        super().__init__()
        self._report, self._enough = report, enough
        self.stopped = False

    def on_solution_callback(self) -> None:
        cost = round(self.objective_value)
        self._report(cost, ceil(self.best_objective_bound - 1e-6))
        if cost <= self._enough:
            self.stopped = True
            self.stop_search()


def search(
    model: SearchModel,
    options: Options,
    seconds: float,
    report: Report,
    *,
    enough: int = 0,
    effort: float = inf,
) -> Found:
    """Run CP-SAT for at most `seconds`; Ctrl-C and the memory cap end the run early.

    Parameters
    ----------
    model
        What to solve.
    options
        Threads, seed, memory cap.
    seconds
        Wall time for presolve and search.
    report
        Called with each new incumbent cost and bound (None for what is not known).
    enough
        End the run as soon as a schedule costs no more than this.
    effort
        End the run after this much of CP-SAT's deterministic time, which unlike seconds is the same in
        every run; about three seconds each.
    """
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = min(seconds, LONGEST)
    solver.parameters.max_deterministic_time = min(effort, LONGEST)
    solver.parameters.num_workers = options.threads
    _skip_what_does_not_pay(solver)
    solver.parameters.random_seed = options.seed
    minimise = model.model.has_objective()
    if minimise:
        solver.best_bound_callback = lambda bound: report(None, ceil(bound - 1e-6))
    watch = _OnSolution(report, enough)
    cap = MemoryCap(options.max_memory)
    status, stopped = _solve(solver, model.model, watch if minimise else None, cap)
    if status == cp_model.MODEL_INVALID:
        return Found(None, None, False, f"CP-SAT calls the model invalid: {model.model.validate()[:200]}")
    found, problem = None, ""
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found, problem = _checked(model, [solver.value(var) for var in model.start])
    exhausted = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE) and not problem
    if stopped and not exhausted:
        problem = stopped
    bound = ceil(solver.best_objective_bound - 1e-6) if minimise and status != cp_model.INFEASIBLE else None
    return Found(found, bound, exhausted, problem)


def _skip_what_does_not_pay(solver: cp_model.CpSolver) -> None:
    """Leave out probing, the LP and symmetries: they cost more than the whole search at 8 x 24.

    Probing takes a minute and fixes 3 % of the orders; no row of the LP is ever tight.
    """
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.linearization_level = 0
    solver.parameters.symmetry_level = 0


def _checked(model: SearchModel, start: list[int]) -> tuple[Schedule | None, str]:
    """Return the re-timed schedule, or why it is none."""
    schedule = retime(model.instance, model.order(start))
    violations = validate(model.instance, schedule)
    if violations:
        return None, f"CP-SAT returned an invalid schedule: {violations[0]}"
    return schedule, ""


def _solve(
    solver: cp_model.CpSolver, model: cp_model.CpModel, callback: _OnSolution | None, cap: MemoryCap
) -> tuple[cp_model_helper.CpSolverStatus, str]:
    """Return the status, and why the run was stopped: by Ctrl-C, by the memory cap, or not (empty).

    CP-SAT's own SIGINT handler does not tell that it was called and leaves Python's uninstalled. The
    run therefore has a thread of its own, while this one waits and can be interrupted.
    """
    solver.parameters.catch_sigint_signal = False
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(solver.solve, model, callback)
        try:
            stopped = _wait(run, cap)
        except KeyboardInterrupt:
            stopped = INTERRUPTED
        while not run.done():  # a run that has only just begun would miss the first call
            solver.stop_search()
            wait([run], timeout=0.05)
        return run.result(), stopped


def _wait(run: Future[Any], cap: MemoryCap) -> str:
    """Wait for the end of the run, or until the cap is hit; return why it has to be stopped, else ""."""
    while not wait([run], timeout=_LOOK).done:
        if cap.hit():
            return cap.reason
    return ""
