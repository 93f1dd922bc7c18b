"""Charts of studies: gap over time, shares of an avoidable cost, costs under noise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator, PercentFormatter

from . import palette, style
from .palette import Look
from .style import Point, distinct, draw_points, having, label_y, legend, marker_look, nested_sizes, panels

_FIRST_GAP = 0.1  # seconds; the logarithmic axis of time begins here
_LINEAR = 0.001  # below this gap the logarithmic axis is linear, so that it can begin at 0
_TICKS = (0.001, 0.01, 0.1, 1.0)
_STARTS = {"best": "the best heuristic", "none": "nothing"}


def draw_gap_over_time(points: Sequence[Point], path: str | Path) -> None:
    """Draw the gap, (cost - bound) / cost, over time, with one panel per problem, and write the figure.

    Lines are step functions, because a gap stays until a better schedule or bound is found. Markers at the
    start and the end of each line tell the methods apart, also where lines coincide. A line is solid if
    the solve began with the best heuristic's schedule, dashed if it began without one, and dotted otherwise.

    Each solve has a line. Its points are sorted by time, and have the keys `panel`, `solve`, `method` and
    `start` (texts; `start` names the warm start), `seconds` (since the solve began) and `gap`. The last one
    of a solve lies at its end.
    """
    draw_points(points, path, lambda: _draw_anytime(points))


def _draw_anytime(points: Sequence[Point]) -> Figure:
    methods, starts = distinct(points, "method"), distinct(points, "start")
    looks, sizes = palette.series(methods), nested_sizes(len(methods))
    figure, axes = panels(distinct(points, "panel"))
    longest = max((p["seconds"] for p in points), default=1.0)
    for panel in axes:
        here = having(points, panel=panel.get_title())
        for method, size in zip(methods, sizes, strict=True):
            of_method = having(here, method=method)
            for solve in distinct(of_method, "solve"):
                line = having(of_method, solve=solve)
                seconds = [max(_FIRST_GAP, p["seconds"]) for p in line]
                dashes = _dashes(line[0]["start"])
                look = marker_look(looks[method], size) | {"linestyle": dashes, "markevery": [0, -1]}
                panel.step(seconds, [p["gap"] for p in line], where="post", clip_on=False, **look)
        panel.set_xscale("log")
        panel.set_xlim(_FIRST_GAP, max(10 * _FIRST_GAP, longest))
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
        Line2D([], [], label=f"from {_STARTS.get(start, start)}", linestyle=_dashes(start), color=palette.INK)
        for start in starts
    ], "outside lower center")  # fmt: skip
    return figure


def _dashes(start: str) -> Any:
    """Return the line style of a warm start: solid for ``best``, dashed for ``none``, dotted for others."""
    return {"best": "-", "none": (0, (3, 1.5))}.get(start, ":")


_SHARE_HEIGHT = 0.25  # inches
_SHARE_MARGIN = 1.0
_BAND = 0.9  # part of a row over which its marks are spread, so that equal shares do not hide each other
_MARKER = 3.6  # points
_LOWEST = -0.25  # a smaller share is drawn as an arrow at the edge, with its value
_BEHIND_ARROW = 0.015  # distance from an arrow to its value, in units of the axis


def draw_shares(points: Sequence[Point], path: str | Path, *, x_label: str) -> None:
    """Draw the share of an avoidable cost that each method avoids, in one row per setting; write the figure.

    A share below -25 % is an arrow at the left edge, with its value beside it. Where a share is missing, the
    reason is written: within the row if the row has no mark at all, otherwise at the right end of the row.

    Points have the keys `setting` and `method` (texts), `share` (1 if all of the avoidable cost is avoided,
    below 0 if the method adds to it, None if the share is missing) and `why` (the reason of a missing share
    in a few words). `x_label` is the label of the axis of shares.
    """
    draw_points(points, path, lambda: _draw_shares(points, x_label))


def _draw_shares(points: Sequence[Point], x_label: str) -> Figure:
    settings, methods = distinct(points, "setting"), distinct(points, "method")
    looks = palette.series(methods)
    figure = Figure(
        figsize=(style.WIDTH, _SHARE_MARGIN + _SHARE_HEIGHT * len(settings)), layout="constrained"
    )
    axes = figure.add_subplot()
    axes.set_xlim(_LOWEST, 1.02)
    for row, setting in enumerate(settings):
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, color=palette.GROUND, linewidth=0, zorder=0)
        here = having(points, setting=setting)
        for index, method in enumerate(methods):
            y = row + _BAND * ((index + 0.5) / len(methods) - 0.5)
            for point in having(here, method=method):
                _draw_point(axes, point["share"], y, looks[method])
        _write_reasons(axes, here, row)
    _label(axes, settings, x_label)
    handles = [Line2D([], [], label=m, **marker_look(looks[m]), linestyle="none") for m in methods]
    legend(figure, handles)
    return figure


def _draw_point(axes: Axes, share: float | None, y: float, look: Look) -> None:
    if share is None:
        return
    common: dict[str, Any] = {"linestyle": "none", "clip_on": False, "zorder": 3}
    if share >= _LOWEST:
        axes.plot(share, y, **marker_look(look, _MARKER), **common)
        return
    axes.plot(_LOWEST, y, marker=4, markersize=4, color=look.colour, **common)
    axes.text(
        _LOWEST + _BEHIND_ARROW,
        y,
        f"{share:.0%}".replace("-", "−"),
        va="center_baseline",
        color=look.colour,
        fontsize=6,
    )


def _write_reasons(axes: Axes, points: Sequence[Point], row: int) -> None:
    """Write into a row why shares are missing there."""
    missing = having(points, share=None)
    alone = len(missing) == len(points)
    axes.text(
        0.01 if alone else 1.04,
        row,
        ", ".join(distinct(missing, "why")),
        va="center",
        color=palette.SOFT,
        fontsize=6,
    )


def _label(axes: Axes, settings: Sequence[str], x_label: str) -> None:
    axes.axvline(0, color=palette.INK, linewidth=0.6, zorder=1)
    axes.axvline(1, color=palette.INK, linewidth=0.6, linestyle=(0, (4, 2)), zorder=1)
    axes.set_ylim(len(settings) - 0.5, -0.5)
    axes.set_yticks(range(len(settings)), settings)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel(x_label)


_MARGIN, _ROW_HEIGHT = 1.0, 0.55  # inches
_BINS = 60  # of each histogram, over the range of the costs of all schedules
_HILL = 0.72  # height of the fullest bin, as a share of a row's height
_QUANTILE = 0.95


def draw_distributions(points: Sequence[Point], path: str | Path) -> None:
    """Draw a histogram of the costs of each schedule in a row of its own, and write the figure.

    Points have the keys `name` (text), `planned` (the cost without noise in ticks) and `costs` (the costs in
    the samples, in ticks, as an array).
    """
    draw_points(points, path, lambda: _draw_distributions(points))


def _draw_distributions(points: Sequence[Point]) -> Figure:
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
    share = Patch(facecolor=palette.IDLE, edgecolor=palette.SOFT, label="share of the samples")
    marks = {"planned": _PLANNED, "mean": _MEAN, "95th percentile": _P95}
    legend(figure, [share, *(Line2D([], [], linestyle="none", label=k, **m) for k, m in marks.items())])
    return figure


def _draw_row(axes: Axes, row: int, point: Point, edges: Any, look: Look) -> None:
    """Draw a histogram of a schedule's costs, with planned cost, mean and 95th percentile on its baseline."""
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
