"""Bubble rate against memory or communication: methods as lines over what is proven."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from . import style
from .output import draw_to
from .panels import Point, distinct, having, label_y, legend, look, panels


def draw_frontier(points: Sequence[Point], path: str | Path, *, x_label: str, looser: bool) -> None:
    """Draw one panel per problem and write the figure.

    The band from the bound to the best schedule is where the optimum lies. Between two points it is
    what follows from them: no schedule is better than under the looser constraint, and the best one is
    no worse than under the tighter one.

    Parameters
    ----------
    points
        With `panel` (text), `x` (number), `method` (text), `bubble_rate` (None where there is no
        schedule) and `bound_rate`, the bubble rate that no schedule at `x` undercuts.
    path
        Where to write, ``.pdf``, ``.png`` or ``.svg``.
    x_label
        What `x` is.
    looser
        Whether a larger `x` is a looser constraint, as for memory.

    Raises
    ------
    InputError
        If the suffix is not known, or the file cannot be written.
    """
    draw_to(path, lambda: _draw(points, x_label, looser))


def _draw(points: Sequence[Point], x_label: str, looser: bool) -> Figure:
    methods = distinct(points, "method")
    figure, axes = panels(distinct(points, "panel"))
    for panel in axes:
        here = having(points, panel=panel.get_title())
        _draw_proven(panel, here, looser)
        for index, method in enumerate(methods):
            drawn = [p for p in having(here, method=method) if p["bubble_rate"] is not None]
            drawn.sort(key=lambda p: p["x"])
            panel.plot([p["x"] for p in drawn], [p["bubble_rate"] for p in drawn], **look(index))
        panel.set_xlabel(x_label)
        panel.yaxis.set_major_formatter(PercentFormatter(1.0))
        panel.margins(x=0.02)
    axes[0].set_ylim(bottom=0)  # of all panels, now that they hold what they show
    label_y(axes, "bubble rate")
    handles = [Line2D([], [], label=method, **look(index)) for index, method in enumerate(methods)]
    legend(figure, [*handles, *_proof_handles()])
    return figure


def _draw_proven(panel: Axes, points: Sequence[Point], looser: bool) -> None:
    """Draw what is proven impossible, and above it the band in which the optimum lies."""
    places = sorted(distinct(points, "x"))
    bound = [max(p["bound_rate"] for p in having(points, x=x)) for x in places]
    best = [
        min((p["bubble_rate"] for p in having(points, x=x) if p["bubble_rate"] is not None), default=floor)
        for x, floor in zip(places, bound, strict=True)
    ]
    floor_holds: Literal["pre", "post"] = "pre" if looser else "post"
    ceiling_holds: Literal["pre", "post"] = "post" if looser else "pre"
    band: dict[str, Any] = {"linewidth": 0, "zorder": 1}
    panel.fill_between(places, 0, best, step=ceiling_holds, color=style.UNDECIDED, **band)
    panel.fill_between(places, 0, bound, step=floor_holds, color=style.PROVEN, **band)
    panel.step(places, bound, where=floor_holds, color=style.INK, linewidth=0.8, zorder=2)


def _proof_handles() -> list[Patch]:
    return [
        Patch(facecolor=style.UNDECIDED, label="the optimum lies here"),
        Patch(facecolor=style.PROVEN, label="proven impossible (below the bound)"),
    ]
