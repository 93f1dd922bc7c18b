"""Solves in processes of their own: whatever happens to them becomes an outcome."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from experiments.sweeps import INSTANCE, solve_processes, wait_until

from tightpipe.base.child import Child
from tightpipe.base.sources import engine_version
from tightpipe.experiments import guarded_process
from tightpipe.experiments.guarded_process import Limits, idle_processes, run_guarded
from tightpipe.experiments.task import unpack
from tightpipe.model.validate import validate

GENEROUS = Limits(seconds=300, memory=None, threads=1)
LONG = {**INSTANCE, "devices": 6, "microbatches": 24, "memory": {**INSTANCE["memory"], "limit": 18}}


def payload(method: str, instance: object = INSTANCE, **changes: object) -> str:
    options = {"warm_start": "best", "time_limit": 200.0, "seed": 0, "threads": 1, "shown": None}
    return json.dumps({"instance": instance, "method": method, **options, **changes})


def test_an_answer() -> None:
    outcome = run_guarded(payload("cpsat"), GENEROUS)
    values = outcome.values
    assert (values["state"], values["status"], values["error"]) == ("done", "optimal", None)
    assert values["cost"] == values["bound"]
    assert json.loads(str(values["trace"]))[-1][1:] == [values["cost"], values["bound"]]
    assert outcome.schedule is not None
    schedule = unpack(outcome.schedule)
    assert validate(schedule.instance, schedule) == []


def test_a_schedule_that_was_found_with_other_costs_is_judged_with_the_true_ones() -> None:
    true = {**INSTANCE, "forward": [5, 10, 10, 15]}
    judged = run_guarded(payload("greedy-v", true, shown=INSTANCE), GENEROUS)
    found = run_guarded(payload("greedy-v"), GENEROUS)
    assert judged.schedule is not None
    assert found.schedule is not None
    assert unpack(judged.schedule).order == unpack(found.schedule).order
    assert unpack(judged.schedule).instance.costs.forward == (5, 10, 10, 15)
    assert validate(unpack(judged.schedule).instance, unpack(judged.schedule)) == []
    assert int(str(judged.values["bound"])) <= int(str(judged.values["cost"]))


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(seconds=1, memory=None, threads=1), "hard limit of 1 s"),
        (Limits(seconds=300, memory=0.05, threads=1), "memory limit of 0.05 GiB"),
    ],
)
def test_limits_kill_the_solve(limits: Limits, said: str) -> None:
    values = run_guarded(payload("cpsat", LONG), limits).values
    assert values["state"] == "failed"
    assert said in str(values["error"])
    assert solve_processes() == []


def test_a_process_runs_one_heuristic_after_another() -> None:
    with idle_processes() as idle:
        outcomes, processes = [], set()
        for method in ("greedy-v", "list", "no-such-method", "list"):
            outcomes.append(run_guarded(payload(method), GENEROUS, idle=idle))
            processes.add(tuple(process.pid for process in idle))
        assert len(processes) == 3  # that of the first two, none after a fault, and another one
        assert outcomes[3].schedule == outcomes[1].schedule == run_guarded(payload("list"), GENEROUS).schedule
        assert [outcome.values["state"] for outcome in outcomes] == ["done", "done", "failed", "done"]
        assert len(solve_processes()) == 1
    assert solve_processes() == []


@pytest.mark.parametrize(
    ("solve", "limits"),
    [
        (payload("cpsat", time_limit=0.0), GENEROUS),
        (payload("greedy-v", shown=INSTANCE), GENEROUS),  # a solver judges it
        (payload("greedy-v"), Limits(seconds=300, memory=0.25, threads=1)),  # half of the limit is in use
    ],
)
def test_a_process_that_may_hold_something_is_not_used_again(solve: str, limits: Limits) -> None:
    with idle_processes() as idle:
        assert run_guarded(solve, limits, idle=idle).values["state"] == "done"
        assert idle == []


def test_an_idle_process_that_has_died_is_replaced() -> None:
    with idle_processes() as idle:
        run_guarded(payload("list"), GENEROUS, idle=idle)
        idle[0].kill()
        assert run_guarded(payload("list"), GENEROUS, idle=idle).values["state"] == "done"


def test_a_heuristic_loads_no_solver_and_nothing_to_show_results() -> None:
    heavy = (
        "ortools",
        "highspy",
        "pulp",
        "pandas",
        "scipy",
        "matplotlib",
        "rich",
        "click",
        "psutil",
        "sqlite3",
    )
    code = f"""
import sys
sys.modules["coverage"] = None  # numba imports it where it is installed
from tightpipe.experiments import guarded_process
guarded_process._answer({json.loads(payload("greedy-v"))}, lambda **_: None)
print([name for name in {heavy} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_crash_is_an_outcome() -> None:
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(run_guarded, payload("cpsat", LONG), GENEROUS)
        wait_until(lambda: bool(solve_processes()))
        solve_processes()[0].send_signal(signal.SIGSEGV)
        values = future.result()
    assert (values.values["state"], values.values["error"]) == ("failed", "crashed: SIGSEGV")


def test_a_result_that_was_written_counts_even_if_the_process_does_not_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = json.dumps({"values": {"cost": 7}, "schedule": None, "ready": False})
    hangs = Child("-c", f"import time; print({answer!r}, flush=True); time.sleep(600)")
    monkeypatch.setattr(guarded_process, "Child", lambda *_: hangs)
    values = run_guarded("{}", Limits(0.5, None, 1)).values
    assert (values["state"], values["cost"], values["error"]) == ("done", 7, None)
    assert hangs.dead


def test_a_process_that_never_reads_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = Child("-c", "import os; os.abort()")
    wait_until(lambda: dead.dead)
    monkeypatch.setattr(guarded_process, "Child", lambda *_: dead)
    values = run_guarded("{}" * 100_000, GENEROUS).values
    assert (values["state"], values["error"]) == ("failed", "crashed: SIGABRT")


def test_a_cap_on_memory_ends_the_search_and_keeps_its_schedule() -> None:
    outcome = run_guarded(payload("cpsat", LONG, max_memory=0.001, warm_start="list"), GENEROUS)
    assert (outcome.values["state"], outcome.values["status"]) == ("done", "feasible")
    assert "memory" in str(outcome.values["reason"])
    assert outcome.schedule is not None


def test_a_solve_gets_the_parameters_of_its_sweep() -> None:
    values = run_guarded(payload("list", params={"list.retimed": 0}), GENEROUS).values
    assert values["state"] == "failed"
    assert "list.retimed = 0: must be an integer from 1 to 1e+12" in str(values["error"])
    assert run_guarded(payload("list", params={"list.retimed": 1}), GENEROUS).values["state"] == "done"


def test_an_error_is_an_outcome() -> None:
    values = run_guarded(payload("no-such-method"), GENEROUS).values
    assert values["state"] == "failed"
    assert "no-such-method" in str(values["error"])


def test_a_task_of_another_engine_is_refused() -> None:
    values = run_guarded(payload("list", engine="0.0.9+1234567"), GENEROUS).values
    said = f"engine = '0.0.9+1234567': is that of the sweep; here is {engine_version()}"
    assert (values["state"], values["error"]) == ("failed", said)
    assert run_guarded(payload("list", engine=engine_version()), GENEROUS).values["state"] == "done"


def test_stopping_kills_the_solve() -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(run_guarded, payload("cpsat", LONG), GENEROUS, stop)
        wait_until(lambda: bool(solve_processes()))
        stop.set()
        assert future.result().values["error"] == "stopped"


def test_a_killed_parent_leaves_no_solve_behind() -> None:
    code = (
        "from tightpipe.experiments.guarded_process import *; import sys;"
        "run_guarded(sys.argv[1], Limits(300, None, 1))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, payload("cpsat", LONG)])
    wait_until(lambda: bool(solve_processes(parent.pid)))
    child = solve_processes(parent.pid)[0]
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
