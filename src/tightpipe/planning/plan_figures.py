"""Charts of several plans: step times of alternatives, and frontiers over memory or devices."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

from .. import drawing
from ..base.sources import engine_version
from ..drawing.style import Point as Drawn
from ..model.result import Status
from .alternatives import Alternative, Split
from .plan_frontier import Point
from .result import Plan

_MS = 1000  # milliseconds of a second


def draw_alternatives(found: Sequence[Alternative], path: str | Path) -> None:
    """Draw the step times of each family's best and uniform split, and the bound of the family."""
    points = [
        _point(
            f"{question.family.method} {question.family.placement}",
            f"{question.split} split",
            _milliseconds(plan, plan.cost),
            None if question.split is Split.UNIFORM else _least_milliseconds(plan),
        )
        for question, plan in found
    ]
    drawing.draw_plans(points, path, x_label="", y_label="step time in ms")


def draw_memory_frontier(found: Sequence[tuple[Point, Plan]], path: str | Path) -> None:
    """Draw the step time of the plan for each memory of a device, with its bound."""
    points = [
        _point(point.name, "plan", _milliseconds(plan, plan.cost), _least_milliseconds(plan))
        for point, plan in found
    ]
    drawing.draw_plans(points, path, x_label="memory of a device", y_label="step time in ms")


def draw_device_frontier(found: Sequence[tuple[Point, Plan]], path: str | Path) -> None:
    """Draw the throughput of the plan for each number of devices of a pipeline, with its bound."""
    points = [
        _point(point.name, "plan", _rate(plan, plan.cost), _highest_rate(plan)) for point, plan in found
    ]
    unit = "microbatches" if found[0][1].problem.batch.tokens is None else "tokens"
    x_label, y_label = "devices of a pipeline", f"{unit} per second"
    drawing.draw_plans(points, path, x_label=x_label, y_label=y_label, higher=True)


def _milliseconds(plan: Plan, ticks: int | None) -> float | None:
    return None if ticks is None else float(ticks * plan.problem.tick.seconds * _MS)


def _least_milliseconds(plan: Plan) -> float | None:
    """Return the bound in milliseconds: infinite if it is proven that no plan fits, None if none is known."""
    return inf if plan.status is Status.INFEASIBLE else _milliseconds(plan, plan.bound)


def _rate(plan: Plan, ticks: int | None) -> float | None:
    """Return the throughput of all data-parallel pipelines if a training step takes `ticks` ticks.

    It is in tokens per second, or in microbatches per second if the batch has no token count; None if `ticks`
    is None.
    """
    problem = plan.problem
    return None if ticks is None else problem.microbatches_per_second(ticks) * (problem.batch.tokens or 1)


def _highest_rate(plan: Plan) -> float | None:
    """Return the throughput that no plan exceeds: 0 if it is proven that no plan fits, None if unknown."""
    return 0.0 if plan.status is Status.INFEASIBLE else _rate(plan, plan.bound)


def _point(place: str, series: str, value: float | None, bound: float | None) -> Drawn:
    return {"place": place, "series": series, "value": value, "bound": bound, "engine": engine_version()}
