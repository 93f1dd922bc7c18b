"""A chart of plans side by side, with the values that are proven impossible."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from . import palette, style
from .palette import Look
from .style import (
    Point,
    distinct,
    draw_points,
    having,
    label_places,
    legend,
    marker_look,
    nested_sizes,
    proof_handles,
)

_HEIGHT = 2.7  # inches
_WIDTH = 0.8  # width of the band of a place, where places are 1 apart
_ROOM = 0.08  # empty part of the y axis above all numbers, as a share of the largest one


def draw_plans(
    points: Sequence[Point], path: str | Path, *, x_label: str, y_label: str, higher: bool = False
) -> None:
    """Draw the values of plans at each place of the x axis, with the bound behind them, and write the figure.

    The best possible value of a place lies in the band between its bound and its best plan. The y axis begins
    at 0, so that the lengths of bars compare as their values do. Where plans of several series have the same
    value, the marker of the first series encloses those of the next ones.

    Parameters
    ----------
    points
        At least one point, each with the keys `place` and `series` (texts), `value` (None without a plan) and
        `bound`, a proven limit of the values at this place. The bound is None if nothing is proven. If it is
        proven that no plan fits, the bound is infinite, or 0 if a higher value is better. Places are drawn in
        the sequence in which they first appear. If points have the key `engine` (an engine version), the
        figure names these versions.
    path
        File to write, ending in ``.pdf``, ``.png`` or ``.svg``.
    x_label, y_label
        Labels of the axes.
    higher
        Whether a higher value is better (e.g. a throughput); otherwise a lower one is (e.g. a time).
    """
    draw_points(points, path, lambda: _draw(points, x_label, y_label, higher))


def _draw(points: Sequence[Point], x_label: str, y_label: str, higher: bool) -> Figure:
    places, names = distinct(points, "place"), distinct(points, "series")
    figure = Figure(figsize=(style.WIDTH, _HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    looks, sizes = palette.series(names), nested_sizes(len(names))
    top = _top([p[key] for p in points for key in ("value", "bound") if p[key] not in (None, 0, inf)])
    for x, place in enumerate(places):
        here = having(points, place=place)
        _draw_proven(axes, x, here, top, higher)
        for name, size in zip(names, sizes, strict=True):
            _draw_values(axes, x, having(here, series=name), looks[name], size)
    _label(axes, places, x_label, y_label)
    axes.set_ylim(0, top)
    series = zip(names, sizes, strict=True)
    legend(figure, [Line2D([], [], label=name, **_marks(looks[name], size)) for name, size in series])
    legend(figure, proof_handles("above" if higher else "below"), "outside lower center")
    return figure


def _top(numbers: Sequence[float]) -> float:
    """Return where the y axis ends: with room above the numbers."""
    return (1 + _ROOM) * max(numbers, default=1.0)


def _draw_proven(axes: Axes, x: int, points: Sequence[Point], top: float, higher: bool) -> None:
    """Draw the area that no plan can reach at a place, and the band between this area and the best plan.

    `x` is the position of the place, and `top` is the upper end of the y axis.
    """
    bounds = [p["bound"] for p in points if p["bound"] is not None]
    if not bounds:
        return
    bound = min(min(bounds) if higher else max(bounds), top)
    found = [p["value"] for p in points if p["value"] is not None]
    best = (max if higher else min)(found, default=0.0 if higher else top)
    low, high = sorted((bound, best))
    wall = (bound, top) if higher else (0.0, bound)
    common: dict[str, Any] = {"linewidth": 0, "zorder": 1}
    axes.bar(x, high - low, _WIDTH, bottom=low, color=palette.UNDECIDED, **common)
    axes.bar(x, wall[1] - wall[0], _WIDTH, bottom=wall[0], color=palette.PROVEN, **common)
    axes.hlines(bound, x - _WIDTH / 2, x + _WIDTH / 2, color=palette.INK, linewidth=1.0, zorder=2)


def _draw_values(axes: Axes, x: int, points: Sequence[Point], look: Look, size: float) -> None:
    values = [p["value"] for p in points if p["value"] is not None]
    if values:  # for an empty line, matplotlib would still make room for markers
        axes.plot([x] * len(values), values, **_marks(look, size))


def _marks(look: Look, size: float) -> dict[str, Any]:
    return {**marker_look(look, size), "linestyle": "none", "zorder": 3, "clip_on": False}


def _label(axes: Axes, places: Sequence[str], x_label: str, y_label: str) -> None:
    label_places(axes, places)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.yaxis.set_major_formatter(FuncFormatter(style.thousands))
    axes.grid(axis="y", zorder=0)
