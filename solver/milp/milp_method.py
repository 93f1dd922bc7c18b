"""The method ``milp``: prove or improve a schedule with a mixed-integer solver.

HiGHS solves a model in a process of its own, which runs the program `highs_program`. There are two reasons
for a process. A solver that is killed or crashes then does not end this process. And OR-Tools and highspy
contain two versions of HiGHS under one name; one process cannot load both.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil, isfinite
from pathlib import Path
from shutil import rmtree
from time import perf_counter

import pulp

from tightpipe.base.child import Child
from tightpipe.base.errors import DeadlockError, InputError
from tightpipe.model.graph import graph_of
from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.result import Progress, Proof, Result, ignore
from tightpipe.model.schedule import Schedule
from tightpipe.model.simulate import retime
from tightpipe.model.validate import validate
from tightpipe.params.budget import Budget

from ..engine.run import Incumbent, in_queue_order, run
from ..outcome import FINISHED, TOO_LARGE, End, Ended, running, stopped_by
from ..programs import MemoryCap
from ..queues import Queues, Rule, queues_of, refuse_unmodelled
from ..windows import Windows, shaved_windows, windows_of_edges
from .model import MilpModel, Value

_KILOBYTES = 28.0  # of a binary (measured: 9 in PuLP, and 19 in HiGHS at the root of its search), or an item
_PROGRAM = Path(__file__).with_name("highs_program.py")
_OBJECTIVE_GAP = 0.9  # costs are integers, so a cost is optimal if a bound is less than 1 tick below it
_LOOK = 0.2  # seconds between two looks at the memory of the process
_LATE = 1.0  # seconds beyond its time limit after which the process is killed


def megabytes_of(binaries: int, items: int) -> int:
    """Return the memory that a model takes in PuLP and at the root of the search, in 2**20 bytes."""
    return round((binaries + items) * _KILOBYTES / 1024)


def refuse_if_too_large(binaries: int, items: int, most: int) -> None:
    """Raise an InputError if a model would take more than `most` times 2**20 bytes."""
    if (megabytes := megabytes_of(binaries, items)) > most:
        rule = f"{binaries} order binaries and {items} start times take about {megabytes} MB"
        raise InputError(f"too large for milp: {rule}; the cap is {most} MB", key="instance")


def refuse_busy_links(instance: Instance) -> None:
    """Raise an InputError if a message may have to wait for its link, which the model leaves out."""
    if arrays_of(instance).links:
        rule = "milp does not model messages that wait for their link; leave it out, or use cpsat"
        raise InputError(rule, key="link_occupancy", value=instance.costs.link_occupancy)


def solve_milp(
    instance: Instance,
    budget: Budget,
    warm_start: Schedule | None = None,
    progress: Progress = ignore,
) -> Result:
    """Search for the cheapest schedule with HiGHS, and prove a bound of the cost.

    Parameters
    ----------
    instance, budget, warm_start, progress
        As for `tightpipe.solver.best.solve_best`. The lower the cost of the warm start, the smaller are the
        big-M's.

    Raises
    ------
    InputError
        If the instance has offload or empty stages, is too large or messages may have to wait for their
        links, or the warm start is not a valid schedule of the instance. For a large instance the message
        has an estimate of the model's size.
    """
    refuse_unmodelled("milp", instance, *(set(Rule) - {Rule.OFFLOAD, Rule.EMPTY}))
    refuse_busy_links(instance)

    def work(incumbent: Incumbent) -> Ended:
        with running("HiGHS", OSError, pulp.PulpError):
            return _build_and_solve(instance, budget, incumbent)

    return run("milp", instance, budget, warm_start, progress, work)


def _build_and_solve(instance: Instance, budget: Budget, incumbent: Incumbent) -> Ended:
    params = budget.params.milp
    queues = queues_of(instance, pooled=not graph_of(instance).joint)
    incumbent.offer(in_queue_order(incumbent.schedule))
    windows = _windows(queues, budget, incumbent.cost)
    binaries = windows.undecided * (1 if queues.pooled else 2)  # pairs, and memory of void W's
    items = len(queues.arrays.queue)
    refuse_if_too_large(binaries, items, params.most_megabytes)
    if binaries * params.seconds_per_binary > budget.left * params.share:
        return TOO_LARGE
    if refusal := MemoryCap(budget.max_memory).refusal(megabytes_of(binaries, items) * 2**20):
        return refusal
    model = MilpModel(queues, windows, incumbent.bound)
    model.set_start(in_queue_order(incumbent.schedule), incumbent.cost)
    if budget.left <= 0:
        return FINISHED
    watch = Watch(model, incumbent)
    ended = run_highs(model, budget, watch)
    return ended if ended.early else watch.ended


def _windows(queues: Queues, budget: Budget, horizon: int) -> Windows:
    """Return windows for a horizon; where there are joint operations, only what edges alone say.

    The rules of windows place the items of a joint operation by their cut times, and this model does not.
    """
    if not queues.pooled:
        return windows_of_edges(queues, horizon)
    part = budget.part(budget.params.milp.share).within(budget.params.milp.windows_seconds)
    return shaved_windows(queues, horizon, part)


class Watch:
    """Validates the schedules of the solutions of HiGHS, and offers them and its bounds to the incumbent."""

    def __init__(self, model: MilpModel, incumbent: Incumbent) -> None:
        self._model, self._incumbent = model, incumbent
        self.ended = FINISHED

    def solution(self, value: Value) -> None:
        """Offer the schedule of a solution to the incumbent."""
        instance = self._model.instance
        try:
            schedule = retime(instance, self._model.order(value))
        except (DeadlockError, LookupError) as error:  # a LookupError means that a W comes before its B
            self.ended = Ended(End.FAILED, f"HiGHS returned an order that deadlocks: {error}")
            return
        violations = validate(instance, schedule)
        if violations:
            self.ended = Ended(End.FAILED, f"HiGHS returned an invalid schedule: {violations[0]}")
        else:
            self._incumbent.offer(schedule)

    def bound(self, value: float) -> None:
        """Give the incumbent the bound that follows from a dual bound of the cost."""
        self._incumbent.prove(proven_cost(value), Proof.MILP)


def proven_cost(dual_bound: float) -> int | None:
    """Return the least integer cost that a dual bound of HiGHS allows; None if that bound is not finite.

    HiGHS works in floating point, with feasibility tolerances of about 1e-6 of the numbers in the model.
    Those numbers are at most about as large as the cost. So 1e-6 of the bound, and at least 1e-4, is taken
    off before the bound is rounded up.
    """
    if not isfinite(dual_bound):
        return None
    return ceil(dual_bound - max(1e-4, 1e-6 * abs(dual_bound)))


def run_highs(model: MilpModel, budget: Budget, watch: Watch) -> Ended:
    """Solve a model from its starting solution, and return how HiGHS ended.

    The result is `FINISHED` if the model was solved or time was up. HiGHS is given the deadline, the threads
    and the seed of the budget; the memory cap is enforced here.
    """
    with _highs() as (process, folder):
        search = _Search(model, budget, watch, process, folder)
        try:
            stopped = search.run()
        except KeyboardInterrupt as stop:
            stopped = stopped_by(stop)
        in_time = process.ended
        process.kill()
        search.read_rest()
        if stopped.early or not in_time or search.status in ("Optimal", "Time limit reached"):
            return stopped
        return Ended(End.FAILED, f"HiGHS failed: {search.status or process.fault()}")


@contextmanager
def _highs() -> Iterator[tuple[Child, Path]]:
    """Run `highs_program`; yield its process, and the folder that it has made for the file of the model.

    Raise an OSError if the program ends before.
    """
    with Child("-P", str(_PROGRAM)) as process:
        told: list[bytes] = []
        while not (told or process.ended):
            told = process.lines(_LOOK)
        if not told:
            raise OSError(process.fault())
        folder = Path(json.loads(told[0]))
        try:
            yield process, folder
        finally:
            process.kill()
            rmtree(folder, ignore_errors=True)  # the program removes it unless it was killed before


class _Search:
    """The search of one process."""

    def __init__(self, model: MilpModel, budget: Budget, watch: Watch, process: Child, folder: Path) -> None:
        self._budget, self._watch, self._process = budget, watch, process
        self._lines: deque[bytes] = deque()
        self.status = ""  # how HiGHS says that it has ended, once it has said so
        _, columns, *_ = model.problem.writeMPS(str(folder / "model.mps"), rename=1)
        self._columns: dict[str, str] = columns  # the names of the columns, by those of the variables
        request = {
            "start": {columns[v.name]: v.varValue for v in model.problem.variables()},
            "options": {
                "time_limit": budget.seconds_for_solver,
                "threads": budget.threads,
                "random_seed": budget.seed,
                "mip_rel_gap": 0.0,
                "mip_abs_gap": _OBJECTIVE_GAP,
            },
        }
        process.tell(json.dumps(request))

    def run(self) -> Ended:
        """Report what HiGHS finds until it ends or hits a limit, and return how the search ended."""
        cap = MemoryCap(self._budget.max_memory)
        while not self._process.ended and self._budget.left > 0:
            self._report(min(_LOOK, self._budget.left))
            if cap.hit(self._process):
                return cap.end
        latest = perf_counter() + _LATE
        while not self._process.ended and (left := latest - perf_counter()) > 0:
            self._report(left)
        return FINISHED

    def read_rest(self) -> None:
        """Report what the process, which has ended, had found before."""
        while self._lines or not self._process.ended:
            self._report(0)

    def _report(self, seconds: float) -> None:
        """Wait at most `seconds` seconds for news of the process, and report them to the watch."""
        self._lines.extend(self._process.lines(seconds))
        while self._lines:  # Ctrl-C may come here: a line that was not reported stays for the next call
            self._take(**json.loads(self._lines[0]))
            self._lines.popleft()

    def _take(
        self, bound: float | None = None, solution: dict[str, float] | None = None, status: str = ""
    ) -> None:
        self.status = status or self.status
        if bound is not None:
            self._watch.bound(bound)
        if solution is not None:
            self._watch.solution(lambda variable: solution.get(self._columns[variable.name], 0.0))
