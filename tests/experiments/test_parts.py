"""The benchmark of the method best beside its parts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tightpipe import Instance, solve, validate
from tightpipe.cli.sweeping import fill_table
from tightpipe.experiments.study import files_beside, read_rows
from tightpipe.params.budget import Allowance

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import parts  # noqa: E402  # a script, in no package


@pytest.mark.parametrize("name", parts.UNEVEN)
def test_uneven_instances_have_unlike_stages_and_a_schedule(name: str) -> None:
    instance: Instance = parts.UNEVEN[name]
    assert len(set(instance.costs.forward)) > instance.devices
    found = solve(instance, "list").schedule
    assert found is not None
    assert validate(instance, found) == []


def test_the_table_says_which_part_is_cheaper_than_best_and_by_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(parts.UNEVEN, "small", parts.uneven(1, 2, 4, 2))
    files = files_beside(tmp_path / "table.csv")
    tasks = parts.tasks_of(["small"], Allowance(1, 1))
    fill_table(tasks, files, 300, 1, lambda rows: parts._report(rows, files), extend=False)
    rows = read_rows(files.rows)
    assert [row.method for row in rows] == ["best", *parts.PARTS]
    assert "on 0, and over" in files.page.read_text()
    costs = {"best": 1010, "improve": 1000, "block": 1005, "cpsat": 1020}
    said = parts.markdown([replace(row, cost=costs[row.method], status="feasible") for row in rows])
    assert "| small | 1010 | 1000 | 1005 | 1020 |" in said
    assert "| improve | +1.00 |" in said
    assert "more than its cheapest part on 1, and" in said


def test_a_part_that_refuses_an_instance_is_left_out() -> None:
    methods = [task.row.method for task in parts.tasks_of(["uneven-8x24-lengths"], Allowance(1, 1))]
    assert methods == ["best", "improve", "cpsat"]
