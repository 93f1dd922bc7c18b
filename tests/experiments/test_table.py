"""Tables: rows in a CSV file that survives kills and several writers, and that a run continues from."""

from __future__ import annotations

import csv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from experiments.sweeps import SMALL, write_experiment

from tightpipe.core.engine_version import engine_version
from tightpipe.core.errors import StoppedError
from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.grid import tasks_of
from tightpipe.experiments.guarded_process import Outcome
from tightpipe.experiments.results_table import Form, Solve, Table
from tightpipe.experiments.table_cells import cells
from tightpipe.experiments.task import Task

ENGINE = engine_version()
FORM = Form(
    cells(("setting", "max_mem", "method", "time_limit", "cost", "gap", "engine")),
    ("setting", "max_mem", "method", "engine"),
)
HEAD = "setting,max_mem,method,time_limit,cost,gap,engine\n"


@pytest.fixture
def tasks(tmp_path: Path) -> list[Task]:
    path = write_experiment(tmp_path, SMALL)
    return tasks_of(load_experiment(path), path)


def done(task: Task, cost: int = 90) -> Solve:
    return Solve(task, Outcome({"state": "done", "cost": cost, "gap": 0.1}))


def test_a_row_says_what_the_solve_says_and_nothing_is_empty(tmp_path: Path, tasks: list[Task]) -> None:
    table = Table(tmp_path / "table.csv", FORM)
    for task in tasks[:2]:
        table.append(done(task))
    rows = f"small,4,list,,90,0.100000,{ENGINE}\nsmall,4,cpsat,20,90,0.100000,{ENGINE}\n"
    assert table.path.read_text() == HEAD + rows


def test_tasks_with_a_row_are_done_and_the_newest_row_counts(tmp_path: Path, tasks: list[Task]) -> None:
    table = Table(tmp_path / "table.csv", FORM)
    assert table.missing(tasks) == tasks
    for cost in (90, 80):
        table.append(done(tasks[1], cost))
    assert Table(table.path, FORM).missing(tasks) == [tasks[0], *tasks[2:]]
    assert [row["cost"] for row in table.rows_of(tasks)] == ["80"]


def test_a_torn_line_is_cut_when_the_table_is_opened_and_when_a_row_comes(
    tmp_path: Path, tasks: list[Task]
) -> None:
    table = Table(tmp_path / "table.csv", FORM)
    table.append(done(tasks[0]))
    whole = table.path.read_text()
    table.path.write_text(f"{whole}small,4,cps")
    Table(table.path, FORM)
    assert table.path.read_text() == whole
    table.path.write_text(f"{whole}small,4,cps")
    table.append(done(tasks[0]))
    assert table.path.read_text() == whole + whole.removeprefix(HEAD)


def test_rows_of_another_engine_are_not_done_and_are_set_aside(tmp_path: Path, tasks: list[Task]) -> None:
    table = Table(tmp_path / "table.csv", FORM)
    for task in tasks[:2]:
        table.append(done(task))
    mine = table.path.read_text()
    mixed = mine.replace(f"90,0.100000,{ENGINE}\n", "80,0.100000,0.0.9+1234567\n", 1)
    table.path.write_text(mixed)
    assert table.missing(tasks) == [tasks[0], *tasks[2:]]
    assert table.set_aside_others(ENGINE) == {"0.0.9+1234567": 1}
    assert table.path.read_text() == HEAD + mine.splitlines(keepends=True)[2]
    assert table.backup.read_text() == mixed
    table.append(done(tasks[0]))
    assert len(table.rows()) == 2


def test_a_table_of_one_engine_stays_as_it_is(tmp_path: Path, tasks: list[Task]) -> None:
    table = Table(tmp_path / "table.csv", FORM)
    table.append(done(tasks[0]))
    before = table.path.read_text()
    assert not table.set_aside_others(ENGINE)
    assert table.path.read_text() == before
    assert not table.backup.exists()


def test_several_writers_leave_whole_rows_and_one_header(tmp_path: Path, tasks: list[Task]) -> None:
    def write(cost: int) -> None:
        Table(tmp_path / "table.csv", FORM).append(done(tasks[0], cost))

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(write, range(100)))
    with (tmp_path / "table.csv").open(newline="") as file:
        assert sorted(int(row["cost"]) for row in csv.DictReader(file)) == list(range(100))
    assert {path.name for path in tmp_path.iterdir()} == {"table.csv", "small.json", "experiment.toml"}


def test_a_table_that_cannot_be_written_any_more_stops_the_run(tmp_path: Path, tasks: list[Task]) -> None:
    table = Table(tmp_path / "there" / "table.csv", FORM)
    table.path.unlink()
    table.path.mkdir()
    with pytest.raises(StoppedError, match="Is a directory"):
        table.append(done(tasks[0]))
