"""A chart of bubble rates against memory, with the band between the best schedule and the bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from . import palette
from .marks import legend, line_look, marker_look
from .output import draw_points
from .palette import Look
from .panels import Point, distinct, having, label_y, panels

_MARKER, _LINE = 3.4, 0.7  # points
_MAIN_LINE = 1.2  # width of the line of the last method, which the figure is about
_RING: dict[str, Any] = {"marker": "o", "markersize": 8.0, "markerfacecolor": "none", "linestyle": "none"}
_RING |= {"markeredgecolor": palette.INK, "markeredgewidth": 0.9}


def draw_proven_band(points: Sequence[Point], path: str | Path) -> None:
    """Draw the bubble rates over the memory limit, with one panel per problem, and write the figure.

    At each memory limit, the optimum lies in the band between the bound and the cheapest schedule. A
    schedule that is proven optimal has a ring. Only the markers were measured: the lines that join them, and
    the band between two limits, guide the eye.

    Parameters
    ----------
    points
        Points with the keys `panel` and `method` (texts), `x` (the memory limit as a multiple of p
        activations), `bubble_rate` (None without a schedule, which leaves a gap in the method's line),
        `bound_rate` (no schedule at `x` has a lower bubble rate) and `optimal` (whether the schedule is
        proven optimal). The last method is drawn bold. If points have the key `engine` (an engine version),
        the figure names these versions.
    path
        File to write, ending in ``.pdf``, ``.png`` or ``.svg``.

    Raises
    ------
    InputError
        If there is no point, the suffix is not known, or the file cannot be written.
    """
    draw_points(points, path, lambda: _draw(points))


def _draw(points: Sequence[Point]) -> Figure:
    methods = distinct(points, "method")
    looks = palette.series(methods)
    widths = dict.fromkeys(methods, _LINE) | {methods[-1]: _MAIN_LINE}
    figure, axes = panels(distinct(points, "panel"))
    for panel in axes:
        here = having(points, panel=panel.get_title())
        _draw_band(panel, here)
        for method in methods:
            _draw_method(panel, having(here, method=method), looks[method], widths[method])
        panel.set_xlabel("memory limit / (p activations)")
        panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes[0].set_ylim(bottom=0)  # set last, so that it applies to all that the panels show
    label_y(axes, "bubble rate")
    legend(figure, [_entry(method, looks[method], widths[method]) for method in methods])
    legend(figure, _proof_entries(), "outside lower center")
    return figure


def _draw_method(panel: Axes, points: Sequence[Point], look: Look, width: float) -> None:
    """Draw a method's rates, with gaps where it has no schedule, and a ring around each proven optimum."""
    drawn = sorted(points, key=lambda p: p["x"])
    rates = [math.nan if p["bubble_rate"] is None else p["bubble_rate"] for p in drawn]
    if all(map(math.isnan, rates)):  # for an empty line, matplotlib would still make room for markers
        return
    x, style = [p["x"] for p in drawn], line_look(look) | marker_look(look, _MARKER)
    panel.plot(x, rates, **style, linewidth=width, clip_on=False, zorder=3)
    for point in having(drawn, optimal=True):
        panel.plot(point["x"], point["bubble_rate"], **_RING, clip_on=False, zorder=4)


def _draw_band(panel: Axes, points: Sequence[Point]) -> None:
    """Draw the area that is proven impossible, and above it the band in which the optimum lies."""
    places = sorted(distinct(points, "x"))
    bound = [max(p["bound_rate"] for p in having(points, x=x)) for x in places]
    best = [
        min((p["bubble_rate"] for p in having(points, x=x) if p["bubble_rate"] is not None), default=floor)
        for x, floor in zip(places, bound, strict=True)
    ]
    panel.fill_between(places, bound, best, color=palette.UNDECIDED, linewidth=0, zorder=1)
    panel.fill_between(places, 0, bound, color=palette.PROVEN, linewidth=0, zorder=1)
    panel.plot(places, bound, color=palette.INK, linewidth=0.8, zorder=2)


def _entry(method: str, look: Look, width: float) -> Line2D:
    return Line2D([], [], label=method, **line_look(look) | marker_look(look, _MARKER), linewidth=width)


def _proof_entries() -> list[Patch | Line2D]:
    return [
        Line2D([], [], label="proven optimal", **_RING),
        Patch(facecolor=palette.UNDECIDED, label="proven band: the optimum lies here"),
        Patch(facecolor=palette.PROVEN, label="proven impossible"),
    ]
