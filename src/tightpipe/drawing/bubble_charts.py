"""Charts of bubble rates and of plans, with the values that are proven impossible."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, PercentFormatter

from . import palette, style
from .palette import Look
from .style import (
    MARKER,
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


def bound_rate(work: int, bound: int) -> float:
    """Return the bubble rate of a cost of `bound`; `work` is the largest of a device, both in ticks."""
    return max(0, bound - work) / bound


def draw_bubble_rates(rows: Sequence[Point], path: str | Path) -> None:
    """Draw one dot per setting and method, with the proven bounds behind them, and write the figure.

    In each setting, the rates below the rate of the largest bound are marked as proven impossible; where
    schedules of several placements stand, those below the bounds of all of them. The optimum lies in the band
    from there up to the best schedule. Panels stand below each other.

    There is one row per setting and method, with the keys `setting` and `method` (texts), `bubble_rate` (None
    without a schedule), and `work` and `bound` in ticks (a bound of None if nothing is proven). Settings and
    methods are drawn in the sequence in which they first appear. Two keys may be left out: `panel` is the
    title of the row's panel, and `placement` the placement for whose schedules its bound holds.
    """
    draw_points(rows, path, lambda: _draw_settings(rows))


def _draw_settings(rows: Sequence[Point]) -> Figure:
    titles = list(dict.fromkeys(row.get("panel", "") for row in rows))
    methods = distinct(rows, "method")
    figure = Figure(figsize=(style.WIDTH, _HEIGHT * len(titles)), layout="constrained")
    panels = figure.subplots(len(titles), 1, squeeze=False)[:, 0]
    looks = palette.series(methods)
    undecided = [
        _draw_panel(axes, title, [row for row in rows if row.get("panel", "") == title], looks)
        for axes, title in zip(panels, titles, strict=True)
    ]
    figure.legend(
        handles=[
            *(Line2D([], [], label=m, **_marks(looks[m])) for m in methods),
            Line2D([], [], label="proven bound", **_BOUND),
            *proof_handles(undecided=any(undecided)),
        ],
        loc="outside upper center",
        ncols=min(len(methods) + 3, 3 if max(map(len, methods)) > _LONG_NAME else 5),
    )
    return figure


def _draw_panel(axes: Axes, title: str, rows: Sequence[Point], looks: Mapping[str, Look]) -> bool:
    """Draw the rows of a panel in their methods' looks, and return whether a setting has a band."""
    settings = distinct(rows, "setting")
    undecided = [_draw_proven_rates(axes, x, having(rows, setting=s)) for x, s in enumerate(settings)]
    for index, (method, look) in enumerate(looks.items()):
        offset = _GROUP * ((index + 0.5) / len(looks) - 0.5)
        rates: dict[str, float] = {}  # of a method that is there more than once, the cheapest schedule
        for row in having(rows, method=method):
            if (rate := row["bubble_rate"]) is not None:
                rates[row["setting"]] = min(rate, rates.get(row["setting"], rate))
        points = [(settings.index(setting) + offset, rate) for setting, rate in rates.items()]
        if points:  # for an empty line, matplotlib would still make room for markers
            axes.plot(*zip(*points, strict=True), **_marks(look))
    _label(axes, settings)
    axes.set_title(title)
    return any(undecided)


def _draw_proven_rates(axes: Axes, x: int, rows: Sequence[Point]) -> bool:
    """Draw what is proven of the setting at `x`; return whether there is a band in which the optimum lies."""
    floor = _floor(rows)
    proven = floor or 0.0
    best = min((r["bubble_rate"] for r in rows if r["bubble_rate"] is not None), default=proven)
    _draw_proven(axes, x, proven, max(best, proven), 0.0, line=floor is not None)
    return best - proven > _ROUNDED


def _draw_proven(axes: Axes, x: int, bound: float, best: float, end: float, *, line: bool = True) -> None:
    """Draw, at a place, the band from the bound to the best value, and the impossible area up to `end`."""
    (low, high), (bottom, top) = sorted((bound, best)), sorted((bound, end))
    common: dict[str, Any] = {"linewidth": 0, "zorder": 1}
    axes.bar(x, high - low, _GROUP, bottom=low, color=palette.UNDECIDED, **common)
    axes.bar(x, top - bottom, _GROUP, bottom=bottom, color=palette.PROVEN, **common)
    if line:
        axes.hlines(bound, x - _GROUP / 2, x + _GROUP / 2, zorder=2, **_BOUND)


def _floor(rows: Sequence[Point]) -> float | None:
    """Return the bubble rate that no schedule of the rows' placements undercuts; None if none is proven."""
    placements: dict[Any, list[float]] = {}
    for row in rows:
        known = placements.setdefault(row.get("placement"), [])
        if row["bound"] is not None:
            known.append(bound_rate(row["work"], row["bound"]))
    return min(map(max, placements.values())) if all(placements.values()) else None


def _marks(look: Look, size: float = MARKER) -> dict[str, Any]:
    return {**marker_look(look, size), "linestyle": "none", "zorder": 3, "clip_on": False}


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
_RING: dict[str, Any] = {"marker": "o", "markersize": 8.0, "markerfacecolor": "none", "linestyle": "none"}
_RING |= {"markeredgecolor": palette.INK, "markeredgewidth": 0.9}


def draw_frontier(points: Sequence[Point], path: str | Path, *, x_label: str, looser: bool | None) -> None:
    """Draw bubble rates against a constraint such as the memory limit, and write the figure.

    There is one panel per problem. A marker shows the bubble rate that a method reached under one value of
    the constraint. Nothing was measured between two markers. A marker's schedule stays valid under every
    looser constraint, so its line runs level to the method's next marker on the looser side. The optimum lies
    in the band between the bound and the best schedule. Between two values of the constraint, the band is
    drawn from the bound under the looser one up to the best schedule under the tighter one. A ring marks a
    schedule that is proven optimal.

    Points have the keys `panel` and `method` (texts), `x` (number), `bubble_rate` (None without a schedule)
    and `bound_rate` (no schedule at `x` has a lower bubble rate). The key `optimal`, which may be left out,
    says whether the schedule is proven optimal. `x_label` is the label of the axis of `x`. `looser` says
    whether a larger `x` is a looser constraint, as it is for memory. It is None where `x` is no constraint:
    straight lines then join the markers and guide the eye, with a gap where a method has no schedule.
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
    ring = [Line2D([], [], label="proven optimal", **_RING)] if any("optimal" in p for p in points) else []
    legend(figure, [*ring, *proof_handles()], "outside lower center")
    return figure


def _draw_line(panel: Axes, points: Sequence[Point], look: Look, size: float, looser: bool | None) -> None:
    """Draw a method's points, each with a line to the next one, and a ring around each proven optimum."""
    drawn = sorted(points, key=lambda p: p["x"])
    if looser is not None:  # a schedule stays valid under a looser constraint, also where a search found none
        drawn = [p for p in drawn if p["bubble_rate"] is not None]
    rates = [math.nan if p["bubble_rate"] is None else p["bubble_rate"] for p in drawn]
    if all(map(math.isnan, rates)):  # for an empty line, matplotlib would still make room for markers
        return
    x, style = [p["x"] for p in drawn], line_look(look) | marker_look(look, size)
    panel.plot(x, rates, drawstyle=_LEVEL[looser], **style, linewidth=0.9, clip_on=False)
    for point in drawn:
        if point.get("optimal"):
            panel.plot(point["x"], point["bubble_rate"], **_RING, clip_on=False, zorder=4)


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


_ROOM = 0.08  # empty part of the y axis above all numbers, as a share of the largest one


def draw_plans(
    points: Sequence[Point], path: str | Path, *, x_label: str, y_label: str, higher: bool = False
) -> None:
    """Draw the values of plans at each place of the x axis, with the bound behind them, and write the figure.

    The best possible value of a place lies in the band between its bound and its best plan. The y axis begins
    at 0, so that the lengths of bars compare as their values do. Where plans of several series have the same
    value, the marker of the first series encloses those of the next ones.

    Points have the keys `place` and `series` (texts), `value` (None without a plan) and `bound`, a proven
    limit of the values at this place. The bound is None if nothing is proven. If it is proven that no plan
    fits, the bound is infinite, or 0 if a higher value is better. Places are drawn in the sequence in which
    they first appear. `higher` says whether a higher value is better (e.g. a throughput); otherwise a lower
    one is (e.g. a time).
    """
    draw_points(points, path, lambda: _draw_plans(points, x_label, y_label, higher))


def _draw_plans(points: Sequence[Point], x_label: str, y_label: str, higher: bool) -> Figure:
    places, names = distinct(points, "place"), distinct(points, "series")
    figure = Figure(figsize=(style.WIDTH, _HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    looks, sizes = palette.series(names), nested_sizes(len(names))
    numbers = [p[key] for p in points for key in ("value", "bound") if p[key] not in (None, 0, math.inf)]
    top = (1 + _ROOM) * max(numbers, default=1.0)
    for x, place in enumerate(places):
        here = having(points, place=place)
        bounds, found = ([p[key] for p in here if p[key] is not None] for key in ("bound", "value"))
        if bounds:
            best = (max if higher else min)(found, default=0.0 if higher else top)
            bound = min(min(bounds) if higher else max(bounds), top)
            _draw_proven(axes, x, bound, best, top if higher else 0.0)
        for name, size in zip(names, sizes, strict=True):
            values = [p["value"] for p in having(here, series=name) if p["value"] is not None]
            if values:  # for an empty line, matplotlib would still make room for markers
                axes.plot([x] * len(values), values, **_marks(looks[name], size))
    label_places(axes, places)
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.yaxis.set_major_formatter(FuncFormatter(style.thousands))
    axes.grid(axis="y", zorder=0)
    axes.set_ylim(0, top)
    series = zip(names, sizes, strict=True)
    legend(figure, [Line2D([], [], label=name, **_marks(looks[name], size)) for name, size in series])
    legend(figure, proof_handles("above" if higher else "below"), "outside lower center")
    return figure
