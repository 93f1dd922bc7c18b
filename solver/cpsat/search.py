"""Run CP-SAT on a model: limits, progress, interruption, and what came out, checked.

Threads race: each searches the whole model alone with a seed of its own, and the first to come to an end
stops the others. The time of one search varies by factors, and CP-SAT's own second worker (presolved
models, linear programs, neighbourhoods) slows down the first one by more than it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from math import ceil, inf
from threading import Lock
from typing import Any, Protocol

from ortools.sat.python import cp_model

from tightpipe.core.budget import Budget
from tightpipe.core.instance import Instance
from tightpipe.core.interruption import reason_of, was_stopped
from tightpipe.core.metrics import cost
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Order, Schedule
from tightpipe.core.validate import validate

from ..memory import MemoryCap

Report = Callable[[int | None, int | None], None]
_WITH_PRECEDENCES = 6.0  # times as much deterministic time goes by in a second with them
_PROBING = 0.03  # deterministic time at some restarts; CP-SAT's own is 1
_LOOK = 0.1  # seconds between two looks at the memory that is taken


class SearchModel(Protocol):
    """A CP-SAT model whose solutions are read from start times."""

    instance: Instance
    model: cp_model.CpModel
    horizon: int  # the largest cost that the model allows: nothing is proven beyond it
    with_precedences: bool  # whether no-overlap takes all that must precede an operation together

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
        A proven bound of the cost, at most one tick above what the model allows; None for a model that
        does not minimise and is not refuted.
    exhausted
        Whether the search space was searched to the end: the schedule is optimal, or there is none.
    reason
        Why it ended early; empty when it did not, or when time was up.
    """

    schedule: Schedule | None
    bound: int | None
    exhausted: bool
    reason: str = ""


class _Watch(cp_model.CpSolverSolutionCallback):
    """Tells of costs and bounds while CP-SAT searches.

    What CP-SAT proves holds below a ceiling: the cost of its last solution, or one tick more than the model
    allows. Beyond that its bounds mean nothing.
    """

    def __init__(self, report: Report, enough: int, horizon: int) -> None:
        super().__init__()
        self._report, self._enough = report, enough
        self._ceiling = horizon + 1
        self.stopped = False

    def proven(self, bound: float) -> int:
        """Return what a bound of CP-SAT's objective proves about the cost."""
        return min(ceil(bound - 1e-6), self._ceiling)

    def on_bound(self, bound: float) -> None:
        """Take a better bound of CP-SAT's."""
        self._report(None, self.proven(bound))

    def on_solution_callback(self) -> None:
        found = self._ceiling = round(self.objective_value)
        self._report(found, self.proven(self.best_objective_bound))
        if found <= self._enough:
            self.stopped = True
            self.stop_search()


class _Racer:
    """One search of the model, alone.

    Parameters
    ----------
    model
        What to solve.
    budget
        Its seed is that of this search.
    effort, report, enough
        As in `search`.
    """

    def __init__(
        self, model: SearchModel, budget: Budget, effort: float, report: Report, enough: int
    ) -> None:
        self._model = model
        self._solver = cp_model.CpSolver()
        parameters = self._solver.parameters
        parameters.max_time_in_seconds = budget.seconds_for_solver
        if model.with_precedences:
            effort *= _WITH_PRECEDENCES
        parameters.max_deterministic_time = effort
        parameters.num_workers = 1
        parameters.random_seed = budget.seed
        # CP-SAT's own handler does not tell that it was called and leaves Python's uninstalled
        parameters.catch_sigint_signal = False
        # presolve fixes next to nothing that the windows have not, and its model is searched no faster;
        # probing, before the search and at restarts, took nine tenths of the time of small proofs;
        # no row of the LP is ever tight
        parameters.cp_model_presolve = False
        parameters.cp_model_probing_level = 0
        parameters.inprocessing_probing_dtime = _PROBING
        parameters.linearization_level = 0
        parameters.symmetry_level = 0
        parameters.use_precedences_in_disjunctive_constraint = model.with_precedences
        self._watch = _Watch(report, enough, model.horizon) if model.model.has_objective() else None
        if self._watch is not None:
            self._solver.best_bound_callback = self._watch.on_bound

    def run(self) -> Found:
        """Search to the end or to a limit."""
        status = self._solver.solve(self._model.model, self._watch)
        if status == cp_model.MODEL_INVALID:
            why = self._model.model.validate()[:200]
            return Found(None, None, False, f"CP-SAT calls the model invalid: {why}")
        found, problem = None, ""
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            found, problem = _checked(self._model, [self._solver.value(var) for var in self._model.start])
        exhausted = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE) and not problem
        return Found(found, self._bound(status), exhausted, problem)

    def _bound(self, status: Any) -> int | None:
        if status == cp_model.INFEASIBLE:
            return self._model.horizon + 1
        return None if self._watch is None else self._watch.proven(self._solver.best_objective_bound)

    def has_won(self, found: Found) -> bool:
        """Whether the others need not go on: all is searched, a schedule good enough, or a failure."""
        enough = self._watch is not None and self._watch.stopped
        return found.exhausted or enough or bool(found.reason)

    def stop(self) -> None:
        """End the run; one that has only just begun misses the call."""
        self._solver.stop_search()


def search(
    model: SearchModel,
    budget: Budget,
    report: Report,
    *,
    enough: int = 0,
    effort: float = inf,
) -> Found:
    """Run CP-SAT until the deadline; a signal and the memory cap end the run early.

    Parameters
    ----------
    model
        What to solve.
    budget
        Each thread has a seed of its own, from that of the budget on.
    report
        Called with each new incumbent cost and bound (None for what is not known), one call at a time.
    enough
        End the run as soon as a schedule costs no more than this.
    effort
        End each thread's run after this much of CP-SAT's deterministic time, which unlike seconds is the
        same in every run; a tenth is about three seconds (with precedences it is made longer for that).
    """
    lock = Lock()

    def one_at_a_time(upper: int | None, lower: int | None) -> None:
        with lock:
            report(upper, lower)

    racers = [_Racer(model, budget.reseeded(k), effort, one_at_a_time, enough) for k in range(budget.threads)]
    answers, stopped = _race(racers, MemoryCap(budget.max_memory))
    return _together(answers, stopped)


def _together(answers: list[Found], stopped: str) -> Found:
    """Return what the racers know together, and why they were stopped.

    A signal is told whatever they know: it ends all work, not this search alone.
    """
    schedules = [answer.schedule for answer in answers if answer.schedule is not None]
    bounds = [answer.bound for answer in answers if answer.bound is not None]
    reason = next((answer.reason for answer in answers if answer.reason), "")
    exhausted = any(answer.exhausted for answer in answers)
    return Found(
        min(schedules, key=cost, default=None),
        max(bounds, default=None),
        exhausted,
        stopped if was_stopped(stopped) or (stopped and not exhausted) else reason,
    )


def _checked(model: SearchModel, start: list[int]) -> tuple[Schedule | None, str]:
    """Return the re-timed schedule, or why it is none."""
    schedule = retime(model.instance, model.order(start))
    violations = validate(model.instance, schedule)
    if violations:
        return None, f"CP-SAT returned an invalid schedule: {violations[0]}"
    return schedule, ""


def _race(racers: list[_Racer], cap: MemoryCap) -> tuple[list[Found], str]:
    """Return all answers, and why the race was stopped: by a signal, by the memory cap, or not (empty).

    The runs have threads of their own, while this one waits and can be interrupted.
    """
    with ThreadPoolExecutor(len(racers)) as pool:
        runs = {pool.submit(racer.run): racer for racer in racers}
        try:
            stopped = _wait(runs, cap)
        except KeyboardInterrupt as stop:
            stopped = reason_of(stop)
        finally:
            _stop(runs)
        return [run.result() for run in runs], stopped


def _stop(runs: Mapping[Future[Found], _Racer]) -> None:
    """End the runs that still search."""
    while unfinished := [run for run in runs if not run.done()]:
        for run in unfinished:
            runs[run].stop()
        wait(unfinished, timeout=0.05)


def _wait(runs: Mapping[Future[Found], _Racer], cap: MemoryCap) -> str:
    """Wait until one has won, all have ended or the cap is hit; return why they have to be stopped, or ""."""
    running = set(runs)
    while running:
        done, running = wait(running, timeout=_LOOK, return_when=FIRST_COMPLETED)
        if any(runs[run].has_won(run.result()) for run in done):
            return ""
        if cap.hit():
            return cap.reason
    return ""
