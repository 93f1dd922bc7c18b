"""A single schedule as a figure for scripts, and as HTML for notebooks."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from ..core.schedule import Schedule
from .window import WHOLE, Window

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SVG_BARS = 2_000  # a notebook of more would be slow to scroll; an image of them is also smaller


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

    Parameters
    ----------
    schedule
        What to draw; see `tightpipe.drawing.draw_gantt` for what its colours mean.
    label
        What stands above the chart, left of cost and bubble rate.
    memory
        Draw below the chart what each device holds over time, and the limit.
    bound
        A proven lower bound of the cost in ticks, to stand beside the cost.
    window
        First and last tick to show, e.g. ``(0, 5000)``; None for one of them is where the schedule begins or
        ends.
    width
        Inches, 3 to 100; None takes 7, the width of a page with two columns.

    Returns
    -------
    matplotlib.figure.Figure
        For ``figure.savefig(path)``; pyplot knows nothing of it.

    Raises
    ------
    InputError
        If memory is wanted and the instance has no memory deltas, if nothing lies in the window, or if the
        width is out of its range.
    """
    from .gantt import gantt_figure  # loads matplotlib

    return gantt_figure([(label, schedule)], memory=memory, bounds=[bound], window=window, width=width)


def html_of(schedule: Schedule, *, label: str = "", bound: int | None = None) -> str:
    """Return the Gantt chart as HTML: an inline SVG, or an image where there are thousands of bars."""
    from .output import figure_bytes  # loads matplotlib

    figure = plot(schedule, label=label, bound=bound)
    if len(schedule.order) > MOST_SVG_BARS:
        image = b64encode(figure_bytes(figure, ".png", 150)).decode()
        return f'<img alt="Gantt chart" src="data:image/png;base64,{image}">'
    svg = figure_bytes(figure, ".svg", 150).decode()
    return svg[svg.index("<svg") :]  # what stands before it belongs to a file
