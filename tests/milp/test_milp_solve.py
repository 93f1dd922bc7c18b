"""What solve_milp promises besides optima: limits, refusals, interruption, honesty."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from experiments.sweeps import wait_until
from helpers.cases import instances, serial_order
from helpers.exact_cases import plain_memory, table_memory, v_instance
from hypothesis import given, settings

from tightpipe import InputError, Instance, Schedule, Status, retime, validate
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost
from tightpipe.model.result import LogEntry
from tightpipe.params.budget import Budget
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.engine.run import in_queue_order
from tightpipe.solver.milp import milp_method as solve_module
from tightpipe.solver.milp import solve_milp
from tightpipe.solver.milp.milp_method import proven_cost
from tightpipe.solver.milp.model import MilpModel
from tightpipe.solver.outcome import FINISHED, Ended
from tightpipe.solver.programs import MemoryCap
from tightpipe.solver.queues import queues_of
from tightpipe.solver.windows import windows_of

HARD = v_instance(4, 8, (8, 14, 8, 2), plain_memory(16))
EASY = v_instance(2, 4, (10, 12, 8, 1), plain_memory(8))


def _serial(instance: Instance) -> Schedule:
    return retime(instance, serial_order(instance))


def _model(instance: Instance, start: Schedule) -> MilpModel:
    queues = queues_of(instance)
    model = MilpModel(queues, windows_of(queues, cost(start)), 0)
    model.set_start(start, cost(start))
    return model


@settings(max_examples=40, deadline=None)
@given(instances())
def test_a_schedule_is_a_solution_of_its_model(instance: Instance) -> None:
    start = in_queue_order(_serial(instance))
    model = _model(instance, start)
    assert all(v.valid(1e-9) for v in model.problem.variables())
    assert model.problem.valid(1e-9)
    assert model.order(lambda variable: variable.varValue) == start.order


def test_a_schedule_over_the_memory_limit_is_none() -> None:
    start = in_queue_order(_serial(EASY))
    tight = Instance(EASY.placement, EASY.microbatches, EASY.costs, plain_memory(6))
    assert _model(EASY, start).problem.valid(1e-9)
    greedy = in_queue_order(retime(EASY, HEURISTICS["greedy-v"].make(EASY)))
    assert validate(tight, Schedule(tight, greedy.order, greedy.start, greedy.end))
    wide = windows_of(queues_of(EASY), cost(start))  # those of the tight limit leave this schedule out
    model = MilpModel(queues_of(tight), wide, 0)
    model.set_start(in_queue_order(greedy), cost(greedy))
    assert not model.problem.valid(1e-9)


def test_the_time_limit_holds_and_the_warm_start_is_kept() -> None:
    """Nothing but the limit ends this solve, which would take minutes to prove its optimum."""
    seconds = 3
    warm_start = _serial(HARD)
    begun = time.perf_counter()
    result = solve_milp(HARD, Budget(threads=2).within(seconds), warm_start)
    assert time.perf_counter() - begun < seconds + 6
    assert best_bound(HARD).value <= result.bound <= result.cost <= cost(warm_start)
    assert validate(HARD, result.schedule) == []
    assert (result.status, result.reason) == (Status.FEASIBLE, "")


def test_sizes_that_do_not_fit_are_refused_with_an_estimate(monkeypatch: Any) -> None:
    monkeypatch.setattr(solve_module, "MilpModel", None)  # no model is built
    instance = v_instance(16, 48, (9, 9, 6, 1), table_memory(16))
    with pytest.raises(InputError, match=r"order binaries.*start times.*MB; the cap is 4096 MB") as error:
        solve_milp(instance, Budget(threads=2).within(60), _serial(instance))
    assert error.value.key == "instance"


def test_a_model_has_as_many_binaries_as_open_orders_and_a_start_time_for_each_item() -> None:
    queues = queues_of(HARD)
    windows = windows_of(queues, cost(_serial(HARD)))
    problem = MilpModel(queues, windows, 0).problem
    kinds = [variable.cat for variable in problem.variables()]
    assert kinds.count("Integer") == windows.undecided + 1
    assert len(kinds) - kinds.count("Integer") >= len(queues.arrays.queue)


@pytest.mark.parametrize("failure", [OSError("out of memory"), KeyboardInterrupt(), MemoryError()])
def test_a_failure_leaves_the_warm_start(monkeypatch: Any, failure: BaseException) -> None:
    def die(*_: Any) -> str:
        raise failure

    monkeypatch.setattr(solve_module, "run_highs", die)
    warm_start = _serial(HARD)
    result = solve_milp(HARD, Budget(threads=2).within(20), warm_start)
    assert result.status is Status.FEASIBLE
    assert result.cost <= cost(warm_start)
    assert result.reason


@pytest.mark.parametrize("when", ["before it has a folder", "after it has a folder"])
def test_a_process_that_dies_leaves_the_warm_start(monkeypatch: Any, when: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    (tmp_path / "folder").mkdir()
    told = "" if when.startswith("before") else f"print({json.dumps(str(tmp_path / 'folder'))!r}, flush=True)"
    program.write_text(f"import os, signal\n{told}\nos.kill(os.getpid(), signal.SIGKILL)")
    monkeypatch.setattr(solve_module, "_PROGRAM", program)
    result = solve_milp(HARD, Budget(threads=2).within(20), _serial(HARD))
    assert result.status is Status.FEASIBLE
    assert "HiGHS failed: crashed: SIGKILL" in result.reason


def _kill_solver() -> list[psutil.Process]:
    solvers = psutil.Process().children()
    for process in solvers:
        process.kill()
    return solvers


def test_a_process_that_is_killed_in_mid_solve_leaves_the_warm_start(
    monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    running: list[psutil.Process] = []
    monkeypatch.setattr(MemoryCap, "hit", lambda *_: bool(running.extend(_kill_solver())))
    result = solve_milp(HARD, Budget(threads=2).within(60), _serial(HARD))
    assert result.status is Status.FEASIBLE
    assert validate(HARD, result.schedule) == []
    assert "HiGHS failed: crashed: SIGKILL" in result.reason
    assert running
    assert psutil.wait_procs(running, timeout=10)[1] == []
    assert list(tmp_path.iterdir()) == []


def test_what_highs_found_before_it_was_killed_is_kept() -> None:
    instance = v_instance(2, 4, (8, 14, 8, 2), plain_memory(8))
    start = cost(_serial(instance))

    def kill_once_better(entry: LogEntry) -> None:
        if entry.cost is not None and entry.cost < start:
            _kill_solver()

    budget = Budget(threads=2).within(120)
    result = solve_milp(instance, budget, _serial(instance), progress=kill_once_better)
    assert result.cost < start
    assert validate(instance, result.schedule) == []
    assert "HiGHS failed: crashed: SIGKILL" in result.reason


def test_wrong_claims_of_highs_are_not_believed(monkeypatch: Any) -> None:
    def lie(model: Any, budget: Any, watch: Any) -> Ended:
        watch.solution(lambda variable: 0.0)
        return FINISHED

    monkeypatch.setattr(solve_module, "run_highs", lie)
    result = solve_milp(HARD, Budget(threads=2).within(20), _serial(HARD))
    assert result.status is Status.FEASIBLE
    assert result.reason.startswith("HiGHS returned an")


@pytest.mark.parametrize(
    ("dual", "cost"), [(119.2, 120), (120.00001, 120), (119.99999, 120), (120.01, 121), (float("-inf"), None)]
)
def test_dual_bounds_are_rounded_with_a_tolerance(dual: float, cost: int | None) -> None:
    assert proven_cost(dual) == cost


def _wait_for_solver(parent: int) -> list[psutil.Process]:
    """Return the processes that a process has started once one is among them."""
    wait_until(lambda: psutil.Process(parent).children(recursive=True) != [])
    return psutil.Process(parent).children(recursive=True)


ENDED = """
from tightpipe import Instance, Memory
from tightpipe.params.budget import Budget
from tightpipe.solver.programs import MemoryCap
from tightpipe.solver.milp import solve_milp
hard = Instance.uniform(devices=4, microbatches=8, forward=8, backward=14, weight=8, comm=2,
                        memory=Memory(2, -1, -1, 16))
MemoryCap.hit = lambda *_: print("searching", flush=True)
solve_milp(hard, Budget(threads=2).within(300))
"""


@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])  # names: not every system has the first
@pytest.mark.parametrize("seconds", [0, 1.5], ids=["in its first look", "while it solves"])
def test_a_solver_ends_with_its_parent_and_leaves_no_files(name: str, seconds: float, tmp_path: Path) -> None:
    number = signal.Signals[name]
    command, environment = [sys.executable, "-c", ENDED], {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        try:
            assert parent.stdout.readline() == b"searching\n"
            running = psutil.Process(parent.pid).children()
            time.sleep(seconds)
            assert running != []
            assert all(process.is_running() for process in running)
        finally:
            parent.send_signal(number)
    assert parent.returncode == -number
    assert psutil.wait_procs(running, timeout=10)[1] == []  # without its folder
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")
def test_a_folder_goes_with_its_parent_before_there_is_a_model(tmp_path: Path) -> None:
    program = "import time; from tightpipe.solver.milp.milp_method import _highs\n"
    program += "with _highs() as (_, folder): print(folder, flush=True); time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as parent:
        assert parent.stdout is not None
        folder = Path(parent.stdout.readline().strip())
        assert folder.parent == tmp_path
        (running,) = psutil.Process(parent.pid).children()
        parent.kill()
    assert psutil.wait_procs([running], timeout=10)[1] == []
    assert not folder.exists()


INTERRUPTED = """
from tightpipe import Instance, Memory
from tightpipe.params.budget import Budget
from tightpipe.solver.milp import solve_milp
from tightpipe.kernels.compiled import ensure_compiled
hard = Instance.uniform(devices=4, microbatches=8, forward=8, backward=14, weight=8, comm=2,
                        memory=Memory(2, -1, -1, 16))
ensure_compiled()
print("searching", flush=True)
result = solve_milp(hard, Budget(threads=2).within(120))
print(result.status, result.cost, result.reason, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")
def test_an_interrupt_returns_the_best_schedule_so_far() -> None:
    program = [sys.executable, "-c", INTERRUPTED]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "searching\n"
    _wait_for_solver(process.pid)
    time.sleep(0.7)  # now it has read the model
    process.send_signal(signal.SIGINT)
    line = process.stdout.readline()
    assert line.startswith("feasible")
    assert line.endswith("interrupted\n")
    assert process.wait(10) == 0


def test_methods_of_or_tools_can_be_loaded_after_milp() -> None:
    code = "import tightpipe.solver.milp, tightpipe.solver.cpsat"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
