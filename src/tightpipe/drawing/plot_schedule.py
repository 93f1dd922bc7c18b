"""A single schedule is drawn as a figure for scripts, or as HTML for notebooks."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from ..model.schedule import Schedule
from .lanes import WHOLE, Window

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SVG_BARS = 2_000  # with more bars a notebook would scroll slowly, and an image is smaller


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

    The colour of a bar shows the kind of the operation, its shade the chunk; light grey is idle time.

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

    Returns
    -------
    matplotlib.figure.Figure
        The figure, e.g. for ``figure.savefig(path)``. It is not one of the figures that pyplot shows.

    Raises
    ------
    InputError
        If `memory` is set and the instance has no memory, if nothing lies in the window, or if the width is
        out of its range.
    """
    from .gantt import gantt_figure  # imported late because it loads matplotlib

    return gantt_figure([(label, schedule)], memory=memory, bounds=[bound], window=window, width=width)


def html_of(schedule: Schedule, *, label: str = "", bound: int | None = None) -> str:
    """Return the Gantt chart as HTML: an inline SVG, or an image if it has more than `MOST_SVG_BARS` bars."""
    from .style import figure_bytes  # imported late because it loads matplotlib

    figure = plot(schedule, label=label, bound=bound)
    if len(schedule.order) > MOST_SVG_BARS:
        image = b64encode(figure_bytes(figure, ".png", 150)).decode()
        return f'<img alt="Gantt chart" src="data:image/png;base64,{image}">'
    svg = figure_bytes(figure, ".svg", 150).decode()
    return svg[svg.index("<svg") :]  # without the XML declaration, which only a file has
