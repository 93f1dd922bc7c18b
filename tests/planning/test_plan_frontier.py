"""Frontiers: which problems their points are, and that plans of less memory serve under more."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from helpers.handmade_plans import CLUSTER, LAYERS, SPACE, plan, problem

from tightpipe import InputError, Status
from tightpipe.params.budget import Allowance
from tightpipe.planning import Batch, Plan, PlanningProblem, plan_table, problem_to_dict
from tightpipe.planning.plan_file import PlanFolder
from tightpipe.planning.plan_table import Point, device_points, frontier, frontier_rows, memory_points

DATA = problem_to_dict(problem(LAYERS, replace(CLUSTER, devices=(2,)), Batch(6, 1024, 4), SPACE))


def test_the_points_of_memory_ascend() -> None:
    points = memory_points(DATA, ["4 kB", "5000", "3KiB"])
    assert [(p.name, p.problem.cluster.memory) for p in points] == [
        ("3KiB", 3072),
        ("4 kB", 4000),
        ("5000", 5000),
    ]
    assert replace(points[0].problem, cluster=points[1].problem.cluster) == points[1].problem


def test_the_number_of_gpus_and_of_microbatches_stays_the_same() -> None:
    points = device_points(DATA, ["4", "1", "2"])
    assert [p.name for p in points] == ["1", "2", "4"]
    for point in points:
        batch, (devices,) = point.problem.batch, point.problem.cluster.devices
        assert devices * batch.data_parallel == 2 * 4
        assert batch.microbatches * batch.data_parallel == 6 * 4
        assert batch.tokens == 1024


def test_sharded_state_is_shared_by_all_pipelines() -> None:
    data = {**DATA, "cluster": {**DATA["cluster"], "bytes_per_parameter": {"replicated": 2, "sharded": 8}}}
    points = device_points(data, ["1", "4"])
    assert [p.problem.cluster.bytes_per_parameter for p in points] == [2 + Fraction(8, 8), 2 + Fraction(8, 2)]


def test_a_global_batch_stays_as_it_is() -> None:
    data = {**DATA, "batch": {"global_batch": 48, "microbatch_size": 2, "data_parallel": 4}}
    assert [p.problem.batch.microbatches for p in device_points(data, ["1", "2", "4"])] == [3, 6, 12]


MATRIX = {**DATA, "cluster": {**DATA["cluster"], "comm": [[0, 1], [1, 0]]}}
SEVERAL = {**DATA, "cluster": {**DATA["cluster"], "devices": [2, 4]}}


@pytest.mark.parametrize(
    ("points", "data", "values", "message"),
    [
        (memory_points, DATA, ["4 kB", "4000"], "memory = '4 kB,4000': must have each value once"),
        (memory_points, DATA, ["4 XB"], "memory = '4 XB': unknown unit"),
        (memory_points, DATA, [""], "memory = '': must be bytes, or a text of a number and one of"),
        (memory_points, DATA, ["50"], "with memory 50: cluster.reserve = 70"),
        (device_points, DATA, ["3"], "devices = 3: must divide the number of GPUs, 8"),
        (device_points, DATA, ["two"], "devices = 'two': must be an integer"),
        (device_points, DATA, ["0"], "devices = 0: must be at least 1"),
        (device_points, DATA, ["2", "2"], "devices = '2,2': must have each value once"),
        (device_points, MATRIX, ["4"], "on 4 devices: cluster.comm"),
        (device_points, SEVERAL, ["4"], r"cluster.devices = \[2, 4\]: must be one number"),
    ],
)
def test_what_makes_no_points_is_one_line(
    points: Any, data: dict[str, Any], values: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        points(data, values)


def test_microbatches_that_cannot_be_shared_are_refused() -> None:
    search = {"placements": ["v"]}
    data = {**DATA, "batch": {"microbatches": 3, "data_parallel": 1}, "search": search}
    with pytest.raises(InputError, match="makes 2 pipelines, which cannot share 3 microbatches evenly"):
        device_points(data, ["1"])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[PlanningProblem]:
    """Let the search answer with a plan that gets worse with more memory, and note what it was asked."""
    seen: list[PlanningProblem] = []

    def search(asked: PlanningProblem, **_: object) -> Plan:
        seen.append(asked)
        worse = {"cuts": (0, 2, 3, 4, 10), "recomputed": ((), (), (), ())}
        made = plan(asked) if asked.cluster.memory == 4000 else plan(asked, **worse)
        return replace(made, bound=1, status=Status.FEASIBLE)

    monkeypatch.setattr(plan_table, "find_plan", search)
    return seen


def run(points: list[Point], folder: Path, growing: bool) -> list[Plan]:
    keep = PlanFolder(folder, Allowance(1.0))
    found = frontier(points, Allowance(1.0), keep, lambda _: lambda entry: None, growing=growing)
    return [plan for _, plan in found]


def test_a_plan_of_less_memory_serves_under_more(asked: list[PlanningProblem], tmp_path: Path) -> None:
    points = memory_points(DATA, ["4000", "5000", "6000"])
    first, *more = run(points, tmp_path, growing=True)
    assert [p.candidate for p in more] == [first.candidate] * 2
    assert [p.problem for p in more] == [point.problem for point in points[1:]]
    (_, alone) = run(points[:2], tmp_path / "other", growing=False)
    assert alone.cost is not None
    assert first.cost is not None
    assert alone.cost > first.cost


def test_points_that_are_done_are_not_searched_for_again(
    asked: list[PlanningProblem], tmp_path: Path
) -> None:
    points = memory_points(DATA, ["4000", "5000"])
    run(points[:1], tmp_path, growing=True)
    assert len(asked) == 1
    found = run(points, tmp_path, growing=True)
    assert asked == [point.problem for point in points]
    assert run(points, tmp_path, growing=True) == found
    assert len(asked) == 2


def test_the_axis_is_the_first_column() -> None:
    (point,) = device_points(DATA, ["2"])
    (row,) = frontier_rows("devices", [(point, plan(point.problem))])
    assert list(row)[:2] == ["devices", "pipelines"]
    assert (row["devices"], row["pipelines"]) == ("2", 4)
