"""Charts of bubble rates: of methods by setting, and against memory or communication, with proven bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from . import palette, style
from .palette import Look
from .style import (
    Point,
    distinct,
    draw_points,
    having,
    label_places,
    label_y,
    legend,
    line_look,
    marker_look,
    nested_sizes,
    panels,
    proof_handles,
)

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
    """
    draw_points(rows, path, lambda: _draw_settings(rows))


def _draw_settings(rows: Sequence[Row]) -> Figure:
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
    undecided = [_draw_proven_in_setting(axes, x, group) for x, group in enumerate(groups)]
    for index, (method, look) in enumerate(looks.items()):
        offset = _GROUP * ((index + 0.5) / len(looks) - 0.5)
        rates = {row["setting"]: row["bubble_rate"] for row in rows if row["method"] == method}
        points = [(settings.index(s) + offset, rate) for s, rate in rates.items() if rate is not None]
        if points:  # for an empty line, matplotlib would still make room for markers
            axes.plot(*zip(*points, strict=True), **_look(look))
    _label(axes, settings)
    axes.set_title(title)
    return any(undecided)


def _draw_proven_in_setting(axes: Axes, x: int, rows: Sequence[Row]) -> bool:
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
    """
    draw_points(points, path, lambda: _draw_frontier(points, x_label, looser))


def _draw_frontier(points: Sequence[Point], x_label: str, looser: bool | None) -> Figure:
    methods = distinct(points, "method")
    looks, sizes = palette.series(methods), nested_sizes(len(methods))
    figure, axes = panels(distinct(points, "panel"))
    first, last = (pick(p["x"] for p in points) for pick in (min, max))
    margin = _MARGIN * (last - first or 1)
    axes[0].set_xlim(first - margin, last + margin)  # sets it for all panels, which share the axis
    for panel in axes:
        here = having(points, panel=panel.get_title())
        _draw_proven_line(panel, here, margin, looser)
        for method, size in zip(methods, sizes, strict=True):
            _draw_line(panel, having(here, method=method), looks[method], size, looser)
        panel.set_xlabel(x_label)
        panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes[0].set_ylim(bottom=0)  # set last, so that it applies to all that the panels show
    label_y(axes, "bubble rate")
    lines = {method: line_look(looks[method]) | marker_look(looks[method]) for method in methods}
    legend(figure, [Line2D([], [], label=m, **line) for m, line in lines.items()])
    legend(figure, proof_handles(), "outside lower center")
    return figure


def _draw_line(panel: Axes, points: Sequence[Point], look: Look, size: float, looser: bool | None) -> None:
    """Draw a method's points that have a schedule, each with a level line to the next on the looser side."""
    drawn = sorted((p for p in points if p["bubble_rate"] is not None), key=lambda p: p["x"])
    if not drawn:  # for an empty line, matplotlib would still make room for markers
        return
    x, y = [p["x"] for p in drawn], [p["bubble_rate"] for p in drawn]
    style = line_look(look) | marker_look(look, size)
    panel.plot(x, y, drawstyle=_LEVEL[looser], **style, linewidth=0.9, clip_on=False)


def _draw_proven_line(panel: Axes, points: Sequence[Point], margin: float, looser: bool | None) -> None:
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
    """
    draw_points(points, path, lambda: _draw_with_band(points))


def _draw_with_band(points: Sequence[Point]) -> Figure:
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
