"""The committed tables and studies hold what the present code would claim of them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from shutil import copy

import pytest

from tightpipe.experiments import task as task_module
from tightpipe.experiments.experiment import choose_settings
from tightpipe.experiments.presets import (
    Comparison,
    tasks_of_realistic,
    tasks_of_settings,
)
from tightpipe.experiments.study import ROWS, load_study, read_rows, write_figure
from tightpipe.experiments.summary import page
from tightpipe.experiments.task import Task
from tightpipe.params.budget import Allowance
from tightpipe.settings import load_realistic, load_settings
from tightpipe.solver.bounds.formulas import best_bound

pytestmark = pytest.mark.source_tree
RESULTS = Path(__file__).parents[1] / "results"
COMMANDS = {
    "paper_table": ("active", "2p", Allowance(75, 2)),
    "paper_table_long": ("all", "2p", Allowance(600, 1)),
    "paper_table_3p": ("all", "3p", Allowance(30, 1)),
}
"""Settings, memory and limits with which the committed tables were made."""


def tasks_of(name: str) -> list[Task]:
    """Return the tasks of the command that has written a table."""
    if name == "realistic":
        return tasks_of_realistic(load_realistic(), Allowance(15, 1))
    settings, memory, options = COMMANDS[name]
    comparison = Comparison((memory,), ("greedy-v", "best"), "device_span", options)
    return tasks_of_settings(choose_settings(settings), comparison)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_row_is_older_than_the_bounds_by_formula(name: str) -> None:
    """A bound below that of a formula, which takes milliseconds, was found by a code without the formula."""
    settings = load_settings()
    rows = read_rows(RESULTS / f"{name}.csv")
    assert len(rows) == 2 * len({row.problem for row in rows})
    for row in rows:
        instance = settings[row.problem].instance(int(row.memory[0]) * row.p - 2 * row.p)
        assert row.bound is not None
        assert row.cost is not None
        assert best_bound(instance).value <= row.bound <= row.cost, row
        assert (row.status == "optimal") == (row.bound == row.cost), row


@pytest.mark.parametrize("name", [*COMMANDS, "realistic"])
def test_a_committed_table_has_the_grid_of_its_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read_rows(RESULTS / f"{name}.csv")
    monkeypatch.setattr(task_module, "engine_version", lambda: rows[0].engine)
    monkeypatch.setattr(task_module, "ORTOOLS", rows[0].ortools_version)
    assert [row.key for row in rows] == [task.row.key for task in tasks_of(name)]
    assert {row.state for row in rows} == {"done"}


@pytest.mark.parametrize("name", [*COMMANDS, "realistic"])
def test_a_committed_page_is_that_of_its_table(name: str) -> None:
    rows = read_rows(RESULTS / f"{name}.csv")
    assert page(name, rows, f"{name}.png", "greedy-v") == (RESULTS / f"{name}.md").read_text()


@pytest.mark.parametrize(
    "study", sorted(path.parent for path in RESULTS.glob(f"*/{ROWS}")), ids=lambda p: p.name
)
def test_the_figure_and_the_page_of_a_committed_study_show_its_rows(study: Path, tmp_path: Path) -> None:
    copy(study / ROWS, tmp_path)
    # The paths in this copy of an experiment are relative to experiments/, so that it is not loaded as one.
    figure, rows = tomllib.loads((study / "experiment.toml").read_text())["figure"], load_study(tmp_path).rows
    write_figure(figure, rows, tmp_path / figure, ("csv",))
    name = f"{figure}.csv"
    assert (tmp_path / name).read_bytes() == (study / name).read_bytes()
    assert page(study.name, rows, f"{figure}.png") == (study / "summary.md").read_text()
