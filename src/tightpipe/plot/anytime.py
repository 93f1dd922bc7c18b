"""The gap over time of methods that search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter, NullLocator

from . import style
from .output import draw_to
from .panels import Point, distinct, having, label_y, legend, panels

_FIRST = 0.1  # seconds at which the logarithmic axis begins
_LINEAR = 0.001  # gap up to which the logarithmic axis is linear, so that it can begin at 0
_TICKS = (0.001, 0.01, 0.1, 1.0)


def draw_gap_over_time(points: Sequence[Point], path: str | Path) -> None:
    """Draw one panel per problem and write the figure.

    Parameters
    ----------
    points
        With `panel`, `method` and `start` (text: the warm start), `seconds` and `gap`, in the
        sequence of time; a solve's last point is where it ended.
    path
        Where to write, ``.pdf``, ``.png`` or ``.svg``.

    Raises
    ------
    InputError
        If the suffix is not known, or the file cannot be written.
    """
    draw_to(path, lambda: _draw(points))


def _draw(points: Sequence[Point]) -> Figure:
    methods, starts = distinct(points, "method"), distinct(points, "start")
    figure, axes = panels(distinct(points, "panel"))
    longest = max((p["seconds"] for p in points), default=1.0)
    for panel in axes:
        here = having(points, panel=panel.get_title())
        for i, method in enumerate(methods):
            for j, start in enumerate(starts):
                line = having(here, method=method, start=start)
                seconds = [max(_FIRST, p["seconds"]) for p in line]
                panel.step(seconds, [p["gap"] for p in line], where="post", clip_on=False, **_look(i, j))
        panel.set_xscale("log")
        panel.set_xlim(_FIRST, max(10 * _FIRST, longest))
        panel.set_yscale("symlog", linthresh=_LINEAR)
        panel.set_xlabel("seconds")
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
    axes[0].set_ylim(0, 1)  # of all panels, which share the axis
    axes[0].set_yticks([0, *_TICKS], ["0 %", *(f"{100 * tick:g} %" for tick in _TICKS)])
    axes[0].yaxis.set_minor_locator(NullLocator())
    label_y(axes, "gap = (cost - bound) / cost")
    legend(figure, [
        *(Line2D([], [], label=method, **_look(i, 0)) for i, method in enumerate(methods)),
        *(
            Line2D([], [], label=f"from {_start_text(start)}", **(_look(0, j) | {"color": style.INK}))
            for j, start in enumerate(starts)
        ),
    ], columns=len(methods) + len(starts))  # fmt: skip
    return figure


def _look(method: int, start: int) -> dict[str, Any]:
    return {
        "color": style.METHOD_COLOURS[method % len(style.METHOD_COLOURS)],
        "linestyle": ("-", (0, (3, 1.5)), ":")[start % 3],
    }


def _start_text(start: str) -> str:
    return {"best": "the best heuristic", "none": "nothing"}.get(start, start)
