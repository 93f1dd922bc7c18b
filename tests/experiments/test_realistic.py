"""The suite of realistic instances: data, rows that continue, and what the report makes of them."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from tightpipe import InputError, Instance, Memory
from tightpipe.cli.filling import fill_table
from tightpipe.core.allowance import Allowance
from tightpipe.experiments import executor
from tightpipe.experiments.guarded_process import Limits, Outcome
from tightpipe.experiments.realistic import METHODS, REALISTIC_FORM, choose_realistic, plan_realistic
from tightpipe.experiments.realistic_report import avoided, draw_avoided, realistic_markdown
from tightpipe.experiments.results_table import Table
from tightpipe.settings import load_realistic, with_median_costs


def test_the_suite_is_what_its_head_says() -> None:
    suite = load_realistic()
    assert len(suite) == 30
    for name, entry in suite.items():
        instance = entry.instance()
        assert 4 <= instance.devices <= 16, name
        assert instance.infeasibility() is None, name
        assert 1.1 <= entry.backward / entry.forward <= 2.0, name
    nodes = suite["nodes-16x32"].instance()
    assert nodes.comm(7, 8) > nodes.comm(6, 7) == nodes.comm(8, 9)
    head = suite["head-4x8"].instance()
    assert head.duration(0, 7) > head.duration(0, 1) > head.duration(0, 0)


def test_median_costs_are_uniform() -> None:
    instance = with_median_costs(load_realistic()["slopes-8x16"].instance())
    assert {instance.duration(0, s) for s in range(instance.stages)} == {1000}
    assert {instance.memory_limit(d) for d in range(8)} == {12 * 74}


def test_limits_stay_where_the_smallest_would_not_hold_an_activation_of_every_stage() -> None:
    memory = Memory([1, 9], [-1, -9], 0, [2, 30])
    costs = {"forward": [10, 20], "backward": [10, 30], "weight": 5, "comm": 1}
    instance = Instance.uniform(devices=2, microbatches=4, placement="linear", memory=memory, **costs)
    median = with_median_costs(instance)
    assert [median.memory_limit(d) for d in range(2)] == [2, 30]
    assert [median.duration(0, s) for s in range(2)] == [10, 10]


def test_a_run_continues_and_its_rows_hold_together(tmp_path: Path) -> None:
    table = Table(tmp_path / "rows.csv", REALISTIC_FORM)
    tasks = plan_realistic(["recompute-4x12-tight"], Allowance(time_limit=0.5, workers=1))
    assert fill_table(table, tasks[:1], 300) == []
    assert [row["method"] for row in table.rows()] == [METHODS[0]]
    left = table.missing(tasks)
    assert [(task.row.method, task.row.costs) for task in left] == [(name, "true") for name in METHODS[1:]]
    assert fill_table(table, tasks, 300) == []
    assert table.missing(tasks) == []
    rows = table.rows()
    assert [row["method"] for row in rows] == list(METHODS)
    assert all(row["cost"] for row in rows)
    assert avoided(rows, "improve")["recompute-4x12-tight"] > 0
    assert "improve avoids" in realistic_markdown(rows)


def test_as_many_solves_run_at_once_as_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=60)  # lets a solve pass only beside another one

    def meet(_payload: str, limits: Limits, *_: object) -> Outcome:
        both.wait()
        return Outcome({"state": "failed", "error": f"{limits.threads} of 2 cores"})

    monkeypatch.setattr(executor, "run_guarded", meet)
    monkeypatch.setattr("tightpipe.cli.filling.os.cpu_count", lambda: 2)
    table = Table(tmp_path / "rows.csv", REALISTIC_FORM)
    tasks = plan_realistic(["recompute-4x8"], Allowance(time_limit=1, workers=1))
    assert fill_table(table, tasks[-2:], 300, at_once=2) == ["1 of 2 cores"] * 2


def test_an_unknown_name_is_bad_input() -> None:
    with pytest.raises(InputError, match="must be all, or of recompute-4x8"):
        choose_realistic("recompute-4x8,nothing")


def test_the_share_avoided_is_measured_against_the_best_bound() -> None:
    def row(method: str, cost: str, bound: str) -> dict[str, str]:
        return {"setting": "a", "method": method, "cost": cost, "bound": bound}

    rows = [row("greedy-v", "120", "90"), row("cpsat", "110", "100"), row("improve", "105", "")]
    assert avoided(rows, "improve") == {"a": 0.75}
    assert avoided(rows, "cpsat") == {"a": 0.5}
    closed = [row("greedy-v", "100", "100"), row("improve", "100", "")]
    assert avoided(closed, "improve") == {}
    unproven = [row("greedy-v", "120", ""), row("improve", "105", "")]
    assert avoided(unproven, "improve") == {}


def test_the_figure_shows_every_share_and_says_why_one_is_missing(tmp_path: Path) -> None:
    rows = [
        {"setting": setting, "method": method, "cost": cost, "bound": "100", "engine": "1.2.3+abc"}
        for setting, costs in {
            "worse": ("150", "110", "105", "100", ""),
            "done": ("120", "100", "100", "100", "100"),
        }.items()
        for method, cost in zip(METHODS, costs, strict=True)
    ]
    draw_avoided(rows, str(tmp_path / "figure.svg"))
    shown = {text.strip() for text in re.findall(r"<!--(.*?)-->", (tmp_path / "figure.svg").read_text())}
    assert {"−400%", "no schedule of best", "greedy-v is proven optimal: nothing to avoid", "done"} <= shown
    assert "tightpipe 1.2.3+abc" in shown
