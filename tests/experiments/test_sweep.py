"""Sweeps as processes: killed, interrupted, two at once, with solves that fail."""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from experiments.sweeps import SMALL, rows_of, solve_processes, start, wait_until, write_experiment
from helpers.command_line import call

from tightpipe.base.errors import StoppedError
from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.grid import local_executor, run_sweep, tasks_of
from tightpipe.experiments.guarded_process import Limits
from tightpipe.experiments.store import open_store
from tightpipe.experiments.study import ROWS, STORE, load_study, mark_of
from tightpipe.model.validate import validate

# heuristics that take a second each, and one solve in the middle that has to be interrupted
WITH_A_LONG_ONE = """\
instances = ["small.json"]
devices = [6]
microbatches = [24]
memory = ["3p", "2p", "1p"]
methods = ["greedy-v", "cpsat"]
time_limits = [600]
"""

# two solves that use up their limits, so that no sweep has ended before another process comes to it
TWO_LONG_ONES = """\
instances = ["small.json"]
devices = [6]
microbatches = [24]
memory = ["3p"]
methods = ["cpsat"]
time_limits = [6, 7]
"""


def done(folder: Path) -> dict[str, object]:
    return {row.key: row for row in rows_of(folder) if row.state == "done"}


def states(folder: Path) -> set[str]:
    return {row.state for row in rows_of(folder)}


def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    experiment, folder = write_experiment(tmp_path, TWO_LONG_ONES), tmp_path / "results"
    sweep = start(experiment, folder, "--at-once", "1")
    wait_until(lambda: len(done(folder)) >= 1)
    solves = solve_processes(sweep.pid)
    sweep.kill()
    sweep.wait()
    before = done(folder)
    run_out_of_leases(folder)
    finished = call("sweep", experiment, "-o", folder, "--json")
    assert finished.returncode == 0
    assert json.loads(finished.stdout)["done"] == len(rows_of(folder)) == 2
    after = done(folder)
    assert {key: after[key] for key in before} == before
    wait_until(lambda: all(not solve.is_running() for solve in solves))
    for row in load_study(folder).rows:
        schedule = load_study(folder).schedule(row)
        assert schedule is not None
        assert validate(schedule.instance, schedule) == []
    assert_exports_agree(folder)


def run_out_of_leases(folder: Path) -> None:
    """Let the seconds pass for which a process that is gone still holds its solves."""
    with closing(sqlite3.connect(folder / STORE)) as store, store:
        store.execute("UPDATE solve SET lease = 0 WHERE state = 'running'")


def assert_exports_agree(folder: Path) -> None:
    rows = load_study(folder).rows
    (folder / STORE).unlink()
    assert load_study(folder).rows == rows


def test_two_sweeps_share_a_store_and_run_nothing_twice(tmp_path: Path) -> None:
    experiment, folder = write_experiment(tmp_path, TWO_LONG_ONES), tmp_path / "results"
    sweeps = [start(experiment, folder, "--at-once", "1") for _ in range(2)]
    assert [sweep.wait() for sweep in sweeps] == [0, 0]
    said = [sweep.communicate()[1].count("small 6x24") for sweep in sweeps]
    assert sum(said) == len(rows_of(folder)) == 2
    assert min(said) > 0
    assert {(row.state, row.attempts) for row in rows_of(folder)} == {("done", 1)}


def test_a_sweep_that_was_suspended_does_not_take_its_own_solve_for_that_of_a_dead_one(
    tmp_path: Path,
) -> None:
    experiment = write_experiment(tmp_path, TWO_LONG_ONES.replace("[6, 7]", "[6]"))
    sweep = start(experiment, tmp_path / "results", "--at-once", "2")
    wait_until(lambda: "running" in states(tmp_path / "results"))
    sweep.send_signal(signal.SIGSTOP)
    run_out_of_leases(tmp_path / "results")
    sweep.send_signal(signal.SIGCONT)
    assert sweep.wait() == 0
    assert [(row.state, row.attempts) for row in rows_of(tmp_path / "results")] == [("done", 1)]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_what_is_done_and_ends_what_is_in_work(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    experiment, folder = write_experiment(tmp_path, WITH_A_LONG_ONE), tmp_path / "results"
    sweep = start(experiment, folder, "--at-once", "1")
    wait_until(lambda: len(done(folder)) == 1 and "running" in states(folder))
    told = json.loads(call("sweep", experiment, "--status", "-o", folder, "--json").stdout)
    assert (told["total"], told["done"], told["running"], told["failed"]) == (6, 1, 1, 0)
    assert told["running_now"] == ["small 6x24 3p cpsat for device_span from best 600 s seed 0"]
    solves = solve_processes(sweep.pid)
    sweep.send_signal(number)
    _, errors = sweep.communicate()
    assert sweep.returncode == status
    assert "the same command continues" in errors.splitlines()[-1]
    assert all(not solve.is_running() for solve in solves)
    assert states(folder) == {"done", "pending"}
    assert (folder / "rows.csv").exists()


def test_failed_solves_are_rows_and_are_retried_when_asked(tmp_path: Path) -> None:
    lists = SMALL.replace('["list", "cpsat"]', '["list"]')
    experiment, folder = write_experiment(tmp_path, lists + "memory_cap = 0.05\n"), tmp_path / "results"
    finished = call("sweep", experiment, "-o", folder, "--json")
    assert finished.returncode == 0
    assert json.loads(finished.stdout)["failed"] == 2
    assert {row.error for row in rows_of(folder)} == {"killed at its memory limit of 0.05 GiB"}
    experiment.write_text(lists)  # the cap is a condition, not part of what is solved
    assert json.loads(call("sweep", experiment, "-o", folder, "--json", "--extend").stdout)["failed"] == 2
    again = call("sweep", experiment, "-o", folder, "--json", "--retry-failed")
    assert json.loads(again.stdout)["done"] == 2


LISTS = SMALL.replace('["list", "cpsat"]', '["list"]') + 'figure = "memory"\n'


def finished_at(folder: Path) -> list[str | None]:
    return [row.finished_at for row in rows_of(folder)]


def make_older(folder: Path) -> None:
    """Let the solves have finished long ago, as those of a fresh clone."""
    with closing(sqlite3.connect(folder / STORE)) as store, store:
        store.execute("UPDATE solve SET finished_at = 'long ago'")


def test_a_finished_sweep_begins_anew_unless_it_is_extended(tmp_path: Path) -> None:
    experiment, folder = write_experiment(tmp_path, LISTS), tmp_path / "results"
    assert call("sweep", experiment, "-o", folder).returncode == 0
    make_older(folder)
    kept = call("sweep", experiment, "-o", folder, "--extend")
    assert "2 solves, 0 to run" in kept.stderr
    assert finished_at(folder) == ["long ago"] * 2
    again = call("sweep", experiment, "-o", folder)
    begins, size, *_ = again.stderr.splitlines()
    assert begins == f"the sweep had finished and begins anew: {folder / STORE}.bak keeps its solves"
    assert size.startswith("2 solves, 2 to run: ")
    assert "long ago" not in finished_at(folder)
    with open_store(folder / f"{STORE}.bak") as old:
        assert [row.finished_at for row in old.rows()] == ["long ago"] * 2
    assert not mark_of(folder / ROWS).exists()


def test_a_sweep_that_was_interrupted_before_its_tables_only_writes_these(tmp_path: Path) -> None:
    experiment, folder = write_experiment(tmp_path, LISTS), tmp_path / "results"
    assert call("sweep", experiment, "-o", folder).returncode == 0
    make_older(folder)
    (folder / "summary.md").unlink()
    mark_of(folder / ROWS).touch()
    assert "2 solves, 0 to run" in call("sweep", experiment, "-o", folder).stderr
    assert finished_at(folder) == ["long ago"] * 2
    assert (folder / "summary.md").exists()
    assert not mark_of(folder / ROWS).exists()


def test_a_sweep_with_a_new_value_on_an_axis_runs_only_what_is_new(tmp_path: Path) -> None:
    experiment, folder = write_experiment(tmp_path, LISTS), tmp_path / "results"
    assert call("sweep", experiment, "-o", folder).returncode == 0
    make_older(folder)
    experiment.write_text(LISTS.replace('"2p"]', '"2p", "3p"]'))
    assert "3 solves, 1 to run" in call("sweep", experiment, "-o", folder).stderr
    assert finished_at(folder)[:2] == ["long ago"] * 2


def test_a_sweep_keeps_rows_that_have_no_store_and_refuses_other_columns(tmp_path: Path) -> None:
    experiment, folder = write_experiment(tmp_path, SMALL.replace(', "cpsat"', "")), tmp_path / "results"
    assert call("sweep", experiment, "-o", folder).returncode == 0
    (folder / STORE).unlink()
    before = (folder / ROWS).read_text()
    assert call("sweep", experiment, "-o", folder).returncode == 0
    assert (folder / f"{ROWS}.bak").read_text() == before
    (folder / STORE).unlink()
    (folder / ROWS).write_text("a,b\n1,2\n")
    refused = call("sweep", experiment, "-o", folder)
    assert refused.returncode == 2
    assert "has other columns than this version writes" in refused.stderr
    assert (folder / ROWS).read_text() == "a,b\n1,2\n"


def test_a_full_disk_ends_the_sweep_cleanly(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, 'settings = ["1.5B-8x24"]\nmethods = ["list", "greedy-v"]\n')
    tasks, limits = tasks_of(load_experiment(path), path), Limits(seconds=300, memory=None, threads=1)
    with open_store(tmp_path / STORE) as store:
        store.enrol(tasks[:1])
        run_sweep(store, local_executor(1), limits, lambda *_: None)
        store.enrol(tasks)
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(
            f"PRAGMA max_page_count = {pages}"
        )  # SQLite then says what it says on a full disk
        with pytest.raises(StoppedError, match="full"):
            run_sweep(store, local_executor(1), limits, lambda *_: None)
        assert [row.state for row in store.rows()] == ["done", "pending"]
        assert store.schedule(tasks[0].row.key) is not None


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    experiment = write_experiment(tmp_path)
    assert "--executor dask" in call("sweep", experiment, "--executor", "dask").stderr
    assert "--executor dask" in call("sweep", experiment, "--scheduler", "tcp://localhost:1").stderr
    assert "has not begun" in call("sweep", experiment, "--status", "-o", tmp_path).stderr


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    experiment, folder = write_experiment(tmp_path), tmp_path / "results"
    told = json.loads(call("sweep", experiment, "-o", folder, "--dry-run", "--json").stdout)
    assert told["solves"] == 4
    assert not folder.exists()


def test_a_sweep_with_a_limit_below_one_activation_solves_the_rest(tmp_path: Path) -> None:
    text = 'instances = ["small.json"]\nmemory = ["0.1p", "2p"]\nmethods = ["list"]\nfigure = "memory"\n'
    experiment, folder = write_experiment(tmp_path, text), tmp_path / "results"
    done = call("sweep", experiment, "-o", folder)
    assert done.returncode == 0, done.stderr
    tight, other = rows_of(folder)
    assert (tight.state, tight.status, tight.cost) == ("done", "infeasible", None)
    assert other.cost is not None
    page = (folder / "summary.md").read_text()
    assert "must hold one forward activation: at least 2" in page
    assert "None" not in page


def test_a_solve_without_a_schedule_says_why_everywhere(tmp_path: Path) -> None:
    text = 'instances = ["small.json"]\nmemory = ["smallest"]\nmethods = ["v-zb"]\n'
    experiment, folder = write_experiment(tmp_path, text), tmp_path / "results"
    finished = call("sweep", experiment, "-o", folder)
    reason = "v-zb needs a memory limit of at least 8, and has 4"
    assert f"[1/1] small 2x4 smallest v-zb for device_span: unknown: {reason}" in finished.stderr
    assert "None" not in finished.stderr
    (row,) = rows_of(folder)
    assert (row.status, row.reason, row.imbalance, row.memory_of_1f1b) == ("unknown", reason, 0.0, 0.5)
    assert f"- unknown: small 2 x 4, smallest, v-zb: {reason}" in (folder / "summary.md").read_text()
    assert (
        f"no schedule: small 2x4 smallest v-zb for device_span: {reason}"
        in call("sweep", experiment, "--status", "-o", folder).stdout
    )
