"""What a command says when a signal ends it: that work is kept only where some of it is."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
from experiments.sweeps import write_experiment
from helpers.command_line import SMALL, call, write
from helpers.every_command import arguments, commands
from steps.test_step_planner import law

from tightpipe import Instance, Placement, Result, StepPlanner
from tightpipe.base.errors import StoppedError
from tightpipe.experiments.grid import ExecutorContext, Watch, run_sweep
from tightpipe.experiments.guarded_process import Limits, Outcome
from tightpipe.experiments.store import Store
from tightpipe.experiments.task import Task
from tightpipe.model.instance_file import save_law

SIGNALS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
KEPT = "what was finished is kept, the same command continues\n"
NOTHING = "nothing was finished yet, the same command continues\n"


@pytest.mark.parametrize(("number", "status", "reason"), SIGNALS)
@pytest.mark.parametrize("command", list(commands()))
def test_a_signal_before_a_command_has_done_anything_promises_nothing(
    command: str, number: signal.Signals, status: int, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(click.Context, "invoke", lambda *_, **__: signal.raise_signal(number))
    words = [word for word in arguments(command) if word != "--help"]
    files = {"compile": [], "run": ["schedule.json"]}
    done = call(*words, *files.get(command, []))
    assert (done.returncode, done.stdout, done.stderr) == (status, "", f"tightpipe: {reason}\n")


def stopping(finished: int, stop: Callable[[], object]) -> Callable[..., None]:
    """Return `run_sweep` with a stop in place of the next solve when so many have finished."""

    def run(store: Store, executor: ExecutorContext, limits: Limits, watch: Watch) -> None:
        ended = 0

        def watch_and_stop(task: Task, outcome: Outcome | None, at_once: int) -> None:
            nonlocal ended
            watch(task, outcome, at_once)
            ended += outcome is not None
            if outcome is None and ended == finished:
                stop()

        run_sweep(store, executor, limits, watch_and_stop)

    return run


def full() -> None:
    raise StoppedError("the disk is full")


STOPS = [
    (lambda: signal.raise_signal(signal.SIGINT), 130, "interrupted"),
    (lambda: signal.raise_signal(signal.SIGTERM), 143, "terminated"),
    (full, 1, "the disk is full"),
]


@pytest.mark.parametrize(("stop", "status", "reason"), STOPS, ids=["SIGINT", "SIGTERM", "full disk"])
@pytest.mark.parametrize(("finished", "said"), [(0, NOTHING), (1, KEPT)])
@pytest.mark.parametrize("command", ["compare", "sweep"])
def test_solves_are_said_to_be_kept_only_if_one_has_ended(
    command: str,
    finished: int,
    said: str,
    stop: Callable[[], object],
    status: int,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = write(tmp_path, SMALL)
    experiment = write_experiment(tmp_path, 'instances = ["small.json"]\nmethods = ["v-half", "v-min"]\n')
    words: dict[str, list[str | Path]] = {
        "compare": ["compare", instance, "--methods", "v-half,v-min", "-o", tmp_path / "rows.csv"],
        "sweep": ["sweep", experiment, "-o", tmp_path / "results", "--at-once", "1"],
    }
    monkeypatch.setattr("tightpipe.experiments.study.run_sweep", stopping(finished, stop))
    done = call(*words[command])
    assert done.returncode == status, done.stderr
    assert done.stderr.splitlines(keepends=True)[-1] == f"tightpipe: {reason}; {said}"


@pytest.mark.parametrize(("number", "status", "reason"), SIGNALS)
@pytest.mark.parametrize("command", ["solve", "bound"])
def test_no_certificate_is_searched_for_after_a_signal(
    command: str,
    number: signal.Signals,
    status: int,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bound and the schedule are shown all the same."""
    monkeypatch.setattr("tightpipe.cli.solving.certify", lambda *_, **__: signal.raise_signal(number))
    proof = tmp_path / "proof.json"
    done = call(command, write(tmp_path, SMALL), "--certificate", proof, "--json")
    assert (done.returncode, proof.exists()) == (status, False)
    assert done.stderr.splitlines()[-1] == f"tightpipe: {reason}, so {proof} was not written"
    assert json.loads(done.stdout)["objective"] == "device_span"


@pytest.mark.parametrize(("number", "status", "reason"), SIGNALS)
def test_a_signal_ends_the_solves_of_all_replicas(
    number: signal.Signals, status: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solve that a signal has ended says so in its result, so nothing else tells the next one."""
    solved = []

    def stopped(planner: StepPlanner, instance: Instance, deadline: float) -> Result:
        solved.append(deadline)
        return replace(planner.quick(instance), reason=reason)

    monkeypatch.setattr(StepPlanner, "solve_within", stopped)
    save_law(law(Placement("linear", 2)), tmp_path / "law.json")
    write(tmp_path, "40\n30\n20\n10\n", "lengths.csv")
    words = ("--lengths", "lengths.csv", "--replicas", "2", "--json", "-o", "out")
    done = call("solve", "law.json", *words, cwd=tmp_path)
    assert (done.returncode, len(solved)) == (status, 1), done.stderr
    assert json.loads(done.stdout)["reason"] == reason
    assert len(list((tmp_path / "out").iterdir())) == 2
