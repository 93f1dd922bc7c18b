"""The rows of a sweep become the data that the figures of studies draw."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..base.errors import InputError
from .axes import OF_1F1B, OWN
from .task import Row

Point = dict[str, Any]
"""The values of a marker in a figure, by name; the drawing function of the figure says which it needs."""

_AXES = ("objective", "uneven", "comm", "discount", "offload", "memory")
"""The axes of an experiment, beside its problems and their sizes, that change what is asked.

Rows that differ in one of them never share a panel, unless the figure shows this axis itself: costs under two
objectives do not compare, and a bound for one question says nothing about another.
"""

BASELINE = "greedy-v"
"""The method whose avoidable bubble a figure shows the shares of."""


def rated_points(rows: Sequence[Row], shown: str | None = None) -> list[Point]:
    """Return a point per row: its method's bubble rate, and its problem or its value of the axis `shown`."""
    return [
        {
            "panel": _panel("" if shown is None else _problem(row, rows), row, rows, shown),
            "setting": _problem(row, rows) if shown is None else _said(row, shown),
            **_rated(row),
        }
        for row in rows
    ]


def memory_points(rows: Sequence[Row]) -> list[Point]:
    """Return a point per row: the bubble rate of the row's method at the row's memory limit."""
    return _along("memory", rows, _memory_factor, looser=operator.ge)


def equal_memory_points(rows: Sequence[Row]) -> list[Point]:
    """Return a point per method and memory limit, which is over the peak memory of 1F1B."""
    return _along("memory", rows, _share_of_1f1b, looser=operator.ge)


def frontier_points(rows: Sequence[Row]) -> list[Point]:
    """Return the points of `memory_points`, and say of each whether its schedule is proven optimal."""
    bounds = _bounds(rows, "memory", _memory_factor, looser=operator.ge)
    several = len({row.problem for row in rows}) > 1
    names = [f"{row.problem}, " * several + f"{row.p} devices, {row.n} microbatches" for row in rows]
    points = _frontier(rows, names, "memory", bounds)
    proven = [
        row.cost is not None and row.cost <= bound for row, (_, bound) in zip(rows, bounds, strict=True)
    ]
    return [{**point, "optimal": optimal} for point, optimal in zip(points, proven, strict=True)]


def discount_points(rows: Sequence[Row]) -> list[Point]:
    """Return a point per method and discount in per cent: the least bubble rate of the method's rows."""
    return _along("discount", rows, _per_cent, looser=operator.eq)


def comm_points(rows: Sequence[Row]) -> list[Point]:
    """Return a point per row: the bubble rate of the row's method at the row's communication time."""
    return _along("comm", rows, lambda row: _multiple(row.comm, "f", "comm"), looser=operator.le)


def _along(
    axis: str, rows: Sequence[Row], x: Callable[[Row], float], *, looser: Callable[[float, float], bool]
) -> list[Point]:
    """Return the cheapest points over an axis, in panels that are named after the problems; see `_bounds`."""
    names = [_problem(row, rows) for row in rows]
    return _cheapest(_frontier(rows, names, axis, _bounds(rows, axis, x, looser)))


def avoided(baseline: int, cost: int, bound: int) -> float:
    """Return the share that a method avoids of what `baseline` costs above the best bound."""
    return (baseline - cost) / (baseline - bound)


def avoided_points(rows: Sequence[Row]) -> list[Point]:
    """Return a point per problem and method: the share of the bubble that it avoids of `BASELINE`'s."""
    settings: dict[str, list[Row]] = {}
    for row in rows:
        settings.setdefault(_panel(_problem(row, rows), row, rows), []).append(row)
    points = []
    for setting, here in settings.items():
        bound, _ = best_bound(here)
        base = next((row.cost for row in here if method_name(row) == BASELINE), None)
        for row in here:
            if method_name(row) != BASELINE:
                share, why = _share(row, base, bound)
                point = {"setting": setting, "objective": row.objective, "method": method_name(row)}
                points.append({**point, "share": share, "why": why, "engine": row.engine})
    return points


def _share(row: Row, base: int | None, bound: int | None) -> tuple[float | None, str]:
    """Return the share that a row avoids, or None and the reason."""
    if base is None or row.cost is None:
        return None, f"no schedule of {BASELINE if base is None else method_name(row)}"
    if bound is None:
        return None, "no bound is proven"
    if base <= bound:
        return None, f"{BASELINE} is proven optimal: nothing to avoid"
    return avoided(base, row.cost, bound), ""


def anytime_points(rows: Sequence[Row]) -> list[Point]:
    """Return the gap of each solve over time: a point for each entry of its trace, and one at its end."""
    return [
        {
            "panel": _panel(_problem(row, rows), row, rows),
            "objective": row.objective,
            "solve": row.key,
            "method": method_name(row),
            "start": row.warm_start or "none",
            "seconds": seconds,
            "gap": gap,
            "engine": row.engine,
        }
        for row in rows
        for seconds, gap in _gaps(row)
    ]


def method_name(row: Row) -> str:
    """Return the name under which the row is shown, which says so if the method saw other costs."""
    return row.name if row.costs == "true" else f"{row.name}, {row.costs} costs"


def rate(cost: int, work: int) -> float:
    """Return the bubble rate of a cost, or of a bound, which may be below the work of a device."""
    return max(0, cost - work) / cost if cost else 0.0


def best_bound(rows: Sequence[Row]) -> tuple[int | None, str | None]:
    """Return the bound of all placements with a schedule, and what it rests on; None if one has no bound."""
    placements: dict[tuple[str, int], tuple[int, str | None]] = {}
    for row in rows:
        if row.bound is not None or row.cost is not None:
            known = placements.get((row.placement, row.chunks), (0, None))
            mine = (row.bound or 0, row.proof)
            placements[row.placement, row.chunks] = max(known, mine, key=lambda each: each[0])
    bound, proof = min(placements.values(), key=lambda each: each[0], default=(0, None))
    return bound or None, proof


def _problem(row: Row, rows: Sequence[Row]) -> str:
    """Return the name of the row's problem, with p and n if problems of several sizes have this name."""
    sizes = {(other.p, other.n) for other in rows if other.problem == row.problem}
    return row.problem if len(sizes) == 1 else f"{row.problem}, {row.p} x {row.n}"


def _panel(name: str, row: Row, rows: Sequence[Row], shown: str | None = None) -> str:
    """Return the title of the row's panel: `name`, and its values of the axes that tell panels apart."""
    apart = [axis for axis in _AXES if axis != shown and len({getattr(other, axis) for other in rows}) > 1]
    return ", ".join(filter(None, (name, *(_said(row, axis) for axis in apart))))


def _said(row: Row, axis: str) -> str:
    """Return the row's value of an axis, as it stands in figures."""
    if axis == "uneven":
        return row.uneven or "all stages alike"
    value = str(getattr(row, axis))
    return value if axis == "objective" else f"{axis} {value}"


def _rated(row: Row) -> Point:
    return {
        "objective": row.objective,
        "placement": row.placement,
        "method": method_name(row),
        "bubble_rate": row.bubble_rate,
        "work": row.work,
        "bound": row.bound,
        "engine": row.engine,
    }


Bounds = list[tuple[float, int]]
"""For each row, its place on the axis of a constraint, and the best bound of its placement there in ticks."""


def _bounds(
    rows: Sequence[Row], axis: str, x: Callable[[Row], float], looser: Callable[[float, float], bool]
) -> Bounds:
    """Return for each row its place `x`, and the best bound of all rows at the same or a looser constraint.

    A bound under a looser constraint also holds under a tighter one, for the same question and placement.
    """
    places = [x(row) for row in rows]
    asked = [_question(row, axis) for row in rows]
    known = list(zip(asked, places, (row.bound or 0 for row in rows), strict=True))
    return [
        (here, max(bound for other, there, bound in known if other == mine and looser(there, here)))
        for mine, here in zip(asked, places, strict=True)
    ]


def _frontier(rows: Sequence[Row], names: Sequence[str], axis: str, bounds: Bounds) -> list[Point]:
    """Return a point per row, with the bubble rate that no schedule of any placement undercuts there.

    All rates of a panel at one place are over the same work, the least of any placement.
    """
    panels = [_panel(name, row, rows, axis) for name, row in zip(names, rows, strict=True)]
    floors: dict[tuple[str, float], int] = {}
    work: dict[tuple[str, float], int] = {}
    for row, panel, (x, bound) in zip(rows, panels, bounds, strict=True):
        if bound or row.cost is not None:  # a placement of which nothing is known bounds nothing
            floors[panel, x] = min(bound, floors.get((panel, x), bound))
        work[panel, x] = min(row.work or 0, work.get((panel, x), row.work or 0))
    return [
        {
            "panel": panel,
            "objective": row.objective,
            "x": x,
            "method": method_name(row),
            "bubble_rate": None if row.cost is None else rate(row.cost, work[panel, x]),
            "bound_rate": rate(floors.get((panel, x), 0), work[panel, x]),
            "engine": row.engine,
        }
        for row, panel, (x, _) in zip(rows, panels, bounds, strict=True)
    ]


def _cheapest(points: Sequence[Point]) -> list[Point]:
    """Return the point of the cheapest schedule of all that are shown under one name at one place."""
    least: dict[tuple[object, ...], Point] = {}
    for point in points:
        place = (point["panel"], point["x"], point["method"])
        if _rate_or_infinite(least.setdefault(place, point)) > _rate_or_infinite(point):
            least[place] = point
    return list(least.values())


def _rate_or_infinite(point: Point) -> float:
    """Return the bubble rate of a point, which may be 0; infinite without a schedule."""
    return math.inf if point["bubble_rate"] is None else point["bubble_rate"]


def _question(row: Row, axis: str) -> tuple[object, ...]:
    """Return the values in which two rows must agree, so that a bound of one can hold for the other."""
    same = (getattr(row, other) for other in _AXES if other != axis)
    return row.problem, row.p, row.n, row.placement, row.chunks, *same


def _share_of_1f1b(row: Row) -> float:
    if row.memory.endswith(OF_1F1B):  # rounded to whole units, limits are a little below it
        return float(row.memory.removesuffix(OF_1F1B))
    if row.memory_of_1f1b is None:
        raise InputError("the figure needs memory limits", key="memory", value=row.memory)
    return row.memory_of_1f1b


def _per_cent(row: Row) -> float:
    if row.discount == OWN:
        raise InputError("the figure needs numbers, e.g. 0.1", key="discount", value=OWN)
    return 100 * float(row.discount)


def _memory_factor(row: Row) -> float:
    if row.memory != "smallest":
        return _multiple(row.memory, "p", "memory")
    # the smallest limit holds one microbatch: one activation of each of a device's stages of one route
    return row.chunks / row.p


def _multiple(label: str, unit: str, key: str) -> float:
    if not label.endswith(unit):
        raise InputError(f"the figure needs multiples of {unit}, e.g. 0.5{unit}", key=key, value=label)
    return float(label.removesuffix(unit))


def _gaps(row: Row) -> Iterator[tuple[float, float]]:
    """Yield seconds and gap for each entry of the trace from the first schedule on, and for the end."""
    trace = json.loads(row.trace) if row.trace else []
    gap = None
    for seconds, cost, bound in trace:
        if cost is not None:
            gap = 1.0 if bound is None else (cost - bound) / cost
            yield seconds, gap
    if row.gap is not None and row.seconds is not None:
        yield row.seconds, row.gap
