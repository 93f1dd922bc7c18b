"""Run CP-SAT on a model within limits, report progress, and check the schedule that it returns.

Threads race: each searches the whole model alone with a seed of its own, and the first one that ends its
search stops the others. This pays because the time of a search varies widely with the seed. CP-SAT could run
a second worker of its own, which tries presolved models, linear programs and neighbourhoods. It would slow
down the first worker by more than it gains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from math import ceil, inf
from threading import Lock
from typing import Any, Protocol

from ortools.sat.python import cp_model

from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.schedule import Schedule
from tightpipe.model.validate import validate
from tightpipe.params.budget import Budget
from tightpipe.params.proof import CpsatParams
from tightpipe.params.solve_params import DEFAULTS

from ..outcome import FINISHED, TOO_LARGE, End, Ended, Threads, running, stopped_by
from ..programs import MemoryCap
from ..queues import pairs_of
from ..windows import Windows

# The bytes are resident memory when the search begins, measured with 8 devices and 24 microbatches, and with
# 12 devices and 36 microbatches. Each thread then takes about as much again. The estimates leave this out,
# because the memory cap ends the search if it takes too much.
_BYTES_PER_ORDER = 4500  # for each order boolean of the lattice model
_BYTES_PER_PAIR = 1300  # for each pair of operations of one device in the plain model


def lattice_bytes(windows: Windows) -> int:
    """Return the estimated size of the lattice model of these windows, in bytes."""
    return _BYTES_PER_ORDER * windows.undecided


def lattice_refusal(
    windows: Windows, seconds: float, cap: MemoryCap, params: CpsatParams = DEFAULTS.cpsat
) -> Ended | None:
    """Return the end of a search whose lattice model exceeds the limits; None if it fits them.

    The orders that feasible `windows` leave open determine its size. It has to be built within `seconds`.
    """
    orders = windows.undecided
    if orders > params.most_orders or orders * params.seconds_per_order >= seconds:
        return TOO_LARGE
    return cap.refusal(lattice_bytes(windows))


def plain_bytes(instance: Instance) -> int:
    """Return the estimated size of the plain model of the instance, in bytes."""
    return _BYTES_PER_PAIR * pairs_of(instance)


Report = Callable[[int | None, int | None], None]
SECONDS_OF_EFFORT = 30.0
"""About how many seconds CP-SAT takes per unit of its deterministic time, if `with_precedences` is False."""
_LOOK = 0.1  # seconds between two looks at the memory that the process takes


class SearchModel(Protocol):
    """A CP-SAT model whose solutions are read from some of its variables."""

    instance: Instance
    model: cp_model.CpModel
    horizon: int  # the largest cost, in ticks, that the model allows; nothing is proven beyond it
    with_precedences: bool  # whether CP-SAT's no-overlap reasons about an operation's predecessors together
    presolved: bool  # whether CP-SAT simplifies the model, and solves a linear relaxation, before it searches

    @property
    def decisions(self) -> Sequence[cp_model.LinearExpr]:
        """The variables and literals that say what the order of a solution is."""

    def schedule(self, values: list[int]) -> Schedule:
        """Return the schedule of a solution, given the values of `decisions`."""


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a search.
    The model is `exhausted` if it is solved: the schedule is an optimum, or any solution of a model that does
    not minimise, or it is proven that there is no solution.
    """

    schedule: Schedule | None  #: a valid one
    bound: int | None  #: proven, at most a tick above the horizon; None if only a solution was looked for
    exhausted: bool
    ended: Ended = FINISHED  #: `FINISHED` also if time was up


class _Watch(cp_model.CpSolverSolutionCallback):
    """Reports costs and bounds while CP-SAT searches.

    The bounds of CP-SAT are capped at a ceiling, above which they mean nothing. The ceiling is the cost of
    the last solution of CP-SAT, or one tick more than the horizon before the first solution.
    """

    def __init__(self, report: Report, enough: int, horizon: int) -> None:
        super().__init__()
        self._report, self._enough = report, enough
        self._ceiling = horizon + 1
        self.stopped = False

    def proven(self, bound: float) -> int:
        """Return the bound of the cost, in ticks, that a bound of CP-SAT's objective proves."""
        return min(ceil(bound - 1e-6), self._ceiling)

    def on_bound(self, bound: float) -> None:
        """Report a better bound of CP-SAT's objective."""
        self._report(None, self.proven(bound))

    def on_solution_callback(self) -> None:
        found = self._ceiling = round(self.objective_value)
        self._report(found, self.proven(self.best_objective_bound))
        if found <= self._enough:
            self.stopped = True
            self.stop_search()


def solver_on_one_thread(budget: Budget, effort: float) -> cp_model.CpSolver:
    """Return a solver with the seed and the limits of a budget, and one in CP-SAT's deterministic time."""
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers, parameters.random_seed = 1, budget.seed
    parameters.max_time_in_seconds, parameters.max_deterministic_time = budget.seconds_for_solver, effort
    # CP-SAT's own handler of Ctrl-C does not say that it was called, and removes Python's handler.
    parameters.catch_sigint_signal = False
    return solver


class _Racer:
    """One of the racing searches, each of which searches the whole model with a seed of its own."""

    def __init__(
        self, model: SearchModel, budget: Budget, effort: float, report: Report, enough: int
    ) -> None:
        self._model = model
        if model.with_precedences:
            effort *= budget.params.cpsat.with_precedences
        self._solver = solver_on_one_thread(budget, effort)
        parameters = self._solver.parameters
        # After windows, presolve fixes next to nothing, and does not speed up the search. Probing, before the
        # search and at restarts, took nine tenths of the time of small proofs. No row of the linear
        # relaxation is ever tight. Without windows, as with copies, all three halve the number of conflicts.
        parameters.cp_model_presolve = model.presolved
        parameters.cp_model_probing_level = parameters.linearization_level = int(model.presolved)
        parameters.inprocessing_probing_dtime = budget.params.cpsat.probing
        parameters.symmetry_level = 0
        parameters.use_precedences_in_disjunctive_constraint = model.with_precedences
        self._watch = _Watch(report, enough, model.horizon) if model.model.has_objective() else None
        if self._watch is not None:
            self._solver.best_bound_callback = self._watch.on_bound

    def run(self) -> Found:
        """Search until the search space is exhausted or a limit is reached, and return the outcome."""
        with running("CP-SAT", MemoryError, RuntimeError):
            status = self._solver.solve(self._model.model, self._watch)
        if status == cp_model.MODEL_INVALID:
            why = self._model.model.validate()[:200]
            return Found(None, None, False, Ended(End.FAILED, f"CP-SAT calls the model invalid: {why}"))
        found, ended = None, FINISHED
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            found, ended = _checked(self._model, [self._solver.value(var) for var in self._model.decisions])
        exhausted = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE) and not ended.early
        return Found(found, self._bound(status), exhausted, ended)

    def _bound(self, status: Any) -> int | None:
        if status == cp_model.INFEASIBLE:
            return self._model.horizon + 1
        return None if self._watch is None else self._watch.proven(self._solver.best_objective_bound)

    def has_won(self, found: Found) -> bool:
        """Return whether the others can stop: all is searched, one is good enough, or CP-SAT failed."""
        enough = self._watch is not None and self._watch.stopped
        return found.exhausted or enough or found.ended.early

    def stop(self) -> None:
        self._solver.stop_search()


def search(
    model: SearchModel,
    budget: Budget,
    report: Report,
    *,
    enough: int = 0,
    effort: float = inf,
    moot: Callable[[], bool] = lambda: False,
) -> Found:
    """Run CP-SAT on every thread of the budget until one of them has solved the model.

    The deadline, a signal or the memory cap end the run early. The result combines what all threads found,
    each with a seed of its own, counted up from the budget's.

    - `report`: called after each improvement with cost and bound in ticks, None if unknown, one call at a
      time.
    - `enough`: a cost in ticks; the run ends as soon as a schedule costs no more.
    - `effort`: the limit of each thread in CP-SAT's deterministic time, which unlike seconds is the same in
      every run. An effort of 0.1 is about three seconds; for models with reasoning about precedences, where
      that time runs faster, it is multiplied to stay so.
    - `moot`: called several times a second; the run ends when it returns True, as the answer is of no use
      then.
    """
    lock = Lock()

    def one_at_a_time(upper: int | None, lower: int | None) -> None:
        with lock:
            report(upper, lower)

    racers = [_Racer(model, budget.reseeded(k), effort, one_at_a_time, enough) for k in range(budget.threads)]
    answers, stopped = _race(racers, MemoryCap(budget.max_memory), lambda: moot() or budget.left <= 0)
    return _together(answers, stopped)


def _together(answers: list[Found], stopped: Ended) -> Found:
    """Return the racers' outcomes as one; a signal ends all work, even if one exhausted the search space."""
    schedules = [answer.schedule for answer in answers if answer.schedule is not None]
    bounds = [answer.bound for answer in answers if answer.bound is not None]
    ended = next((answer.ended for answer in answers if answer.ended.early), FINISHED)
    exhausted = any(answer.exhausted for answer in answers)
    return Found(
        min(schedules, key=cost, default=None),
        max(bounds, default=None),
        exhausted,
        stopped if stopped.stopped or (stopped.early and not exhausted) else ended,
    )


def _checked(model: SearchModel, values: list[int]) -> tuple[Schedule | None, Ended]:
    """Return the schedule of a solution with the best times for its order, or None if it is invalid."""
    schedule = model.schedule(values)
    violations = validate(model.instance, schedule)
    if violations:
        return None, Ended(End.FAILED, f"CP-SAT returned an invalid schedule: {violations[0]}")
    return schedule, FINISHED


def _race(racers: list[_Racer], cap: MemoryCap, over: Callable[[], bool]) -> tuple[list[Found], Ended]:
    """Return the outcomes of all racers, and the end of the race: early after a signal or at the memory cap.

    The racers run in threads of their own, while this thread waits, until `over`, and can be interrupted.
    """
    with Threads(len(racers)) as pool:
        runs: dict[Future[Found], _Racer] = {}
        try:
            runs |= ((pool.submit(racer.run), racer) for racer in racers)
            stopped = _wait(runs, cap, over)
        except KeyboardInterrupt as stop:
            stopped = stopped_by(stop)
        finally:
            stop_all({run: racer.stop for run, racer in runs.items()})
        return [run.result() for run in runs], stopped


def stop_all(runs: Mapping[Future[Any], Callable[[], None]]) -> None:
    """Ask runs to end, each by its call, until all have: one that has only just begun misses a call."""
    while unfinished := [run for run in runs if not run.done()]:
        for run in unfinished:
            runs[run]()
        wait(unfinished, timeout=0.05)


def _wait(runs: Mapping[Future[Found], _Racer], cap: MemoryCap, over: Callable[[], bool]) -> Ended:
    """Wait until a racer has won, all runs have ended, `over` returns True, or the memory cap is hit."""
    running = set(runs)
    while running:
        done, running = wait(running, timeout=_LOOK, return_when=FIRST_COMPLETED)
        if any(runs[run].has_won(run.result()) for run in done):
            return FINISHED
        if cap.hit():
            return cap.end
        if over():
            return FINISHED
    return FINISHED
