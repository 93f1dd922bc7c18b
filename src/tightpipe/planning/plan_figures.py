"""What the figures of several plans draw, and how: step times of alternatives, and frontiers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import drawing
from ..core.engine_version import engine_version
from ..drawing.panels import Point as Drawn
from .alternatives import Alternative, Split
from .plan import Plan
from .plan_frontier import Point

_MS = 1000  # ticks of a millisecond


def draw_alternatives(found: Sequence[Alternative], path: str | Path) -> None:
    """Draw the step times of the best and of the uniform split of each family, with its bound."""
    points = [
        {
            "place": f"{question.family.method} {question.family.placement}",
            "series": f"{question.split} split",
            "value": None if plan.cost is None else plan.cost / _MS,
            "bound": None if plan.bound is None or question.split is Split.UNIFORM else plan.bound / _MS,
            "engine": engine_version(),
        }
        for question, plan in found
    ]
    drawing.draw_plans(points, path, x_label="", y_label="step time in ms")


def draw_memory_frontier(found: Sequence[tuple[Point, Plan]], path: str | Path) -> None:
    """Draw the step time of the plan for each memory of a device, with its bound."""
    points = [
        _point(point.name, plan.cost and plan.cost / _MS, plan.bound and plan.bound / _MS)
        for point, plan in found
    ]
    drawing.draw_plans(points, path, x_label="memory of a device", y_label="step time in ms")


def draw_device_frontier(found: Sequence[tuple[Point, Plan]], path: str | Path) -> None:
    """Draw the throughput of the plan for each number of devices of a pipeline, with its bound."""
    in_tokens = found[0][1].problem.batch.tokens is not None
    points = [_point(point.name, _rate(plan, plan.cost), _rate(plan, plan.bound)) for point, plan in found]
    y_label = f"{'tokens' if in_tokens else 'microbatches'} per second"
    drawing.draw_plans(points, path, x_label="devices of a pipeline", y_label=y_label, higher=True)


def _rate(plan: Plan, ticks: int | None) -> float | None:
    """Return the throughput of all pipelines per second if a step takes so many ticks."""
    batch = plan.problem.batch
    return ticks and batch.microbatches * batch.data_parallel * (batch.tokens or 1) * 1e6 / ticks


def _point(place: str, value: float | None, bound: float | None) -> Drawn:
    return {"place": place, "series": "plan", "value": value, "bound": bound, "engine": engine_version()}
