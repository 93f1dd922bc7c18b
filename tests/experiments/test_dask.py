"""A sweep on a real Dask scheduler and two worker processes, one of which is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import dask
import pytest
from distributed import Client
from experiments.sweeps import rows_of, start, wait_until, write_experiment
from helpers.command_line import call


@contextmanager
def dask_process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process of Dask's own command and end it."""
    with subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@dataclass(frozen=True)
class Cluster:
    address: str
    scheduler: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Return a scheduler and two workers of one thread each."""
    where = tmp_path / "scheduler.json"
    with ExitStack() as stack:
        ports = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        scheduler = stack.enter_context(dask_process("scheduler", *ports, "--scheduler-file", str(where)))
        wait_until(where.exists)
        address = json.loads(where.read_text())["address"]
        alone = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(tmp_path))
        workers = [stack.enter_context(dask_process("worker", address, *alone)) for _ in range(2)]
        yield Cluster(address, scheduler, workers)


def solves_done(address: str) -> int:
    """Count the solves that workers have finished, by the scheduler's own log of transitions."""

    def count(dask_scheduler: object) -> int:
        log = dask_scheduler.transition_log  # type: ignore[attr-defined]
        return sum("run_guarded" in str(key) and end == "memory" for key, _, end, *_ in log)

    with Client(address, set_as_default=False) as client:
        return int(client.run_on_scheduler(count))


def test_a_killed_worker_loses_nothing_and_nothing_runs_twice(cluster: Cluster, tmp_path: Path) -> None:
    experiment, folder = write_experiment(tmp_path), tmp_path / "results"
    sweep = start(experiment, folder, "--executor", "dask", "--scheduler", cluster.address)
    wait_until(lambda: sum(row.state == "done" for row in rows_of(folder)) >= 1)
    cluster.workers[0].kill()
    before = {row.key: row for row in rows_of(folder) if row.state == "done"}
    _, errors = sweep.communicate()
    assert sweep.returncode == 0, errors
    after = {row.key: row for row in rows_of(folder)}
    assert {(row.state, row.attempts) for row in after.values()} == {("done", 1)}
    assert {key: after[key] for key in before} == before
    assert solves_done(cluster.address) == len(after) == 4


def test_a_killed_scheduler_stops_the_sweep_and_its_solves_are_pending_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "1s")
    experiment, folder = write_experiment(tmp_path), tmp_path / "results"
    sweep = start(experiment, folder, "--executor", "dask", "--scheduler", cluster.address)
    wait_until(lambda: any(row.state == "running" for row in rows_of(folder)))
    cluster.scheduler.kill()
    _, errors = sweep.communicate()
    assert sweep.returncode == 1
    assert "the same command continues" in errors.splitlines()[-1]
    assert {row.state for row in rows_of(folder)} <= {"done", "pending"}


def test_an_address_where_no_scheduler_is(tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path)
    address = "tcp://127.0.0.1:9"
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        done = call("sweep", experiment, "-o", tmp_path, "--executor", "dask", "--scheduler", address)
    assert done.returncode == 2
    assert "no Dask scheduler answers" in done.stderr
