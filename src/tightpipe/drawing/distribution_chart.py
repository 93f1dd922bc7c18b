"""A chart of how costs under noise are distributed, with a row for each schedule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from . import palette, style
from .marks import legend
from .output import draw_points
from .palette import Look
from .panels import Point

_MARGIN, _ROW_HEIGHT = 1.0, 0.55  # inches
_BINS = 60  # of each histogram, over the range of the costs of all schedules
_HILL = 0.72  # height of the fullest bin, as a share of a row's height
_QUANTILE = 0.95


def draw_distributions(points: Sequence[Point], path: str | Path) -> None:
    """Draw a histogram of the costs of each schedule in a row of its own, and write the figure.

    Parameters
    ----------
    points
        At least one point, each with the keys `name` (text), `planned` (the cost without noise in ticks) and
        `costs` (the costs in the samples, in ticks, as an array). If points have the key `engine` (an
        engine version), the figure names these versions.
    path
        File to write, ending in ``.pdf``, ``.png`` or ``.svg``.

    Raises
    ------
    InputError
        If there is no point, the suffix is not known, or the file cannot be written.
    """
    draw_points(points, path, lambda: _draw(points))


def _draw(points: Sequence[Point]) -> Figure:
    size = (style.WIDTH, _MARGIN + _ROW_HEIGHT * len(points))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    looks = palette.series([point["name"] for point in points])
    low = min(float(np.min(point["costs"])) for point in points)
    high = max(float(np.max(point["costs"])) for point in points)
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    for row, point in enumerate(points):
        _draw_row(axes, row, point, edges, looks[point["name"]])
    axes.set_yticks(range(len(points)), [point["name"] for point in points])
    axes.set_ylim(len(points) - 0.75, -_HILL - 0.12)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(FuncFormatter(style.thousands))
    axes.set_xlabel("cost in ticks")
    axes.grid(axis="x", zorder=0)
    legend(figure, _handles())
    return figure


def _draw_row(axes: Axes, row: int, point: Point, edges: Any, look: Look) -> None:
    """Draw a histogram of the costs of one schedule, which stands on the baseline of its row.

    Marks on the baseline show the planned cost, the mean and the 95th percentile.
    """
    costs = np.asarray(point["costs"])
    counts, _ = np.histogram(costs, edges)
    height = row - _HILL * counts / max(1, counts.max())
    axes.stairs(height, edges, baseline=row, fill=True, color=look.colour, alpha=0.35, linewidth=0, zorder=2)
    axes.stairs(height, edges, baseline=row, color=look.colour, linewidth=0.7, zorder=3)
    marks: dict[str, Any] = {"linestyle": "none", "zorder": 4, "clip_on": False}
    axes.plot(point["planned"], row, **_PLANNED, **marks)
    axes.plot(float(costs.mean()), row, **_MEAN, **marks)
    axes.plot(float(np.quantile(costs, _QUANTILE)), row, **_P95, **marks)


_PLANNED: dict[str, Any] = {"marker": "D", "markersize": 4, "color": palette.PAPER, "mec": palette.INK}
_MEAN: dict[str, Any] = {"marker": "o", "markersize": 4.5, "color": palette.INK, "mec": palette.PAPER}
_P95: dict[str, Any] = {"marker": "|", "markersize": 9, "color": palette.INK, "mew": 1.5}


def _handles() -> list[Any]:
    return [
        Patch(facecolor=palette.IDLE, edgecolor=palette.SOFT, label="share of the samples"),
        Line2D([], [], linestyle="none", label="planned", **_PLANNED),
        Line2D([], [], linestyle="none", label="mean", **_MEAN),
        Line2D([], [], linestyle="none", label="95th percentile", **_P95),
    ]
