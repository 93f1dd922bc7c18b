"""Run CP-SAT on a model: limits, progress, interruption, and what came out, checked."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from ortools.sat.python import cp_model

from tightpipe.instance import Instance
from tightpipe.options import Options
from tightpipe.retime import retime
from tightpipe.schedule import Order, Schedule
from tightpipe.validate import validate

Report = Callable[[int | None, int | None], None]
LONGEST = 1e8  # seconds; stands for no time limit


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
    def __init__(self, report: Report) -> None:
        super().__init__()
        self._report = report

    def on_solution_callback(self) -> None:
        self._report(round(self.objective_value), ceil(self.best_objective_bound - 1e-6))


def search(model: SearchModel, options: Options, seconds: float, report: Report) -> Found:
    """Run CP-SAT for at most `seconds`; Ctrl-C ends the run early.

    Parameters
    ----------
    model
        What to solve.
    options
        Threads and seed.
    seconds
        Wall time for presolve and search.
    report
        Called with each new incumbent cost and bound (None for what is not known).
    """
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = min(seconds, LONGEST)
    solver.parameters.num_workers = options.threads
    solver.parameters.random_seed = options.seed
    minimise = model.model.has_objective()
    if minimise:
        solver.best_bound_callback = lambda bound: report(None, ceil(bound - 1e-6))
    with _own_interrupt_handler():
        status = solver.solve(model.model, _OnSolution(report) if minimise else None)
    if status == cp_model.MODEL_INVALID:
        return Found(None, None, False, f"CP-SAT calls the model invalid: {model.model.validate()[:200]}")
    found, problem = None, ""
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        found, problem = _checked(model, [solver.value(var) for var in model.start])
    exhausted = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE) and not problem
    if not exhausted and not problem and solver.wall_time < seconds - 0.5:
        problem = "interrupted"
    bound = ceil(solver.best_objective_bound - 1e-6) if minimise and status != cp_model.INFEASIBLE else None
    return Found(found, bound, exhausted, problem)


def _checked(model: SearchModel, start: list[int]) -> tuple[Schedule | None, str]:
    """Return the re-timed schedule, or why it is none."""
    schedule = retime(model.instance, model.order(start))
    violations = validate(model.instance, schedule)
    if violations:
        return None, f"CP-SAT returned an invalid schedule: {violations[0]}"
    return schedule, ""


@contextmanager
def _own_interrupt_handler() -> Iterator[None]:
    """Put Python's SIGINT handler back: CP-SAT installs its own and leaves the default one behind."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # fails outside the main thread and for a handler from outside Python: nothing to put back then
        with suppress(ValueError, TypeError):
            signal.signal(signal.SIGINT, handler)
