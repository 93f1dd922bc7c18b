"""The committed tables and studies hold what the present code would claim of them."""

from __future__ import annotations

import csv
from pathlib import Path
from shutil import copy

import pytest

from tightpipe.core.allowance import Allowance
from tightpipe.experiments.compare import SETTINGS_FORM, Comparison, tasks_of_settings
from tightpipe.experiments.compare_report import latest, markdown
from tightpipe.experiments.experiment import choose_settings
from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.figure import write_figure
from tightpipe.experiments.realistic import REALISTIC_FORM, choose_realistic, plan_realistic
from tightpipe.experiments.realistic_report import newest, realistic_markdown
from tightpipe.experiments.results_table import Form, Table
from tightpipe.experiments.study import ROWS, load_study
from tightpipe.experiments.sweep import task as task_module
from tightpipe.settings import load_settings
from tightpipe.solver.bounds.formulas import best_bound

pytestmark = pytest.mark.source_tree
RESULTS = Path(__file__).parents[1] / "results"
COMMANDS = {
    "paper_table": ("active", "2p", Allowance(75, 2)),
    "paper_table_long": ("all", "2p", Allowance(600, 1)),
    "paper_table_3p": ("all", "3p", Allowance(600, 1)),
}
"""Settings, memory and limits of the commands that docs/results.md names."""


@pytest.mark.parametrize("name", COMMANDS)
def test_no_row_is_older_than_the_bounds_by_formula(name: str) -> None:
    """A bound below that of a formula, which takes milliseconds, was found by a code without the formula."""
    settings = load_settings()
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len({row["setting"] for row in rows})
    for row in rows:
        instance = settings[row["setting"]].instance(int(row["m_offset"]))
        assert best_bound(instance).value <= int(row["bound"]) <= int(row["cost"]), row
        assert (row["status"] == "optimal") == (row["bound"] == row["cost"]), row


def opened(name: str, form: Form, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Open a committed table; tasks that are planned then have the engine and the versions of its rows."""
    table = Table(RESULTS / f"{name}.csv", form)
    row = table.rows()[0]
    monkeypatch.setattr(task_module, "engine_version", lambda: row["engine"])
    monkeypatch.setattr(task_module, "ORTOOLS", row["ortools_version"])
    return table


@pytest.mark.parametrize("name", COMMANDS)
def test_a_committed_table_is_all_that_compare_continues_from(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, memory, options = COMMANDS[name]
    table = opened(name, SETTINGS_FORM, monkeypatch)
    before = table.path.read_bytes()
    comparison = Comparison((memory,), ("greedy-v", "best"), "device_span", options)
    assert table.missing(tasks_of_settings(choose_settings(settings), comparison)) == []
    assert table.path.read_bytes() == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_committed_page_is_that_of_its_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(name, SETTINGS_FORM, monkeypatch)
    assert markdown(latest(table.rows()), "greedy-v") == table.path.with_suffix(".md").read_text()


def test_the_committed_table_is_all_that_realistic_continues_from(monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened("realistic", REALISTIC_FORM, monkeypatch)
    assert table.missing(plan_realistic(choose_realistic("all"), Allowance(100, 1))) == []
    assert realistic_markdown(newest(table.rows())) == table.path.with_suffix(".md").read_text()


@pytest.mark.parametrize(
    "study", sorted(path.parent for path in RESULTS.glob(f"*/{ROWS}")), ids=lambda p: p.name
)
def test_the_figure_of_a_committed_study_shows_its_rows(study: Path, tmp_path: Path) -> None:
    copy(study / ROWS, tmp_path)
    figure = load_experiment(study / "experiment.toml").figure
    assert figure is not None
    write_figure(figure, load_study(tmp_path).rows, tmp_path)
    name = f"{figure}.csv"
    assert (tmp_path / name).read_bytes() == (study / name).read_bytes()
