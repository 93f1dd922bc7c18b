"""The benchmarks of exact solvers: grids and rows, and the judge of small wide instances."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from helpers.cases import serial_order

from tightpipe import Instance, Status, retime, solve
from tightpipe.cli.sweeping import fill_table
from tightpipe.experiments import task as task_module
from tightpipe.experiments.figure_data import anytime_points
from tightpipe.experiments.study import files_beside, read_rows
from tightpipe.model.metrics import cost
from tightpipe.params.budget import Allowance

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import exact  # noqa: E402  # a script, in no package
import small_wide  # noqa: E402

CONDITIONS = {
    "exact": ("fixed", Allowance(10, 1)),
    "exact_goals": ("goals", Allowance(120, 2)),
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
        assert anytime_points([row])[-1]["gap"] == 0
    assert files.page.read_text() == capsys.readouterr().out
    assert (tmp_path / "table.png").exists()


def test_small_wide_instances_have_every_rule() -> None:
    cases = [small_wide.wide_instance(seed) for seed in range(100)]
    assert {case.devices for case in cases} == {2, 3}
    assert {case.microbatches for case in cases} == {3, 4, 5, 6}
    assert sum(case.costs.fused is not None for case in cases) > 40
    assert sum(case.costs.overlapped is not None for case in cases) > 20
    assert sum(not case.complete for case in cases) > 20
    assert sum(case.barrier is not None for case in cases) > 5


def test_the_judge_knows_an_optimum_from_a_missed_one_and_from_a_false_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = small_wide.wide_instance(32)
    right = solve(instance, "best", effort=20, workers=1)
    assert right.status is Status.OPTIMAL
    serial = retime(instance, serial_order(instance))
    assert cost(serial) > right.cost
    missed = replace(right, schedule=serial, status=Status.FEASIBLE)
    false = replace(right, schedule=serial, bound=cost(serial))
    for result, kind in ((right, "proven"), (missed, "missed"), (false, "FALSE")):
        monkeypatch.setattr(small_wide, "solve", lambda *_, result=result, **__: result)
        assert small_wide.judged(instance, 1, 60)[0] == kind


def test_small_wide_instances_may_have_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Instance] = []

    def judged(instance: Instance, *_: float) -> tuple[str, str]:
        seen.append(instance)
        return "proven", ""

    monkeypatch.setattr(small_wide, "judged", judged)
    small_wide.main(["--copies", "--count", "20"])
    assert sum(instance.offload is not None for instance in seen) > 10
    assert all(instance.memory is not None and instance.memory.limit is not None for instance in seen)
