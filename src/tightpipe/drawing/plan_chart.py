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
from .marks import legend, marker_look, proof_handles
from .output import draw_points
from .palette import Look
from .panels import Point, distinct, having, label_places

_HEIGHT = 2.7  # inches
_WIDTH = 0.8  # width of the band of a place, where places are 1 apart
_ROOM = 0.3  # empty part of the y axis below and above all numbers, as a share of their range
_LEAST_ROOM = 0.02  # least size of this empty part, as a share of the largest number


def draw_plans(
    points: Sequence[Point], path: str | Path, *, x_label: str, y_label: str, higher: bool = False
) -> None:
    """Draw the values of plans at each place of the x axis, with the bound behind them, and write the figure.

    The best possible value of a place lies in the band between its bound and its best plan.

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

    Raises
    ------
    InputError
        If there is no point, the suffix is not known, or the file cannot be written.
    """
    draw_points(points, path, lambda: _draw(points, x_label, y_label, higher))


def _draw(points: Sequence[Point], x_label: str, y_label: str, higher: bool) -> Figure:
    places, names = distinct(points, "place"), distinct(points, "series")
    figure = Figure(figsize=(style.WIDTH, _HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    looks = palette.series(names)
    bottom, top = _range(
        [p[key] for p in points for key in ("value", "bound") if p[key] not in (None, 0, inf)]
    )
    for x, place in enumerate(places):
        here = having(points, place=place)
        _draw_proven(axes, x, here, (bottom, top), higher)
        for name in names:
            _draw_values(axes, x, having(here, series=name), looks[name])
    _label(axes, places, x_label, y_label)
    axes.set_ylim(bottom, top)
    legend(figure, [Line2D([], [], label=name, **_marks(looks[name])) for name in names])
    legend(figure, proof_handles("above" if higher else "below"), "outside lower center")
    return figure


def _range(numbers: Sequence[float]) -> tuple[float, float]:
    """Return where the y axis begins and ends: with room around the numbers, and not below 0."""
    low, high = min(numbers, default=0.0), max(numbers, default=1.0)
    room = max(_ROOM * (high - low), _LEAST_ROOM * high)
    return max(0.0, low - room), high + room


def _draw_proven(
    axes: Axes, x: int, points: Sequence[Point], ends: tuple[float, float], higher: bool
) -> None:
    """Draw the area that no plan can reach at a place, and the band between this area and the best plan.

    `x` is the position of the place, and `ends` are the lower and the upper end of the y axis.
    """
    bounds = [p["bound"] for p in points if p["bound"] is not None]
    if not bounds:
        return
    bound = min(max(min(bounds) if higher else max(bounds), ends[0]), ends[1])
    found = [p["value"] for p in points if p["value"] is not None]
    best = (max if higher else min)(found, default=ends[0] if higher else ends[1])
    low, high = sorted((bound, best))
    wall = (bound, ends[1]) if higher else (ends[0], bound)
    common: dict[str, Any] = {"linewidth": 0, "zorder": 1}
    axes.bar(x, high - low, _WIDTH, bottom=low, color=palette.UNDECIDED, **common)
    axes.bar(x, wall[1] - wall[0], _WIDTH, bottom=wall[0], color=palette.PROVEN, **common)
    axes.hlines(bound, x - _WIDTH / 2, x + _WIDTH / 2, color=palette.INK, linewidth=1.0, zorder=2)


def _draw_values(axes: Axes, x: int, points: Sequence[Point], look: Look) -> None:
    values = [p["value"] for p in points if p["value"] is not None]
    if values:  # for an empty line, matplotlib would still make room for markers
        axes.plot([x] * len(values), values, **_marks(look))


def _marks(look: Look) -> dict[str, Any]:
    return {**marker_look(look), "linestyle": "none", "zorder": 3, "clip_on": False}


def _label(axes: Axes, places: Sequence[str], x_label: str, y_label: str) -> None:
    label_places(axes, places)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.yaxis.set_major_formatter(FuncFormatter(style.thousands))
    axes.grid(axis="y", zorder=0)
