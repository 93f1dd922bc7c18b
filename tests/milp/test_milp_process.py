"""The process of HiGHS: what it writes, when it is stopped, and that it ends with the process that started it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pulp
import pytest
from helpers.cases import serial_order
from helpers.constraint_families import TWO, open_windows

from tightpipe import retime
from tightpipe.base.interruption import INTERRUPTED
from tightpipe.model.metrics import cost
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.solver.milp import milp_method
from tightpipe.solver.milp.milp_method import run_highs
from tightpipe.solver.milp.model import MilpModel
from tightpipe.solver.outcome import FINISHED, End, Ended
from tightpipe.solver.queues import queues_of

BOUND = 'print(json.dumps({"bound": 7.0}), flush=True)'


@pytest.fixture
def model() -> MilpModel:
    """That of an instance whose least cost is 25, with microbatch after microbatch as its start."""
    queues, start = queues_of(TWO.instance), retime(TWO.instance, serial_order(TWO.instance))
    model = MilpModel(queues, open_windows(queues), 0)
    model.set_start(start, cost(start))
    return model


class Watch:
    """Keeps the bounds, and the value of the cost in each solution."""

    def __init__(self, model: MilpModel) -> None:
        self.model, self.bounds, self.costs = model, list[float](), list[float]()

    def bound(self, value: float) -> None:
        self.bounds.append(value)

    def solution(self, value: Callable[[Any], float]) -> None:
        self.costs.append(sum(c * value(v) for v, c in self.model.problem.objective.items()))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """A function that puts a program of its own in place of that of HiGHS; it has made its folder."""

    def put(code: str) -> None:
        folder = tmp_path / "folder"
        folder.mkdir()
        head = (
            f"import json, sys, time\nprint({json.dumps(str(folder))!r}, flush=True)\nsys.stdin.readline()\n"
        )
        (tmp_path / "program.py").write_text(head + code)
        monkeypatch.setattr(milp_method, "_PROGRAM", tmp_path / "program.py")

    return put


def test_a_process_that_fails_is_named_with_its_last_complaint(
    model: MilpModel, stand_in: Callable[[str], None]
) -> None:
    stand_in(f"{BOUND}\nprint('one\\ntwo', file=sys.stderr)\nsys.exit(3)")
    watch = Watch(model)
    assert run_highs(model, UNLIMITED, watch).text == "HiGHS failed: two"
    assert watch.bounds == [7.0]


def test_a_process_that_outlives_its_time_is_killed_and_what_it_found_is_kept(
    model: MilpModel, stand_in: Callable[[str], None]
) -> None:
    stand_in(f"{BOUND}\ntime.sleep(600)")
    watch, begun = Watch(model), time.monotonic()
    assert run_highs(model, UNLIMITED.within(3), watch) == FINISHED
    assert time.monotonic() - begun < 300
    assert watch.bounds == [7.0]


def test_a_process_that_takes_too_much_memory_is_killed(
    model: MilpModel, stand_in: Callable[[str], None]
) -> None:
    stand_in("time.sleep(600)")
    stopped = run_highs(model, Budget(max_memory=0.001), Watch(model))
    assert stopped.text == "the memory cap of 0.001 GB was hit"


def test_ctrl_c_stops_the_process_and_what_it_wrote_is_reported_all_the_same(
    model: MilpModel, stand_in: Callable[[str], None]
) -> None:
    stand_in(f"{BOUND}\n{BOUND}\n{BOUND}\ntime.sleep(600)")
    watch = Watch(model)
    watch.bound = interrupted_once(watch.bounds)  # type: ignore[method-assign]
    assert run_highs(model, UNLIMITED, watch) == Ended(End.STOPPED, INTERRUPTED)
    assert watch.bounds[:3] == [7.0] * 3


def interrupted_once(told: list[float]) -> Callable[[float], None]:
    """A watch of bounds during whose second call Ctrl-C is pressed."""
    presses = iter([False, True])

    def bound(value: float) -> None:
        if next(presses, False):
            time.sleep(1)  # meanwhile the third one is written
            raise KeyboardInterrupt
        told.append(value)

    return bound


def test_the_folder_is_gone_afterwards(
    model: MilpModel, stand_in: Callable[[str], None], tmp_path: Path
) -> None:
    stand_in("assert (sys.path and __import__('os').listdir(sys.argv[0][:-10] + 'folder')) == ['model.mps']")
    assert "status 0" in run_highs(model, UNLIMITED, Watch(model)).text
    assert not (tmp_path / "folder").exists()


def test_highs_tells_its_bounds_and_its_solutions(model: MilpModel) -> None:
    watch = Watch(model)
    assert run_highs(model, UNLIMITED, watch) == FINISHED
    assert watch.costs[-1] == pytest.approx(TWO.optimum)
    assert TWO.optimum - 1 < watch.bounds[-1] <= TWO.optimum + 1e-6


def test_highs_says_why_a_model_has_no_solution(model: MilpModel) -> None:
    model.problem += pulp.lpSum(model.problem.objective) <= TWO.optimum - 1
    watch = Watch(model)
    assert run_highs(model, UNLIMITED, watch).text.startswith("HiGHS failed: Infeasible")
    assert watch.costs == []


@pytest.fixture
def program() -> Iterator[Any]:
    """The program of HiGHS, which waits for a model."""
    spec = find_spec("tightpipe.solver.milp.highs_program")
    assert spec is not None
    command = [sys.executable, str(spec.origin)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def lines_of_highs(program: Any, options: dict[str, Any]) -> list[dict[str, Any]]:
    """What the program writes about: least 3 x + 2 y with x + y at least 3.5, where y is at most 2."""
    folder = Path(json.loads(program.stdout.readline()))
    problem = pulp.LpProblem("small", pulp.LpMinimize)
    x, y = (problem.add_variable(name, 0, most, cat="Integer") for name, most in (("x", 9), ("y", 2)))
    problem += 3 * x + 2 * y
    problem += x + y >= 3.5
    problem.writeMPS(str(folder / "model.mps"))
    program.stdin.write(json.dumps({"start": {"x": 4, "y": 0}, "options": options}) + "\n")
    program.stdin.flush()
    lines = [json.loads(line) for line in program.stdout]
    assert not folder.exists()
    assert program.wait() == 0
    return lines


def test_the_program_of_highs_writes_the_best_solution_its_bound_and_how_it_ended(program: Any) -> None:
    *_, solution, bound, status = lines_of_highs(program, {"mip_rel_gap": 0.0})
    assert solution == {"solution": {"x": 2.0, "y": 2.0}}
    assert bound == {"bound": 10.0}
    assert status == {"status": "Optimal"}


def test_the_program_of_highs_begins_with_the_start_and_keeps_its_options(program: Any) -> None:
    first, *_, status = lines_of_highs(program, {"time_limit": 0.0, "presolve": "off"})
    assert first == {"solution": {"x": 4.0}}
    assert status == {"status": "Time limit reached"}


def test_the_program_of_highs_ends_without_its_folder_when_its_input_closes(program: Any) -> None:
    folder = Path(json.loads(program.stdout.readline()))
    assert folder.is_dir()
    program.stdin.close()
    assert program.wait(timeout=20) == 0
    assert not folder.exists()
