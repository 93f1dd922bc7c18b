"""A chart of bubble rates against memory or communication, with the proven bounds behind them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from . import palette
from .marks import legend, line_look, marker_look, nested_sizes, proof_handles
from .output import draw_points
from .palette import Look
from .panels import Point, distinct, having, label_y, panels

_STEP: dict[bool | None, Literal["pre", "post"] | None] = {True: "post", False: "pre", None: None}
_LEVEL = {True: "steps-post", False: "steps-pre", None: "default"}
"""How a line runs on from a marker: level to the looser side, whichever that is, or straight."""
_MARGIN = 0.03  # share of the range of x that is added at both ends


def draw_frontier(points: Sequence[Point], path: str | Path, *, x_label: str, looser: bool | None) -> None:
    """Draw bubble rates against a constraint such as the memory limit, and write the figure.

    There is one panel per problem. A marker shows the bubble rate that a method reached under one value of
    the constraint. Nothing was measured between two markers. A marker's schedule stays valid under every
    looser constraint, so its line runs level to the method's next marker on the looser side. The optimum lies
    in the band between the bound and the best schedule. Between two values of the constraint, the band is
    drawn from the bound under the looser one up to the best schedule under the tighter one.

    Parameters
    ----------
    points
        Points with the keys `panel` and `method` (texts), `x` (number), `bubble_rate` (None without a
        schedule) and `bound_rate` (no schedule at `x` has a lower bubble rate). If points have the key
        `engine` (an engine version), the figure names these versions.
    path
        File to write, ending in ``.pdf``, ``.png`` or ``.svg``.
    x_label
        Label of the axis of `x`.
    looser
        Whether a larger `x` is a looser constraint, as it is for memory. None where `x` is no constraint:
        straight lines then join the markers and guide the eye.

    Raises
    ------
    InputError
        If there is no point, the suffix is not known, or the file cannot be written.
    """
    draw_points(points, path, lambda: _draw(points, x_label, looser))


def _draw(points: Sequence[Point], x_label: str, looser: bool | None) -> Figure:
    methods = distinct(points, "method")
    looks, sizes = palette.series(methods), nested_sizes(len(methods))
    figure, axes = panels(distinct(points, "panel"))
    first, last = (pick(p["x"] for p in points) for pick in (min, max))
    margin = _MARGIN * (last - first or 1)
    axes[0].set_xlim(first - margin, last + margin)  # sets it for all panels, which share the axis
    for panel in axes:
        here = having(points, panel=panel.get_title())
        _draw_proven(panel, here, margin, looser)
        for method, size in zip(methods, sizes, strict=True):
            _draw_method(panel, having(here, method=method), looks[method], size, looser)
        panel.set_xlabel(x_label)
        panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes[0].set_ylim(bottom=0)  # set last, so that it applies to all that the panels show
    label_y(axes, "bubble rate")
    lines = {method: line_look(looks[method]) | marker_look(looks[method]) for method in methods}
    legend(figure, [Line2D([], [], label=m, **line) for m, line in lines.items()])
    legend(figure, proof_handles(), "outside lower center")
    return figure


def _draw_method(panel: Axes, points: Sequence[Point], look: Look, size: float, looser: bool | None) -> None:
    """Draw a method's points that have a schedule, each with a level line to the next on the looser side."""
    drawn = sorted((p for p in points if p["bubble_rate"] is not None), key=lambda p: p["x"])
    if not drawn:  # for an empty line, matplotlib would still make room for markers
        return
    x, y = [p["x"] for p in drawn], [p["bubble_rate"] for p in drawn]
    style = line_look(look) | marker_look(look, size)
    panel.plot(x, y, drawstyle=_LEVEL[looser], **style, linewidth=0.9, clip_on=False)


def _draw_proven(panel: Axes, points: Sequence[Point], margin: float, looser: bool | None) -> None:
    """Draw the area that is proven impossible, and above it the band in which the optimum lies.

    The bound under the tightest constraint is also drawn over the margin beyond it, because it holds under
    all tighter constraints.
    """
    places = sorted(distinct(points, "x"))
    bound = [max(p["bound_rate"] for p in having(points, x=x)) for x in places]
    best = [
        min((p["bubble_rate"] for p in having(points, x=x) if p["bubble_rate"] is not None), default=floor)
        for x, floor in zip(places, bound, strict=True)
    ]
    band: dict[str, Any] = {"linewidth": 0, "zorder": 1}
    panel.fill_between(places, 0, best, step=_STEP[looser], color=palette.UNDECIDED, **band)
    x, floor = places, bound
    if looser:
        x, floor = [places[0] - margin, *places], [bound[0], *bound]
    elif looser is not None:
        x, floor = [*places, places[-1] + margin], [*bound, bound[-1]]
    tighter = None if looser is None else not looser  # bounds hold under tighter constraints
    panel.fill_between(x, 0, floor, step=_STEP[tighter], color=palette.PROVEN, **band)
    panel.plot(x, floor, drawstyle=_LEVEL[tighter], color=palette.INK, linewidth=0.8, zorder=2)
