"""Uneven work is told: by the metric, by results, by tables and by `explain`, which names the device."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from experiments.test_studies import ROW
from helpers.cases import instances, uniform
from helpers.command_line import SMALL, call, write
from hypothesis import given

from tightpipe import Instance, Status, solve
from tightpipe.experiments.summary import page
from tightpipe.explain import explain
from tightpipe.model.metrics import busiest, busy_times, imbalance
from tightpipe.model.result import Result

TIMES = [16, 10, 10, 10, 10, 10, 10, 18]  # an embedding and a head, both on device 0 of a V
UNEVEN = {**SMALL, "devices": 4, "microbatches": 8, "memory": None, "comm": 0} | dict.fromkeys(
    ("forward", "backward", "weight"), TIMES
)


def test_the_metric_is_largest_over_mean_less_one() -> None:
    assert imbalance([5, 5, 5]) == 0
    assert imbalance([9, 3, 3, 9]) == 0.5
    assert imbalance([10**12] * 1023) == 0  # exactly, however large
    assert busiest([9, 3, 3, 9]) == [0, 3]


@given(instances())
def test_a_result_has_it_with_and_without_a_schedule(instance: Instance) -> None:
    result = solve(instance, "list")
    none = Result(instance, "list", Status.UNKNOWN, None, None, 0.0)
    assert result.imbalance == none.imbalance == imbalance(result.device_busy)
    assert max(result.device_busy) == result.device_busy[result.busiest[0]] == result.work
    assert result.imbalance <= instance.devices - 1


def test_of_pairs_the_schedules_own_busy_times_count() -> None:
    apart = uniform(4, 16, (30, 31, 20), comm=4, placement="bidirectional", overlapped=[81, 70, 70, 81])
    result = solve(apart, "dualpipe")
    assert result.schedule is not None
    assert result.device_busy == busy_times(result.schedule).tolist()
    assert result.imbalance == imbalance(result.device_busy) > 0
    assert result.busiest == [0, 3]


def test_solve_names_the_busiest_device(tmp_path: Path) -> None:
    path = write(tmp_path, UNEVEN)
    data = json.loads(call("solve", path, "--method", "greedy-v", "--json").stdout)
    assert (data["imbalance"], data["busiest"]) == (pytest.approx(816 / 564 - 1), [0])
    said = dict(
        line.split(maxsplit=1) for line in call("solve", path, "--method", "list").stdout.splitlines()
    )
    assert said["imbalance"] == "0.446809 (busiest device: 0)"
    even = dict(
        line.split(maxsplit=1)
        for line in call("solve", write(tmp_path, SMALL), "--method", "list").stdout.splitlines()
    )
    assert len(even) == 11
    assert "imbalance" not in even


def test_explain_says_what_even_work_would_save(tmp_path: Path) -> None:
    call("solve", write(tmp_path, UNEVEN), "--method", "greedy-v", "-o", tmp_path / "s.json")
    said = call("explain", tmp_path / "s.json").stdout
    assert "device 0 works 816, 44.7% above the mean of 564" in said
    assert "if work were even, up to 252 more could be saved" in said
    data = json.loads(call("explain", tmp_path / "s.json", "--json").stdout)
    assert (data["imbalance"], data["busiest"]) == (pytest.approx(816 / 564 - 1), [0])
    even = next(entry for entry in data["relaxations"] if entry["name"] == "even work")
    assert even["how"] == "greedy-v run anew"
    assert 564 <= even["cost"] == data["cost"] - even["saved"] < 600


def test_even_work_is_left_out_where_work_is_even() -> None:
    schedule = solve(uniform(2, 4, (10, 12, 8)), "greedy-v").schedule
    assert schedule is not None
    found = explain(schedule, "greedy-v")
    assert found.uneven == ""
    assert "even work" not in [entry.name for entry in found.relaxations]


def test_a_summary_has_it_beside_the_axes() -> None:
    linear = replace(ROW, method="1f1b", name="1f1b", placement="linear", memory_of_1f1b=2.0)
    rows = [replace(row, memory_of_1f1b=row.memory_of_1f1b or 1.0, imbalance=0.25) for row in (ROW, linear)]
    lines = [line.split("|")[1:-1] for line in page("study", rows).splitlines() if "|" in line]
    assert [cell.strip() for cell in lines[0]][1:3] == ["memory of 1F1B", "imbalance"]
    assert [cell.strip() for cell in lines[2]][1:3] == ["1.00, 2.00", "0.250"]
