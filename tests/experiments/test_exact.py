"""The benchmark of exact solvers: its grids, and its rows."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from tightpipe.cli.filling import fill_table
from tightpipe.core.allowance import Allowance
from tightpipe.experiments import task as task_module
from tightpipe.experiments.study import files_beside, read_rows

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import exact  # noqa: E402  # a script, in no package

CONDITIONS = {
    "exact": ("fixed", Allowance(10, 1)),
    "exact_goals": ("goals", Allowance(120, 2)),
    "exact_random": ("random", Allowance(60, 1)),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_the_committed_tables_are_those_of_the_grids(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    instances, options = CONDITIONS[name]
    path = ROOT / f"results/{name}.csv"
    rows = read_rows(path)
    monkeypatch.setattr(task_module, "engine_version", lambda: rows[0].engine)
    monkeypatch.setattr(task_module, "ORTOOLS", rows[0].ortools_version)
    assert [row.key for row in rows] == [task.row.key for task in exact.tasks_of(instances, options)]
    assert exact.markdown(instances, rows) == path.with_suffix(".md").read_text()


def test_every_solver_proves_a_small_optimum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, files = "linear 2x4 (10,12,8,1)", files_beside(tmp_path / "table.csv")
    tasks = [task for task in exact.tasks_of("fixed", Allowance(60, 1)) if task.row.problem == first]
    from_the_best = [task for task in tasks if task.row.warm_start == "best"]
    report = partial(exact._report, "fixed", files=files)
    fill_table(from_the_best, files, 300, 1, report, extend=False)
    rows = read_rows(files.rows)
    assert [exact._name(row) for row in rows] == list(exact.SOLVERS)
    assert {row.status for row in rows} == {"optimal"}
    assert len({row.cost for row in rows}) == 1
    for row in rows:
        assert row.cpu_seconds is not None
        assert row.cpu_seconds >= 0
        assert exact._points(row)[-1]["gap"] == 0
    assert files.page.read_text() == capsys.readouterr().out
    assert (tmp_path / "table.png").exists()
