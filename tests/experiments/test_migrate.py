"""Studies of an earlier version are brought to this one without a solve."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from command_line import call
from studies import make_study

from tightpipe.core.engine_version import engine_version
from tightpipe.core.metrics import busy_times, imbalance
from tightpipe.experiments.study.folder import write_rows
from tightpipe.experiments.study.load import ROWS, STORE, load_study

ADDED = ("proof", "imbalance", "memory_of_1f1b")  # since version 1


@pytest.fixture
def results(tmp_path: Path) -> Iterator[Path]:
    """A study whose store and rows are those of version 1."""
    folder = make_study(tmp_path)
    study = load_study(folder)
    write_rows(study.rows, folder)
    with closing(sqlite3.connect(folder / STORE, isolation_level=None)) as connection:
        for column in ADDED:
            connection.execute(f"ALTER TABLE solve DROP COLUMN {column}")
        connection.execute("ALTER TABLE solve RENAME COLUMN engine TO tightpipe_version")
        connection.execute("UPDATE solve SET tightpipe_version = '0.1.0'")
        connection.execute("PRAGMA user_version = 1")
    with (folder / ROWS).open(newline="") as file:
        rows = [
            {key: row[key] for key in row if key not in (*ADDED, "engine")} | {"tightpipe_version": "0.1.0"}
            for row in csv.DictReader(file)
        ]
    with (folder / ROWS).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


def test_a_store_says_afterwards_how_even_work_and_how_large_memory_is(results: Path, tmp_path: Path) -> None:
    assert "--migrate" in call("report", results).stderr
    done = call("sweep", tmp_path / "small.toml", "-o", results, "--migrate")
    assert done.returncode == 0, done.stderr
    study = load_study(results)
    assert {row.memory: row.memory_of_1f1b for row in study.rows} == {"own": 1.0, "3p": 1.5}
    for row in study.rows:
        schedule = study.schedule(row)
        assert schedule is not None
        assert row.imbalance == imbalance(busy_times(schedule))
        assert row.proof is None
        assert row.engine == "0.1.0"  # a version is all that such rows know of their engine
    (results / STORE).unlink()
    assert load_study(results).rows == study.rows


def test_a_table_without_a_store_takes_its_columns_from_the_experiment(results: Path, tmp_path: Path) -> None:
    (results / STORE).unlink()
    assert "other columns" in call("report", results).stderr
    assert call("sweep", tmp_path / "small.toml", "-o", results, "--migrate").returncode == 0
    rows = load_study(results).rows
    assert [(row.memory_of_1f1b, row.imbalance) for row in rows] == [(1.0, 0.0)] * 3 + [(1.5, 0.0)] * 3
    assert {row.status for row in rows} <= {"optimal", "feasible"}
    assert {row.engine for row in rows} == {"0.1.0"}


def test_the_figure_is_drawn_again_too(results: Path, tmp_path: Path) -> None:
    experiment = tmp_path / "small.toml"
    experiment.write_text(experiment.read_text() + 'figure = "scaling"\n')
    assert call("sweep", experiment, "-o", results, "--migrate").returncode == 0
    with (results / "scaling.csv").open(newline="") as file:
        assert {row["p"] for row in csv.DictReader(file)} == {"2"}
    assert (results / "scaling.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", [STORE, ROWS])
def test_what_is_no_study_is_left_as_it_is(name: str, results: Path, tmp_path: Path) -> None:
    (results / STORE).unlink()
    (results / name).write_text("a,b\n1,2\n" * 500)
    done = call("sweep", tmp_path / "small.toml", "-o", results, "--migrate")
    assert done.returncode == 2
    assert done.stderr.startswith(f"tightpipe: {results / name}: ")
    assert (results / name).read_text() == "a,b\n1,2\n" * 500


def test_a_table_of_a_version_knows_no_more_of_its_engine(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    assert call("compare", "--settings", "toy-4x8", "--methods", "list", "-o", table).returncode == 0
    here = table.read_text()
    before = here.replace("engine", "tightpipe_version", 1).replace(engine_version(), "0.1.0")
    table.write_text(before)
    assert "other columns" in call("compare", "--settings", "toy-4x8", "-o", table).stderr
    assert call("compare", "-o", table, "--migrate").returncode == 0
    assert table.read_text() == here.replace(engine_version(), "0.1.0")
    assert (tmp_path / "t.csv.bak").read_text() == before
