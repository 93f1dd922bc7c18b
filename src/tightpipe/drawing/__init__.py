"""Drawings: schedules as text for terminals, and charts of schedules and of results for papers.

The functions `draw_...` that write a file raise an `InputError` if there is nothing to draw, if the name of
the file does not end in ``.pdf``, ``.png`` or ``.svg``, or if it cannot be written. Where points have the key
`engine`, the version of an engine, the figure names these versions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..model.schedule import Schedule
from .lanes import WHOLE, Window, draw_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .bubble_charts import draw_bubble_rates, draw_frontier, draw_plans
    from .gantt import draw_gantt, html_of
    from .study_charts import draw_distributions, draw_gap_over_time, draw_shares

__all__ = [
    "draw_bubble_rates",
    "draw_distributions",
    "draw_frontier",
    "draw_gantt",
    "draw_gap_over_time",
    "draw_plans",
    "draw_shares",
    "draw_text",
    "html_of",
    "plot",
]

_FIGURES = {
    ".bubble_charts": ("draw_bubble_rates", "draw_frontier", "draw_plans"),
    ".gantt": ("draw_gantt", "html_of"),
    ".study_charts": ("draw_distributions", "draw_gap_over_time", "draw_shares"),
}


def __getattr__(name: str) -> Any:
    """Return the drawing function `name`, which is imported on first use, because matplotlib loads slowly."""
    for module, names in _FIGURES.items():
        if name in names:
            return getattr(import_module(module, __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def plot(
    schedule: Schedule,
    *,
    label: str = "",
    memory: bool = False,
    bound: int | None = None,
    window: Window = WHOLE,
    width: float | None = None,
) -> Figure:
    """Draw the Gantt chart of a schedule.

    The colour of a bar shows the kind of the operation, its shade the chunk; light grey is idle time. The
    figure is not one of those that pyplot shows; save it with ``figure.savefig(path)``.

    Parameters
    ----------
    schedule
        Schedule to draw.
    label
        Text above the chart, left of cost and bubble rate.
    memory
        Whether to draw, below the chart, how much memory each device holds over time, and the limit.
    bound
        A proven lower bound of the cost in ticks, which is shown beside the cost.
    window
        First and last tick to show, e.g. ``(0, 5000)``; None stands for the start or the end of the schedule.
    width
        Width of the figure in inches, 3 to 100; None takes 7, the width of a page with two columns.

    Raises
    ------
    InputError
        If `memory` is set and the instance has no memory, if nothing lies in the window, or if the width is
        out of its range.
    """
    from .gantt import gantt_figure  # imported late because it loads matplotlib

    return gantt_figure([(label, schedule)], memory=memory, bounds=[bound], window=window, width=width)
