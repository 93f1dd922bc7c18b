"""Programs that run a solver: what they write, when they are stopped, and that they end with who started them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from signal import SIGINT
from typing import Any

import psutil
import pulp
import pytest
from cases import serial_order
from constraint_families import TWO, open_windows

from tightpipe import retime
from tightpipe.core.budget import UNLIMITED, Budget
from tightpipe.core.interruption import INTERRUPTED
from tightpipe.core.metrics import cost
from tightpipe.solver.milp import supervisor_program
from tightpipe.solver.milp.highs import run_highs
from tightpipe.solver.milp.model import MilpModel
from tightpipe.solver.milp.process import OUT_OF_TIME, ModelFiles, run_process
from tightpipe.solver.milp.supervisor import Supervisor
from tightpipe.solver.queues import queues_of

SLEEP = ["sleep", "60"]
TALK = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"]
"""May be interrupted only once it has begun: SIGINT ends a Python that is still starting with exit status 1."""


@pytest.fixture
def model() -> MilpModel:
    """That of an instance whose least cost is 25, with microbatch after microbatch as its start."""
    queues, start = queues_of(TWO.instance), retime(TWO.instance, serial_order(TWO.instance))
    model = MilpModel(queues, open_windows(queues), 0)
    model.set_start(start, cost(start))
    return model


class Run:
    """A command that is run to its end or until it is stopped, and what it had written at each look."""

    def __init__(self, model: MilpModel, command: list[str], budget: Budget, interrupt_at: str = "") -> None:
        with Supervisor() as supervisor:
            self.files = ModelFiles(model, supervisor.folder)
            self.interrupt_at, self.seen = interrupt_at, list[str]()
            self.code, self.stopped = run_process(command, supervisor, self.files, budget, self.look)
            self.last_line = self.files.last_line()

    def look(self) -> None:
        self.seen.append(self.files.log.read_text())
        if self.interrupt_at and self.interrupt_at == self.seen[-1]:
            self.interrupt_at = ""
            raise KeyboardInterrupt


def test_a_process_that_ends_has_its_exit_status_and_all_that_it_wrote(model: MilpModel) -> None:
    code = "import sys; print('one\\ntwo'); print('trouble', file=sys.stderr); sys.exit(3)"
    run = Run(model, [sys.executable, "-c", code], UNLIMITED)
    assert (run.code, run.stopped) == (3, "")
    assert run.seen[-1] == "one\ntwo\n"
    assert run.last_line == "trouble"


def test_without_a_complaint_the_last_line_is_that_of_the_log(model: MilpModel) -> None:
    run = Run(model, [sys.executable, "-c", f"print('one'); print('{'x' * 300}')"], UNLIMITED)
    assert run.last_line == "x" * 200


def test_a_process_that_outlives_its_time_is_asked_to_stop(model: MilpModel) -> None:
    run = Run(model, SLEEP, UNLIMITED.within(0.5))
    assert (run.code, run.stopped) == (-SIGINT, OUT_OF_TIME)


def test_a_process_that_takes_too_much_memory_is_asked_to_stop(model: MilpModel) -> None:
    run = Run(model, SLEEP, Budget(max_memory=0.001))
    assert run.stopped == "the memory cap of 0.001 GB was hit"
    assert run.code == -SIGINT


def test_ctrl_c_stops_the_process_and_what_it_wrote_is_read_once_more(model: MilpModel) -> None:
    run = Run(model, TALK, UNLIMITED, interrupt_at="begun\n")
    assert (run.code, run.stopped) == (-SIGINT, INTERRUPTED)
    assert run.seen.count("begun\n") == 2


def test_every_variable_has_a_column_in_the_file(model: MilpModel, tmp_path: Path) -> None:
    files = ModelFiles(model, tmp_path)
    columns = {files.column(variable) for variable in model.problem.variables()}
    assert len(columns) == len(model.problem.variables())
    assert columns <= set(files.mps.read_text().split())


class Program:
    """The program that keeps a folder, and runs a solver when it is asked to by a line of JSON."""

    def __init__(self, scratch: Path) -> None:
        self.output, self.errors = scratch / "output", scratch / "errors"
        command = [sys.executable, str(supervisor_program.__file__)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process: Any = subprocess.Popen(command, **pipes)
        self.folder = Path(self.answer())

    def start(self, command: list[str]) -> None:
        self.ask([command, str(self.output), str(self.errors)])

    def ask(self, request: Any) -> None:
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """Close its input, and wait until it has ended; the solver would sleep for longer."""
        self.process.stdin.close()
        self.process.wait(timeout=20)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Program]:
    program = Program(tmp_path)
    with program.process:
        yield program
        program.process.kill()


def test_the_program_says_which_process_the_solver_is_and_how_it_ended(supervisor: Program) -> None:
    code = "import os, sys; print(os.getpid()); print('trouble', file=sys.stderr); sys.exit(4)"
    supervisor.start([sys.executable, "-c", code])
    pid = supervisor.answer()
    assert supervisor.answer() == 4
    assert supervisor.output.read_text() == f"{pid}\n"
    assert supervisor.errors.read_text() == "trouble\n"


def test_a_further_line_asks_the_solver_to_stop(supervisor: Program) -> None:
    supervisor.start(SLEEP)
    supervisor.answer()
    supervisor.ask("stop")
    assert supervisor.answer() == -SIGINT


def test_the_solver_and_the_folder_are_gone_when_the_pipe_closes(supervisor: Program) -> None:
    supervisor.start(SLEEP)
    solver = psutil.Process(supervisor.answer())
    assert supervisor.folder.is_dir()
    supervisor.close()
    assert psutil.wait_procs([solver], timeout=10)[1] == []
    assert not supervisor.folder.exists()


def test_a_folder_is_gone_when_the_pipe_closes_before_there_is_a_solver(supervisor: Program) -> None:
    assert supervisor.folder.is_dir()
    supervisor.close()
    assert not supervisor.folder.exists()


class Watch:
    """Keeps the last bound, and the value of the cost in the last solution."""

    def __init__(self, model: MilpModel) -> None:
        self.model, self.bounds, self.costs = model, list[float](), list[float]()

    def bound(self, value: float) -> None:
        self.bounds.append(value)

    def solution(self, value: Callable[[Any], float]) -> None:
        self.costs.append(sum(c * value(v) for v, c in self.model.problem.objective.items()))


def test_highs_tells_its_bounds_and_its_solutions(model: MilpModel) -> None:
    watch = Watch(model)
    assert run_highs(model, UNLIMITED, watch) == ""
    assert watch.costs[-1] == pytest.approx(TWO.optimum)
    assert TWO.optimum - 1 < watch.bounds[-1] <= TWO.optimum + 1e-6


def test_highs_says_why_a_model_has_no_solution(model: MilpModel) -> None:
    model.problem += pulp.lpSum(model.problem.objective) <= TWO.optimum - 1
    watch = Watch(model)
    assert run_highs(model, UNLIMITED, watch).startswith("HiGHS ended with Infeasible")
    assert watch.costs == []


def lines_of_highs(folder: Path, options: dict[str, Any]) -> list[dict[str, Any]]:
    """What the program writes about: least 3 x + 2 y with x + y at least 3.5, where y is at most 2."""
    problem = pulp.LpProblem("small", pulp.LpMinimize)
    x, y = (problem.add_variable(name, 0, most, cat="Integer") for name, most in (("x", 9), ("y", 2)))
    problem += 3 * x + 2 * y
    problem += x + y >= 3.5
    problem.writeMPS(str(folder / "model.mps"))
    given = {"start": {"x": 4, "y": 0}, "options": options}
    (folder / "given").write_text(json.dumps(given))
    spec = find_spec("tightpipe.solver.milp.highs_program")
    assert spec is not None
    command = [sys.executable, str(spec.origin), str(folder / "model.mps"), str(folder / "given")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_program_of_highs_writes_the_best_solution_its_bound_and_how_it_ended(tmp_path: Path) -> None:
    *_, solution, bound, status = lines_of_highs(tmp_path, {"mip_rel_gap": 0.0})
    assert solution == {"solution": {"x": 2.0, "y": 2.0}}
    assert bound == {"bound": 10.0}
    assert status == {"status": "Optimal"}


def test_the_program_of_highs_begins_with_the_start_and_keeps_its_options(tmp_path: Path) -> None:
    first, *_, status = lines_of_highs(tmp_path, {"time_limit": 0.0, "presolve": "off"})
    assert first == {"solution": {"x": 4.0}}
    assert status == {"status": "Time limit reached"}
