"""The rows of a sweep become the data that the figures of studies draw."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...core.errors import InputError
from ...core.placement import Placement
from ..sweep.row import Row

Point = dict[str, Any]
"""The values of a marker in a figure, by name; the drawing function of the figure says which it needs."""

_EQUAL = 1e-12  # bubble rates of different costs differ by more

TARGETS = {"gap 1 %": 0.01, "gap 0.1 %": 0.001, "optimal": 0.0}
"""Gaps by name. The scaling figure shows how long solves take to reach each of them."""


def setting_points(rows: Sequence[Row]) -> list[Point]:
    """Return a point per row: the bubble rate of the row's method on its problem."""
    return [_rated(row, setting=_problem(row, rows), method=method_name(row)) for row in rows]


def uneven_points(rows: Sequence[Row]) -> list[Point]:
    """Return a point per row: the bubble rate of the row's method, and in which way its stages are unlike."""
    return [_rated(row, setting=row.uneven or "all stages alike", method=method_name(row)) for row in rows]


def memory_points(rows: Sequence[Row]) -> list[Point]:
    """Return a point per row: the bubble rate of the row's method at the row's memory limit.

    The limits are in multiples of p activations of a stage, p being the number of devices.

    Raises
    ------
    InputError
        If the experiment writes a limit neither as a multiple of p, such as ``2p``, nor as ``smallest``.
    """
    return _frontier(rows, _memory_factor, looser=operator.ge, apart="comm")


def frontier_points(rows: Sequence[Row]) -> list[Point]:
    """Return the points of `memory_points`, and say of each whether its schedule is proven optimal.

    The bound that proves this may come from another method or from a looser limit. A panel of the figure
    shows one problem of one size, in devices and microbatches, with one communication time.

    Raises
    ------
    InputError
        As in `memory_points`.
    """
    return [
        {
            **point,
            "panel": _panel(_size(row, rows), row, rows, "comm"),
            "optimal": _reaches(point["bubble_rate"], point["bound_rate"]),
        }
        for point, row in zip(memory_points(rows), rows, strict=True)
    ]


def comm_points(rows: Sequence[Row]) -> list[Point]:
    """Return a point per row: the bubble rate of the row's method at the row's communication time.

    The communication times are in multiples of the mean duration of F.

    Raises
    ------
    InputError
        If the experiment does not write a time as a multiple of F's duration, such as ``0.25f``.
    """
    return _frontier(rows, lambda row: _multiple(row.comm, "f", "comm"), looser=operator.le, apart="memory")


def anytime_points(rows: Sequence[Row]) -> list[Point]:
    """Return the gap of each solve over time: a point for each entry of its trace, and one at its end.

    Entries before the first schedule are left out, and so is the end of a solve without a gap.
    """
    return [
        {
            "panel": _problem(row, rows),
            "method": row.method,
            "start": row.warm_start or "none",
            "seconds": seconds,
            "gap": gap,
            "engine": row.engine,
        }
        for row in rows
        for seconds, gap in _gaps(row)
    ]


def scaling_points(rows: Sequence[Row]) -> list[Point]:
    """Return, for each solve and each gap in `TARGETS`, the seconds until the solve reached that gap.

    If a solve never reached a gap, `reached` is False, and the seconds are all the time that it was given.
    """
    return [
        {
            "panel": f"{row.method}, n = {_per_device(row)}",
            "p": row.p,
            "n": row.n,
            "target": name,
            "seconds": next((s for s, gap in _gaps(row) if gap <= target), _end(row)),
            "reached": any(gap <= target for _, gap in _gaps(row)),
            "engine": row.engine,
        }
        for row in rows
        if row.seconds is not None
        for name, target in TARGETS.items()
    ]


def method_name(row: Row) -> str:
    """Return the name of the row's method, with ``, median costs`` if it saw these and not the true costs."""
    return row.method if row.costs == "true" else f"{row.method}, {row.costs} costs"


def bound_rate(row: Row) -> float:
    """Return the smallest bubble rate that the row's own bound allows; 0 if the row has no bound."""
    if row.bound is None or row.work is None:
        return 0.0
    return max(0, row.bound - row.work) / row.bound


def _problem(row: Row, rows: Sequence[Row]) -> str:
    """Return the name of the row's problem, with p and n if problems of several sizes have this name."""
    sizes = {(other.p, other.n) for other in rows if other.problem == row.problem}
    return row.problem if len(sizes) == 1 else f"{row.problem}, {row.p} x {row.n}"


def _size(row: Row, rows: Sequence[Row]) -> str:
    """Return the size of the row's problem, with the problem's name if there are several problems."""
    several = len({other.problem for other in rows}) > 1
    return (f"{row.problem}, " if several else "") + f"{row.p} devices, {row.n} microbatches"


def _panel(name: str, row: Row, rows: Sequence[Row], apart: str) -> str:
    """Return `name`, with the row's value in the column `apart` if `rows` differ in this column."""
    several = len({getattr(other, apart) for other in rows}) > 1
    return f"{name}, {apart} {getattr(row, apart)}" if several else name


def _reaches(rate: float | None, bound: float) -> bool:
    return rate is not None and rate <= bound + _EQUAL


def _rated(row: Row, **names: str) -> Point:
    rates = {"bubble_rate": row.bubble_rate, "work": row.work, "bound": row.bound}
    return {**names, **rates, "engine": row.engine}


def _frontier(
    rows: Sequence[Row], x: Callable[[Row], float], looser: Callable[[float, float], bool], apart: str
) -> list[Point]:
    """Return a point per row, with the best bound of all rows at the same or a looser constraint.

    A bound under a looser constraint also holds under a tighter one. `x` returns a row's place on the axis of
    the constraint, and `looser(a, b)` whether the constraint at a is the same as at b or looser. Rows that
    differ in the column `apart` belong to different panels and share no bounds.
    """
    return [
        {
            "panel": _panel(_problem(row, rows), row, rows, apart),
            "x": x(row),
            "method": method_name(row),
            "bubble_rate": row.bubble_rate,
            "bound_rate": max(
                bound_rate(other)
                for other in rows
                if _frontier_of(other, apart) == _frontier_of(row, apart) and looser(x(other), x(row))
            ),
            "engine": row.engine,
        }
        for row in rows
    ]


def _frontier_of(row: Row, apart: str) -> tuple[object, ...]:
    """Return the values in which two rows must agree, so that a bound of one can hold for the other."""
    return row.problem, row.p, row.n, row.placement, row.objective, row.uneven, getattr(row, apart)


def _memory_factor(row: Row) -> float:
    if row.memory != "smallest":
        return _multiple(row.memory, "p", "memory")
    # the smallest limit holds one microbatch: one activation of each of a device's stages of one route
    return Placement(row.placement, row.p).stages_per_device / row.p


def _multiple(label: str, unit: str, key: str) -> float:
    if not label.endswith(unit):
        raise InputError(f"the figure needs multiples of {unit}, e.g. 0.5{unit}", key=key, value=label)
    return float(label.removesuffix(unit))


def _per_device(row: Row) -> str:
    return f"{row.n // row.p} p" if row.n % row.p == 0 else str(row.n)


def _end(row: Row) -> float:
    """Return a solve's time limit, or its seconds if it took longer.

    The limit also counts for a solve that gave up early: the rest of its time would not have helped it.
    """
    return max(row.seconds or 0.0, row.time_limit or 0.0)


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
