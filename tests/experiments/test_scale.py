"""The benchmark of growing schedules measures each task, and its table has a row for each size."""

from __future__ import annotations

import csv
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import scale  # noqa: E402  # a script, in no package

from tightpipe import validate  # noqa: E402
from tightpipe.heuristics.greedy_v import greedy_v_order  # noqa: E402
from tightpipe.model.simulate import simulate  # noqa: E402

pytestmark = pytest.mark.source_tree


def test_each_size_has_four_times_as_many_operations_as_the_one_before() -> None:
    counts = [6 * p * n for p, n in scale.SIZES]
    assert [b / a for a, b in pairwise(counts)] == [4] * (len(counts) - 1)


@pytest.mark.parametrize("size", [(2, 6), scale.SIZES[0]])
def test_the_instance_has_stages_that_differ_and_a_valid_greedy_schedule(size: tuple[int, int]) -> None:
    instance = scale.instance_of(*size)
    assert len(set(instance.costs.forward)) > 1  # type: ignore[arg-type]  # expanded at birth
    assert validate(instance, simulate(instance, greedy_v_order(instance))) == []


@pytest.mark.parametrize("task", scale.TASKS)
def test_a_task_is_measured(task: str) -> None:
    line = scale.measured(0.1, (2, 6, task))
    assert line["operations"] == 72
    assert float(line["seconds"]) >= 0
    assert line["megabytes"] > 10
    assert "cost" not in line


def test_the_table_has_what_a_search_gains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale, "SIZES", ((2, 6),))
    monkeypatch.setattr(scale, "TASKS", {"simulate": scale.TASKS["simulate"]})
    path = tmp_path / "scale.csv"
    monkeypatch.setattr(sys, "argv", ["scale.py", "--time-limit", "0.2", "-o", str(path)])
    scale.main()
    with path.open(newline="") as file:
        simulated, searched = csv.DictReader(file)
    assert (simulated["task"], simulated["cost"]) == ("simulate", "")
    assert int(searched["bound"]) <= int(searched["cost"]) <= int(searched["start"])
    page = path.with_suffix(".md").read_text()
    assert capsys.readouterr().out.endswith(page)
    assert page.splitlines()[2].startswith("| 2x6 | 72 | ")
