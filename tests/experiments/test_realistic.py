"""The suite of realistic instances: data, rows that continue, and what the report makes of them."""

from __future__ import annotations

import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from experiments.test_studies import ROW

from tightpipe import InputError, Instance, Memory
from tightpipe.base.errors import StoppedError
from tightpipe.cli.sweeping import fill_table
from tightpipe.experiments import grid
from tightpipe.experiments.experiment import FigureKind, choose_names
from tightpipe.experiments.figure_data import avoided_points
from tightpipe.experiments.guarded_process import Limits, Outcome
from tightpipe.experiments.presets import tasks_of_realistic
from tightpipe.experiments.study import files_beside, read_rows, write_figure
from tightpipe.experiments.summary import page
from tightpipe.experiments.task import Row
from tightpipe.params.budget import Allowance
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


def test_a_run_says_what_each_method_avoids(tmp_path: Path) -> None:
    files = files_beside(tmp_path / "rows.csv")
    tasks = tasks_of_realistic(["recompute-4x12-tight"], Allowance(time_limit=0.5, workers=1))
    fill_table(tasks, files, 300, 1, lambda _: None, extend=False)
    rows = read_rows(files.rows)
    assert [(row.method, row.costs) for row in rows] == [
        ("greedy-v", "median"), ("greedy-v", "true"), ("cpsat", "true"), ("improve", "true"), ("best", "true"),
    ]  # fmt: skip
    assert all(row.cost for row in rows)
    shares = {point["method"]: point["share"] for point in avoided_points(rows)}
    assert shares["improve"] > 0
    assert f"improve {shares['improve']:.1%} (1)" in page("rows", rows, None, "greedy-v")


def test_as_many_solves_run_at_once_as_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=60)  # lets a solve pass only beside another one

    def meet(_payload: str, limits: Limits, *_: object) -> Outcome:
        both.wait()
        return Outcome({"state": "failed", "error": f"{limits.threads} of 2 cores"})

    monkeypatch.setattr(grid, "run_guarded", meet)
    monkeypatch.setattr("tightpipe.cli.sweeping.usable_cores", lambda: 2)
    files = files_beside(tmp_path / "rows.csv")
    tasks = tasks_of_realistic(["recompute-4x8"], Allowance(time_limit=1, workers=1))
    with pytest.raises(StoppedError, match="2 of the solves failed, the last one: 1 of 2 cores"):
        fill_table(tasks[-2:], files, 300, 2, lambda _: None, extend=False)


def test_an_unknown_name_is_bad_input() -> None:
    with pytest.raises(InputError, match="must be all, or of recompute-4x8"):
        choose_names("recompute-4x8,nothing", load_realistic())


def row(problem: str, method: str, cost: int | None, bound: int | None) -> Row:
    named = {"problem": problem, "method": method, "name": method, "engine": "1.2.3+abc"}
    return replace(ROW, **named, cost=cost, bound=bound)


def shares_of(*rows: Row) -> dict[str, float | None]:
    return {point["method"]: point["share"] for point in avoided_points(rows)}


def test_the_share_avoided_is_measured_against_the_best_bound() -> None:
    rows = [row("a", "greedy-v", 120, 90), row("a", "cpsat", 110, 100), row("a", "improve", 105, None)]
    assert shares_of(*rows) == {"improve": 0.75, "cpsat": 0.5}
    assert shares_of(row("a", "greedy-v", 100, 100), row("a", "improve", 100, None)) == {"improve": None}
    assert shares_of(row("a", "greedy-v", 120, None), row("a", "improve", 105, None)) == {"improve": None}


def test_the_figure_shows_every_share_and_says_why_one_is_missing(tmp_path: Path) -> None:
    costs = {"worse": (110, 150, 105, None), "done": (100, 120, 100, 100)}
    methods = ("greedy-v", "cpsat", "improve", "best")
    rows = [
        row(name, method, cost, 100)
        for name, each in costs.items()
        for method, cost in zip(methods, each, strict=True)
    ]
    write_figure(FigureKind.AVOIDED, rows, tmp_path / "figure", ("svg",))
    shown = {text.strip() for text in re.findall(r"<!--(.*?)-->", (tmp_path / "figure.svg").read_text())}
    assert {"−400%", "no schedule of best", "greedy-v is proven optimal: nothing to avoid", "done"} <= shown
    assert "tightpipe 1.2.3+abc" in shown
