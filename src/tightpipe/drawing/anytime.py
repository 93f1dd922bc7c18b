"""A chart of the gap over time for methods that search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from . import palette
from .marks import legend, marker_look, nested_sizes
from .output import draw_points
from .panels import Point, distinct, having, label_y, panels

_FIRST = 0.1  # seconds; the logarithmic axis of time begins here
_LINEAR = 0.001  # below this gap the logarithmic axis is linear, so that it can begin at 0
_TICKS = (0.001, 0.01, 0.1, 1.0)


def draw_gap_over_time(points: Sequence[Point], path: str | Path) -> None:
    """Draw the gap, (cost - bound) / cost, over time, with one panel per problem, and write the figure.

    Lines are step functions, because a gap stays until a better schedule or bound is found. Markers at the
    start and the end of each line tell the methods apart, also where lines coincide. A line is solid if
    the solve began with the best heuristic's schedule, dashed if it began without one, and dotted otherwise.

    Parameters
    ----------
    points
        Points sorted by time, with the keys `panel`, `method` and `start` (texts; `start` names the warm
        start), `seconds` (since the solve began) and `gap`. The last point of a solve lies at the end of the
        solve. If points have the key `engine` (an engine version), the figure names these versions.
    path
        File to write, ending in ``.pdf``, ``.png`` or ``.svg``.

    Raises
    ------
    InputError
        If there is no point, the suffix is not known, or the file cannot be written.
    """
    draw_points(points, path, lambda: _draw(points))


def _draw(points: Sequence[Point]) -> Figure:
    methods, starts = distinct(points, "method"), distinct(points, "start")
    looks, sizes = palette.series(methods), nested_sizes(len(methods))
    figure, axes = panels(distinct(points, "panel"))
    longest = max((p["seconds"] for p in points), default=1.0)
    for panel in axes:
        here = having(points, panel=panel.get_title())
        for method, size in zip(methods, sizes, strict=True):
            for start in starts:
                line = having(here, method=method, start=start)
                if not line:  # for an empty line, matplotlib would still make room for markers
                    continue
                seconds = [max(_FIRST, p["seconds"]) for p in line]
                look = marker_look(looks[method], size) | {"linestyle": _dashes(start), "markevery": [0, -1]}
                panel.step(seconds, [p["gap"] for p in line], where="post", clip_on=False, **look)
        panel.set_xscale("log")
        panel.set_xlim(_FIRST, max(10 * _FIRST, longest))
        panel.set_yscale("symlog", linthresh=_LINEAR)
        panel.set_xlabel("seconds")
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
    axes[0].set_ylim(0, 1)  # sets it for all panels, which share the axis
    axes[0].set_yticks([0, *_TICKS], ["0 %", *(f"{100 * tick:g} %" for tick in _TICKS)])
    axes[0].yaxis.set_minor_locator(NullLocator())
    label_y(axes, "gap = (cost - bound) / cost")
    legend(figure, [Line2D([], [], label=method, **marker_look(looks[method])) for method in methods])
    legend(figure, [
        Line2D([], [], label=f"from {_start_text(start)}", linestyle=_dashes(start), color=palette.INK)
        for start in starts
    ], "outside lower center")  # fmt: skip
    return figure


def _dashes(start: str) -> Any:
    """Return the line style of a warm start: solid for ``best``, dashed for ``none``, dotted for others."""
    return {"best": "-", "none": (0, (3, 1.5))}.get(start, ":")


def _start_text(start: str) -> str:
    return {"best": "the best heuristic", "none": "nothing"}.get(start, start)
