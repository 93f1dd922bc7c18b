"""What a tick is stands once in the model file, and every time of a plan that people and programs see follows it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call, write
from helpers.handmade_plans import CLUSTER, LAYERS, no_plan, plan, problem

from tightpipe import drawing
from tightpipe.base.tables import csv_text
from tightpipe.cli import costs
from tightpipe.planning import Batch, Plan, SearchSpace, load_plan, plan_to_dict, save_plan
from tightpipe.planning.alternatives import Alternative, alternatives_rows, draw_alternatives, questions
from tightpipe.planning.plan_table import (
    Point,
    draw_device_frontier,
    draw_memory_frontier,
    frontier_rows,
    shown,
)
from tightpipe.planning.problem_file import load_problem, problem_to_dict
from tightpipe.planning.units import Tick
from tightpipe.runtime.profile import MeasuredLayers

TICKS = {  # with the seconds of a tick, and the units of time of a tick
    "1 us": (Tick(), 1e-6, 1),
    "0.5 ms": (Tick(Fraction(1, 2), "ms"), 0.5e-3, 0.5),
    "10 ns": (Tick(Fraction(10), "ns"), 10e-9, 10),
    "0.001 s": (Tick(Fraction(1, 1000), "s"), 1e-3, 0.001),
}
ASKED = problem(
    LAYERS, replace(CLUSTER, devices=(2,)), Batch(4, 1024, 2), SearchSpace(("v",), recompute=("full",))
)
EACH = pytest.mark.parametrize("text", TICKS)


def with_tick(text: str) -> Plan:
    return plan(replace(problem(), tick=TICKS[text][0]))


def cost_of(made: Plan) -> int:
    assert made.cost is not None
    return made.cost


@EACH
def test_the_text_has_times_in_the_unit_of_the_tick(text: str) -> None:
    made, (tick, seconds, units) = with_tick(text), TICKS[text]
    lines = dict(line.split(maxsplit=1) for line in str(made).split("\n\n")[0].splitlines())
    shown_cost, unit, *_ = lines["cost"].split()
    shown_bound, bound_unit, *_ = lines["bound"].replace(":", " ").split()
    assert unit == bound_unit == tick.unit
    assert float(shown_cost) == pytest.approx(cost_of(made) * units)
    assert float(shown_bound) == pytest.approx((made.bound or 0) * units)
    assert float(lines["throughput"].split()[0]) == pytest.approx(12 / (cost_of(made) * seconds), abs=1e-3)


@EACH
def test_the_figures_say_what_a_tick_is(text: str, tmp_path: Path) -> None:
    made, (tick, seconds, units) = with_tick(text), TICKS[text]
    figures = plan_to_dict(made)
    assert (figures["tick"], figures["unit"], figures["cost"]) == (text, tick.unit, made.cost)
    assert figures["step_time"] == pytest.approx(cost_of(made) * units)
    assert figures["tokens_per_second"] == pytest.approx(12 * 1024 / (cost_of(made) * seconds))
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made


def rows_of(made: Plan) -> list[Alternative]:
    asked = next(q for q in questions(made.problem) if q.name == "v-half v uniform")
    return [(asked, made), (asked, no_plan(made.problem))]


@EACH
def test_tables_have_times_in_the_unit_of_the_tick(text: str) -> None:
    made, (tick, seconds, units) = with_tick(text), TICKS[text]
    for rows in (
        alternatives_rows(rows_of(made)),
        frontier_rows("memory", [(Point("4 kB", made.problem), made)]),
    ):
        row = next(csv.DictReader(io.StringIO(csv_text(rows[0], [row.values() for row in rows]))))
        assert row["unit"] == tick.unit
        assert float(row["step_time"]) == pytest.approx(cost_of(made) * units)
        assert float(row["bound"]) == pytest.approx((made.bound or 0) * units)
        assert float(row["tokens_per_second"]) == pytest.approx(12 * 1024 / (cost_of(made) * seconds))
        head, (first, *_) = shown(rows)
        cells = dict(zip(head, first, strict=True))
        assert float(cells[f"step {tick.unit}"].replace(",", "")) == pytest.approx(cost_of(made) * units)
        assert float(cells[f"bound {tick.unit}"].replace(",", "")) == pytest.approx((made.bound or 0) * units)


@EACH
def test_charts_have_milliseconds_and_rates_whatever_a_tick_is(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(drawing, "draw_plans", lambda points, path, **labels: drawn.append(points))
    made, seconds = with_tick(text), TICKS[text][1]
    point = [(Point("2", made.problem), made)]
    draw_alternatives(rows_of(made), "a.png")
    draw_memory_frontier(point, "m.png")
    draw_device_frontier(point, "d.png")
    assert [points[0]["value"] for points in drawn] == pytest.approx(
        [cost_of(made) * seconds * 1000] * 2 + [12 * 1024 / (cost_of(made) * seconds)]
    )


@EACH
def test_the_command_line_speaks_of_the_tick_of_the_file(text: str, tmp_path: Path) -> None:
    tick, seconds, units = TICKS[text]
    model = write(tmp_path, problem_to_dict(ASKED) | {"tick": text}, "model.json")
    options = ("--time-limit", "0.2", "--workers", "1")
    said = json.loads(call("plan", model, "-o", tmp_path / "plan.json", "--json", *options).stdout)
    assert said["step_time"] == pytest.approx(said["cost"] * units)
    assert said["tokens_per_second"] == pytest.approx(4 * 2 * 1024 / (said["cost"] * seconds))
    assert f" {tick.unit} per step\n" in call("plan", model, *options).stdout
    assert f"\nA tick is {text}.\n" in call("explain", tmp_path / "plan.json", "--no-relax").stdout
    folder = tmp_path / "frontier"
    done = call("plan", model, "--memory", "4kB", "-o", folder, *options)
    assert f"step {tick.unit}" in done.stdout
    assert f"step {tick.unit}" in (folder / "frontier.md").read_text()


def test_measured_models_say_what_a_tick_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = {"name": "block", "count": 4, "forward": 5, "backward": 6, "weight": 4}
    monkeypatch.setattr(costs, "profile_layers", lambda *_, **__: MeasuredLayers([layer], 3, ()))
    options = (
        "--vocabulary 9 --layers 2 --hidden 4 --heads 2 --sequence 4 --devices 2 --placement linear -o m.toml"
    )
    assert call("costs", "profile", *options.split(), "--microbatches", "4", cwd=tmp_path).returncode == 0
    assert '\ntick = "1 us"' in (tmp_path / "m.toml").read_text()
    assert load_problem(tmp_path / "m.toml").cluster.comm == 3


def test_written_models_say_what_a_tick_is(tmp_path: Path) -> None:
    assert call("costs", "model", "llama-2-7b", "-o", "m.toml", cwd=tmp_path).returncode == 0
    text = (tmp_path / "m.toml").read_text()
    assert '\ntick = "1 us"' in text
    assert text.index("tick = ") < text.index("[[layers]]")
    assert text.count("microsecond") == 0
