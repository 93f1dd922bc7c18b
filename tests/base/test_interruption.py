"""Signals: work ends early, what was found is written and told, and the exit status says which signal it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from experiments.sweeps import solve_processes, wait_until

from tightpipe import Instance, Memory, Status, load_schedule, solve, validate
from tightpipe.base.interruption import (
    INTERRUPTED,
    TERMINATED,
    Terminated,
    ended_by_signals,
    held_back,
    reason_of,
)
from tightpipe.cli import main
from tightpipe.experiments.study import read_rows
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.instance_file import save_instance
from tightpipe.model.metrics import cost
from tightpipe.model.result import ignore
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.solve_params import DEFAULTS
from tightpipe.solver.cpsat import targets
from tightpipe.solver.cpsat.race import Found, _together
from tightpipe.solver.cpsat.targets import Decision
from tightpipe.solver.engine.portfolio import alone
from tightpipe.solver.engine.run import Incumbent
from tightpipe.solver.outcome import FINISHED, End
from tightpipe.solver.outcome import Ended as MemberEnded

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends POSIX signals")
STOPPED = MemberEnded(End.STOPPED, TERMINATED)
HARD = Instance.uniform(  # whose optimum no search finds within a minute, so that only a signal ends it
    devices=8, microbatches=24, forward=10, backward=17, weight=9, comm=1, memory=Memory(2, -1, -1, 16)
)
SIGNALS = [(signal.SIGINT, INTERRUPTED, 130), (signal.SIGTERM, TERMINATED, 143)]
# the command line, which says when it is ready to begin, and when it gets to the function of its first argument
COMMAND = """
import pkgutil, signal, sys
from tightpipe.cli import main

owner, _, name = sys.argv.pop(1).rpartition(".")
owner = pkgutil.resolve_name(owner)
function = getattr(owner, name)

def told(*arguments, **options):
    print("there", file=sys.stderr, flush=True)
    return function(*arguments, **options)

setattr(owner, name, told)
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests
print("ready", file=sys.stderr, flush=True)
main()
"""
SEARCHES = "tightpipe.solver.engine.run.Incumbent.__init__"
READS = "tightpipe.base.files._standard_input"
WRITES = "tightpipe.cli.solving.save_schedule"
HAS_FORMULAS = "tightpipe.registry.solve.warm_starts"


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(*arguments: str | Path, tells: str = SEARCHES) -> subprocess.Popen[str]:
    """Start the command line and wait until it is about to begin."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, tells, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(process, "ready")
    return process


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stderr is not None
    while process.stderr.readline() not in (f"{line}\n", ""):
        pass


@dataclass(frozen=True)
class Ended:
    """What a command that got a signal has left."""

    status: int
    stdout: str
    stderr: str


def end(process: subprocess.Popen[str], number: signal.Signals, seconds: float) -> Ended:
    time.sleep(seconds)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=120)
    return Ended(process.returncode, stdout, stderr)


@pytest.fixture
def hard(tmp_path: Path) -> Path:
    save_instance(HARD, tmp_path / "hard.json")
    return tmp_path / "hard.json"


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("number", "reason", "status"), SIGNALS)
@pytest.mark.parametrize(
    "method",
    [["best"], ["cpsat"], ["improve"], ["block"], ["milp"]],
    ids=" ".join,
)
def test_a_solve_that_is_ended_at_any_time_writes_its_schedule_and_says_why(
    method: list[str], number: signal.Signals, reason: str, status: int, hard: Path, tmp_path: Path
) -> None:
    output, random = tmp_path / "schedule.json", Random(f"{method} {reason}")
    for while_it_searches, latest in ((False, 1.6), (True, 0.8)):
        process = start("solve", hard, "--method", *method, "--time-limit", "600", "-o", output, "--json")
        if while_it_searches:
            wait_for(process, "there")
        ended = end(process, number, random.uniform(0.2, latest))
        assert ended.status == status, ended.stderr
        if ended.stdout:
            break
        # it was still loading: nothing had begun, which is one line and no file
        assert reason in ended.stderr
        assert len(ended.stderr.strip().splitlines()) == 1
        assert not output.exists()
    told, written = json.loads(ended.stdout), load_schedule(output)
    assert (told["reason"], told["status"]) == (reason, "feasible")
    assert (told["cost"], told["output"]) == (written.cost, str(output))
    assert written.cost == cost(written.schedule)
    assert validate(HARD, written.schedule) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hard.json", "schedule.json"]


@pytest.mark.parametrize(("number", "reason", "status"), SIGNALS)
def test_a_signal_while_the_instance_is_read_leaves_nothing(
    number: signal.Signals, reason: str, status: int, tmp_path: Path
) -> None:
    process = start("solve", "-", "-o", tmp_path / "schedule.json", "--json", tells=READS)
    wait_for(process, "there")
    ended = end(process, number, 0.0)
    assert (ended.status, ended.stdout) == (status, "")
    assert reason in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "reason", "status"), SIGNALS)
def test_a_signal_that_waits_for_an_import_is_not_forgotten_where_the_command_ends(
    number: signal.Signals, reason: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tightpipe.base.interruption._is_within", lambda _, *modules: "importlib" in modules)
    with pytest.raises(KeyboardInterrupt) as stop, ended_by_signals():
        signal.raise_signal(number)
    assert reason_of(stop.value) == reason
    time.sleep(0.1)  # the signal would come again in this time, and nobody would handle it


@pytest.mark.parametrize(("number", "reason", "status"), SIGNALS)
def test_bounds_found_before_a_signal_are_told(
    number: signal.Signals, reason: str, status: int, hard: Path
) -> None:
    process = start("bound", hard, "--time-limit", "600", "--json", tells=HAS_FORMULAS)
    wait_for(process, "there")
    ended = end(process, number, 0.5)
    assert ended.status == status, ended.stderr
    told = json.loads(ended.stdout)
    assert told["reason"] == reason
    assert told["best"] == max(bound["value"] for bound in told["bounds"])


@pytest.mark.parametrize(("number", "reason", "status"), SIGNALS)
def test_a_command_that_keeps_nothing_says_one_line_at_a_signal(
    number: signal.Signals,
    reason: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tightpipe.cli.solving.ensure_compiled", lambda: signal.raise_signal(number))
    monkeypatch.setattr(sys, "argv", ["tightpipe", "compile"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err == f"tightpipe: {reason}\n"


def test_a_signal_while_the_schedule_goes_into_a_pipe_waits_for_its_reader(
    hard: Path, tmp_path: Path
) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    process = start("solve", hard, "--method", "greedy-v", "-o", pipe, tells=WRITES)
    wait_for(process, "there")  # it has its schedule and waits for somebody to read it
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    process.communicate(timeout=60)
    reader.join()
    assert process.returncode == 143
    assert json.loads(read[0])["method"] == "greedy-v"


def test_a_second_signal_does_not_wait_for_a_reader(hard: Path, tmp_path: Path) -> None:
    """If both come before Python handles one, it begins with that of the lower number, which is sent first."""
    os.mkfifo(tmp_path / "pipe")
    process = start("solve", hard, "--method", "greedy-v", "-o", tmp_path / "pipe", tells=WRITES)
    wait_for(process, "there")
    process.send_signal(signal.SIGINT)
    assert end(process, signal.SIGTERM, 0.0).status == 143


@pytest.mark.parametrize(("number", "reason", "status"), SIGNALS)
def test_both_signals_raise_what_their_reason_stands_for(
    number: signal.Signals, reason: str, status: int
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as error, ended_by_signals():
        signal.raise_signal(number)
    assert reason_of(error.value) == reason
    assert signal.getsignal(number) is before


def test_a_signal_that_comes_twice_is_raised_once() -> None:
    with ended_by_signals():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_a_signal_whose_exception_was_swallowed_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tightpipe.base.interruption._UNCAUGHT", 1.5)
    with ended_by_signals():
        with suppress(KeyboardInterrupt):  # as foreign code does, which asks for no reason
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Terminated) as error:
            time.sleep(20)
        assert reason_of(error.value) == TERMINATED


def test_a_signal_that_was_caught_does_not_come_again_because_of_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tightpipe.base.interruption._UNCAUGHT", 1.5)
    with pytest.raises(Terminated) as error, ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert reason_of(error.value) == TERMINATED
    time.sleep(1.2)  # more than the second in which a second signal is ignored
    with ended_by_signals(), suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
        raise AssertionError("no signal came")
    time.sleep(1.0)  # the first one would come again in this time


def test_a_thread_finishes_a_block_that_signals_must_not_cut() -> None:
    """Python lets no thread but the main one handle signals, and sends it none."""
    done = []

    def work() -> None:
        with held_back():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done


def test_an_ignored_signal_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ended_by_signals(), held_back():
        signal.raise_signal(signal.SIGINT)


def test_what_is_begun_is_finished() -> None:
    finished = list[bool]()

    def work() -> None:
        with ended_by_signals(), held_back():
            signal.raise_signal(signal.SIGTERM)
            finished.append(True)

    with pytest.raises(Terminated):
        work()
    assert finished


def test_the_compiler_is_not_interrupted() -> None:
    finished: list[float] = []
    compiler: dict[str, Any] = {
        "__name__": "numba.core",
        "signal": signal,
        "time": time,
        "finished": finished,
    }
    exec(
        "def compile_it():\n signal.raise_signal(signal.SIGTERM)\n time.sleep(0.1)\n finished.append(0.1)",
        compiler,
    )

    def work() -> None:
        with ended_by_signals():
            compiler["compile_it"]()
            time.sleep(10)

    with pytest.raises(Terminated):
        work()
    assert finished


def test_a_solve_ended_among_the_heuristics_keeps_the_best_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(_: Instance) -> Any:
        raise Terminated

    stopped = replace(HEURISTICS["greedy-v"], make=terminated, timed=False, pace=1e-4)  # runs after list
    module = sys.modules["tightpipe.registry.starts"]
    monkeypatch.setattr(module, "HEURISTICS", {"list": HEURISTICS["list"], "greedy-v": stopped})
    result = solve(HARD, "improve", time_limit=600)
    assert (result.status, result.reason) == (Status.FEASIBLE, TERMINATED)
    assert result.cost == solve(HARD, "list").cost


def test_a_solve_ended_before_its_search_keeps_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    def solver(instance: Instance, budget: Budget, start: Any, **_: Any) -> Any:
        told.append((budget.left, start))
        if len(told) == 1:
            raise Terminated
        return solve(instance, "list")

    monkeypatch.setattr(sys.modules["tightpipe.solver.improve"], "improve", solver)
    result = solve(HARD, "improve", time_limit=600)
    assert result.reason == TERMINATED
    assert (result.schedule, len(told)) == (told[0][1], 1)


def test_a_signal_is_told_whatever_cp_sat_has_found_meanwhile() -> None:
    whole = Found(None, None, exhausted=True)
    assert _together([whole], STOPPED).ended == STOPPED
    assert _together([whole], MemberEnded(End.CAPPED, "the memory cap was hit")).ended == FINISHED


def test_no_further_target_is_asked_after_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule, asked = solve(HARD, "greedy-v").schedule, list[int]()
    assert schedule is not None

    def decide(_: Instance, target: int, *__: Any) -> Decision:
        asked.append(target)
        return Decision(True, schedule, STOPPED)

    monkeypatch.setattr(targets, "decide", decide)
    incumbent = Incumbent(schedule, 1, None, time.perf_counter(), ignore)
    member = targets.Targets(HARD, incumbent, DEFAULTS.targets, 1.0)
    assert alone(UNLIMITED.within(60), incumbent, lambda _: member) == STOPPED
    assert len(asked) == 1


def test_a_signal_ends_the_refutation_of_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "decide", lambda *_: Decision(None, ended=STOPPED))
    with pytest.raises(Terminated):
        targets.refutation_bound(HARD, 2400, UNLIMITED.within(60))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_terminated_solve_is_a_failed_one(number: signal.Signals, hard: Path, tmp_path: Path) -> None:
    """A batch system may send its signal to the process of a solve, too."""
    table = tmp_path / "rows.csv"
    process = start("compare", hard, "--methods", "cpsat", "--time-limit", "300", "-o", table)
    wait_until(lambda: bool(solve_processes(process.pid)))
    (child,) = solve_processes(process.pid)
    wait_until(lambda: child.cpu_times().user > 1.5)  # it solves
    child.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "1 of the solves failed" in errors.splitlines()[-1]
    (row,) = read_rows(table)
    assert (row.state, row.cost) == ("failed", None)
