"""A chart of the bubble rates of several methods in several settings, with the proven bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from . import palette, style
from .marks import marker_look, proof_handles
from .output import draw_points
from .palette import Look
from .panels import label_places

_HEIGHT = 2.7  # inches
_GROUP = 0.8  # width of the band of a setting, where settings are 1 apart
_ROUNDED = 1e-6  # tables have six digits of a rate
_BOUND: dict[str, Any] = {"color": palette.INK, "linewidth": 1.0}
_LONG_NAME = 16  # characters; five names that are longer do not fit side by side


Row = Mapping[str, Any]


def bound_rate(work: int, bound: int) -> float:
    """Return the bubble rate at a cost of `bound`, which no schedule can fall below.

    `work` is the largest work of a device, and `bound` a bound of the cost, both in ticks.
    """
    return max(0, bound - work) / bound


def draw_bubble_rates(rows: Sequence[Row], path: str | Path) -> None:
    """Draw one dot per setting and method, with the proven bounds behind them, and write the figure.

    In each setting, the rates below the rate of the largest bound are marked as proven impossible; where
    schedules of several placements stand, those below the bounds of all of them. The optimum lies in the band
    from there up to the best schedule. Panels stand below each other.

    Parameters
    ----------
    rows
        One row per setting and method, with the keys `setting` and `method` (texts), `bubble_rate` (None
        without a schedule), and `work` and `bound` in ticks (a bound of None if nothing is proven). Settings
        and methods are drawn in the sequence in which they first appear. Three keys may be left out: `panel`
        is the title of the row's panel, `placement` the placement for whose schedules the row's bound holds,
        and `engine` an engine version, which the figure names.
    path
        File to write, ending in ``.pdf``, ``.png`` or ``.svg``.

    Raises
    ------
    InputError
        If there is no row, the suffix is not known, or the file cannot be written.
    """
    draw_points(rows, path, lambda: _draw(rows))


def _draw(rows: Sequence[Row]) -> Figure:
    titles = list(dict.fromkeys(row.get("panel", "") for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    figure = Figure(figsize=(style.WIDTH, _HEIGHT * len(titles)), layout="constrained")
    panels = figure.subplots(len(titles), 1, squeeze=False)[:, 0]
    looks = palette.series(methods)
    undecided = [
        _draw_panel(axes, title, [row for row in rows if row.get("panel", "") == title], looks)
        for axes, title in zip(panels, titles, strict=True)
    ]
    figure.legend(
        handles=[
            *(Line2D([], [], label=m, **_look(looks[m])) for m in methods),
            Line2D([], [], label="proven bound", **_BOUND),
            *proof_handles(undecided=any(undecided)),
        ],
        loc="outside upper center",
        ncols=min(len(methods) + 3, 3 if max(map(len, methods)) > _LONG_NAME else 5),
    )
    return figure


def _draw_panel(axes: Axes, title: str, rows: Sequence[Row], looks: Mapping[str, Look]) -> bool:
    """Draw the rows of a panel, and return whether there is a band in one of its settings.

    `looks` has the look of each method of the figure.
    """
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    groups = [[row for row in rows if row["setting"] == setting] for setting in settings]
    undecided = [_draw_proven(axes, x, group) for x, group in enumerate(groups)]
    for index, (method, look) in enumerate(looks.items()):
        offset = _GROUP * ((index + 0.5) / len(looks) - 0.5)
        rates = {row["setting"]: row["bubble_rate"] for row in rows if row["method"] == method}
        points = [(settings.index(s) + offset, rate) for s, rate in rates.items() if rate is not None]
        if points:  # for an empty line, matplotlib would still make room for markers
            axes.plot(*zip(*points, strict=True), **_look(look))
    _label(axes, settings)
    axes.set_title(title)
    return any(undecided)


def _draw_proven(axes: Axes, x: int, rows: Sequence[Row]) -> bool:
    """Draw the rates that are proven impossible in a setting, and above them the band of the optimum.

    `x` is the setting's place on the axis, and `rows` are its rows. Return whether there is a band: there is
    none if the best schedule reaches the bound.
    """
    floor = _floor(rows)
    best = min((r["bubble_rate"] for r in rows if r["bubble_rate"] is not None), default=floor or 0.0)
    proven = floor or 0.0
    axes.bar(
        x, max(0.0, best - proven), _GROUP, bottom=proven, color=palette.UNDECIDED, linewidth=0, zorder=1
    )
    axes.bar(x, proven, _GROUP, color=palette.PROVEN, linewidth=0, zorder=1)
    if floor is not None:
        edges = (x - _GROUP / 2, x + _GROUP / 2)
        axes.hlines(floor, *edges, zorder=2, **_BOUND)
    return best - proven > _ROUNDED


def _floor(rows: Sequence[Row]) -> float | None:
    """Return the bubble rate that no schedule of the rows' placements undercuts; None if none is proven."""
    placements: dict[Any, list[float]] = {}
    for row in rows:
        known = placements.setdefault(row.get("placement"), [])
        if row["bound"] is not None:
            known.append(bound_rate(row["work"], row["bound"]))
    return min(map(max, placements.values())) if all(placements.values()) else None


def _look(look: Look) -> dict[str, Any]:
    return {**marker_look(look), "linestyle": "none", "zorder": 3, "clip_on": False}


def _label(axes: Axes, settings: Sequence[str]) -> None:
    label_places(axes, settings)
    axes.use_sticky_edges = False  # else the highest bound would lie on the frame
    axes.autoscale_view()
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_ylabel("bubble rate")
    axes.grid(axis="y", zorder=0)
