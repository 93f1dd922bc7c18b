"""The store of a sweep: claims of several writers, versions, a full disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from experiments.sweeps import SMALL, write_experiment
from helpers.command_line import call

from tightpipe.base.errors import InputError, StoppedError
from tightpipe.base.sources import engine_version
from tightpipe.experiments import store as store_module
from tightpipe.experiments import task as task_module
from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.grid import tasks_of
from tightpipe.experiments.store import MOST_ATTEMPTS, Store
from tightpipe.experiments.study import load_study
from tightpipe.experiments.task import Task

DONE = {"state": "done", "status": "feasible", "cost": 90, "gap": 0.1}


@pytest.fixture
def tasks(tmp_path: Path) -> list[Task]:
    path = write_experiment(tmp_path, SMALL)
    return tasks_of(load_experiment(path), path)


@pytest.fixture
def store(tmp_path: Path, tasks: list[Task]) -> Iterator[Store]:
    with closing(Store(tmp_path / "store.sqlite")) as store:
        store.enrol(tasks)
        yield store


def test_two_writers_claim_each_task_once(store: Store, tasks: list[Task]) -> None:
    with closing(Store(store.path)) as other:
        claimed = []
        while (task := (store, other)[len(claimed) % 2].claim(f"writer {len(claimed) % 2}")) is not None:
            claimed.append(task)
    assert [task.row.key for task in claimed] == [task.row.key for task in tasks]
    assert [task.payload for task in claimed] == [task.payload for task in tasks]


def test_what_is_done_stays_done_when_the_grid_is_enrolled_again(store: Store, tasks: list[Task]) -> None:
    task = store.claim("a")
    assert task is not None
    assert store.finish(task.row.key, "a", DONE, b"schedule")
    store.enrol(tasks)
    assert [row.state for row in store.rows()] == ["done"] + ["pending"] * (len(tasks) - 1)
    assert store.schedule(task.row.key) == b"schedule"


def test_rows_that_the_grid_no_longer_has_are_kept_but_not_shown(store: Store, tasks: list[Task]) -> None:
    task = store.claim("a")
    assert task is not None
    store.finish(task.row.key, "a", DONE, None)
    store.enrol(tasks[1:])
    assert task.row.key not in {row.key for row in store.rows()}
    store.enrol(tasks)
    assert store.rows()[0].state == "done"


def test_solves_of_another_engine_are_not_done(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = store.claim("a")
    assert task is not None
    store.finish(task.row.key, "a", DONE, None)
    (engine,) = {row.engine for row in store.rows()}
    assert (engine, store.engines()) == (engine_version(), {engine: 1})
    monkeypatch.setattr(task_module, "engine_version", lambda: "9.9.9+7654321")
    path = tmp_path / "experiment.toml"
    store.enrol(tasks_of(load_experiment(path), path))
    assert {(row.state, row.engine) for row in store.rows()} == {("pending", "9.9.9+7654321")}
    assert store.engines() == {engine: 1}


def test_a_sweep_says_whose_rows_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_experiment(tmp_path, 'instances = ["small.json"]\nmethods = ["list"]\n')
    monkeypatch.setattr(task_module, "engine_version", lambda: "0.0.9+1234567")
    first = call("sweep", path, "-o", tmp_path / "s")
    monkeypatch.undo()
    again = call("sweep", path, "-o", tmp_path / "s")
    line = f"engine {engine_version()} does not count 1 row(s) of engine 0.0.9+1234567"
    assert line not in first.stderr
    assert again.stderr.startswith(f"{line}, kept in {tmp_path / 's/store.sqlite'}\n")
    assert {row.engine for row in load_study(tmp_path / "s").rows} == {engine_version()}
    assert line not in call("sweep", path, "-o", tmp_path / "s", "--extend").stderr


def test_a_lease_that_ran_out_is_claimed_by_another_and_its_owner_writes_nothing(
    tmp_path: Path, tasks: list[Task]
) -> None:
    with closing(Store(tmp_path / "s.sqlite", lease=-1.0)) as store:
        store.enrol(tasks[:1])
        first, second = store.claim("slow"), store.claim("other")
        assert first is not None
        assert second is not None
        assert first.row.key == second.row.key
        assert not store.finish(first.row.key, "slow", DONE, None)
        assert store.finish(first.row.key, "other", DONE, None)
        assert store.rows()[0].attempts == 2


def test_leases_that_are_renewed_are_nobody_elses(tmp_path: Path, tasks: list[Task]) -> None:
    with (
        closing(Store(tmp_path / "s.sqlite", lease=-1.0)) as short,
        closing(Store(tmp_path / "s.sqlite")) as long,
    ):
        short.enrol(tasks[:1])
        assert short.claim("a") is not None
        long.renew("a")
        assert short.claim("b") is None


def test_a_task_that_takes_its_sweeps_down_fails_in_the_end(tmp_path: Path, tasks: list[Task]) -> None:
    with closing(Store(tmp_path / "s.sqlite", lease=-1.0)) as store:
        store.enrol(tasks[:1])
        for _ in range(MOST_ATTEMPTS):
            assert store.claim("a") is not None
        assert store.claim("a") is None
        assert store.rows()[0].state == "failed"
        assert store.retry_failed() == 1
        assert store.claim("a") is not None


def test_released_claims_are_pending_again(store: Store) -> None:
    store.claim("a")
    store.release("a")
    assert {(row.state, row.attempts) for row in store.rows()} == {("pending", 0)}


def test_a_full_disk_stops_the_sweep_and_keeps_what_is_done(store: Store) -> None:
    first, second = store.claim("a"), store.claim("a")
    assert first is not None
    assert second is not None
    store.finish(first.row.key, "a", DONE, b"schedule")
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own limit: its own error
    with pytest.raises(StoppedError, match="full"):
        store.finish(second.row.key, "a", DONE, bytes(10**6))
    assert [row.state for row in store.rows()][:2] == ["done", "running"]
    assert store.schedule(first.row.key) == b"schedule"


@pytest.mark.parametrize("version", [0, 1, store_module.VERSION - 1, store_module.VERSION + 1])
def test_a_store_of_another_version_is_refused_with_what_to_do(
    store: Store, version: int, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    rule = f"is a store of version {version}, and this tightpipe reads version {store_module.VERSION} only"
    line = f"tightpipe: {store.path}: {rule}: move it away, and run the sweep anew\n"
    for command in (("sweep", tmp_path / "experiment.toml", "-o", tmp_path), ("report", tmp_path)):
        done = call(*command)
        assert (done.returncode, done.stderr) == (2, line)
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)


def test_the_rows_of_another_version_are_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("problem,tightpipe_version\ni,0.1.0\n")
    done = call("report", tmp_path)
    rule = "has other columns than this version reads; move it away, and run the solves anew"
    assert (done.returncode, done.stderr) == (2, f"tightpipe: {tmp_path / 'rows.csv'}: {rule}\n")


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, but long enough to have a header" * 10)
    with pytest.raises(InputError, match="cannot be opened"):
        Store(tmp_path / "text")
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as connection:
        connection.execute("CREATE TABLE t (a)")
    with pytest.raises(InputError, match="not the store"):
        Store(tmp_path / "other.sqlite")
