"""Drawings: schedules as text for terminals, and charts of schedules and of results for papers.

The functions `draw_...` that write a file raise an `InputError` if there is nothing to draw, if the suffix of
the file is not known, or if the file cannot be written.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .plot_schedule import plot
from .text import draw_text

if TYPE_CHECKING:
    from .bubble_charts import draw_bubble_rates, draw_frontier, draw_plans
    from .gantt import draw_gantt
    from .study_charts import draw_distributions, draw_gap_over_time, draw_shares, draw_time_to_gap

__all__ = [
    "draw_bubble_rates",
    "draw_distributions",
    "draw_frontier",
    "draw_gantt",
    "draw_gap_over_time",
    "draw_plans",
    "draw_shares",
    "draw_text",
    "draw_time_to_gap",
    "plot",
]

_FIGURES = {
    "draw_bubble_rates": ".bubble_charts",
    "draw_distributions": ".study_charts",
    "draw_frontier": ".bubble_charts",
    "draw_gantt": ".gantt",
    "draw_gap_over_time": ".study_charts",
    "draw_plans": ".bubble_charts",
    "draw_shares": ".study_charts",
    "draw_time_to_gap": ".study_charts",
}


def __getattr__(name: str) -> Any:
    """Return the drawing function `name`, which is imported on first use, because matplotlib loads slowly."""
    if name in _FIGURES:
        return getattr(import_module(_FIGURES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
