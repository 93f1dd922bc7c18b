"""The rows of a Gantt chart: one bar per operation."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from numpy.typing import NDArray

from ..metrics import charged_windows
from ..schedule import Ints, Schedule
from . import style
from .lanes import lanes, looks

Floats = NDArray[np.floating[Any]]

_BAR_HEIGHT = 0.84  # of a row
_WIDEST_EDGE = 0.4  # points


def draw_bars(
    axes: Axes, schedule: Schedule, *, shades: int, row_points: float, tick_points: float, dense: bool
) -> None:
    """Draw every operation of a schedule, device 0 on top, over its idle time in grey.

    Of operations that run together the F has the upper half of the row. A dark line is where a
    device starts another iteration.

    Grey is the idle time that the objective charges: between a device's first start and last end
    for `device_span`, between the schedule's for `makespan`.

    Parameters
    ----------
    axes
        Where; its time limits are set already.
    schedule
        What.
    shades
        How many shades of a colour the figure has, at least the schedule's lanes.
    row_points
        Height of a device's row in points.
    tick_points
        Width of a tick in points.
    dense
        Draw all bars as one image, also in vector files.
    """
    top, bottom = _heights(schedule)
    common: dict[str, Any] = {"rasterized": dense, "antialiased": not dense}
    charged = charged_windows(schedule)
    every_device = np.arange(schedule.order.devices)
    idle = _boxes(*charged, every_device - _BAR_HEIGHT / 2, every_device + _BAR_HEIGHT / 2)
    axes.add_collection(PolyCollection(idle, facecolor=style.IDLE, linewidth=0, **common))
    width = tick_points * float((schedule.end - schedule.start).min())
    edge = 0.0 if dense else min(_WIDEST_EDGE, 0.1 * width)
    groups = _groups(schedule, shades)
    for colour, members in groups:
        boxes = _boxes(schedule.start[members], schedule.end[members], top[members], bottom[members])
        axes.add_collection(
            PolyCollection(boxes, facecolor=colour, edgecolor="white", linewidth=edge, **common)
        )
    if schedule.instance.iterations > 1:
        _draw_iterations(axes, schedule)
    if not dense:
        sized = [(c, m, _fitting_size(schedule, m, tick_points)) for c, m in groups]
        largest = 0.75 * row_points * float((bottom - top).min())
        _draw_numbers(axes, schedule, (top + bottom) / 2, sized, largest)


def _heights(schedule: Schedule) -> tuple[Floats, Floats]:
    """Return the upper and lower side of each operation's bar, in rows."""
    order = schedule.order
    device = np.repeat(np.arange(order.devices), np.diff(order.offsets))
    joins = order.pairs == 1
    joined = np.append(False, joins[:-1])
    top = np.where(joined, device, device - _BAR_HEIGHT / 2)
    return top, np.where(joins, device, device + _BAR_HEIGHT / 2)


def _boxes(start: Ints, end: Ints, top: Floats, bottom: Floats) -> Any:
    """Return the corners of one rectangle per entry, shape (entries, 4, 2)."""
    x = np.stack([start, end, end, start], axis=1)
    y = np.stack([top, top, bottom, bottom], axis=1)
    return np.stack([x.astype(np.float64), y], axis=2)


def _groups(schedule: Schedule, shades: int) -> list[tuple[style.Colour, Ints]]:
    """Return colour and rows of the operations that look alike."""
    kind, lane = schedule.order.operations[:, 0], lanes(schedule)
    return [
        (style.shade(k, i, shades), np.flatnonzero((kind == k) & (lane == i))) for k, i in looks(schedule)
    ]


def _draw_iterations(axes: Axes, schedule: Schedule) -> None:
    """Mark where each device starts its second and later iterations."""
    instance, order = schedule.instance, schedule.order
    of_microbatch = np.array([instance.iteration(m) for m in range(instance.microbatches)])
    iteration = of_microbatch[order.operations[:, 2]]
    for device in range(order.devices):
        rows = order.rows(device)
        start = schedule.start[rows]
        begins = [start[iteration[rows] == k].min() for k in range(1, instance.iterations)]
        axes.vlines(begins, device - 0.5, device + 0.5, color=style.INK, linewidth=1.2)


def _draw_numbers(
    axes: Axes,
    schedule: Schedule,
    height: Floats,
    groups: list[tuple[style.Colour, Ints, float]],
    largest: float,
) -> None:
    """Write microbatch numbers into the bars, in one size, where all numbers of a group fit.

    Each group comes with its colour, its rows and the largest font size that fits its bars.
    """
    microbatch = schedule.order.operations[:, 2]
    middle = (schedule.start + schedule.end) / 2
    fitting = [(c, m, size) for c, m, size in groups if size >= style.SMALLEST_NUMBER]
    size = min([style.LARGEST_NUMBER, largest, *(size for _, _, size in fitting)])
    if size < style.SMALLEST_NUMBER:
        return
    for colour, members, _ in fitting:
        ink = style.text_colour(colour)
        for i in members.tolist():
            axes.text(
                middle[i],
                height[i],
                str(microbatch[i]),
                ha="center",
                va="center_baseline",
                fontsize=size,
                color=ink,
                clip_on=True,
            )


def _fitting_size(schedule: Schedule, members: Ints, tick_points: float) -> float:
    """Return the largest font size at which the longest number fits the narrowest bar."""
    width = float((schedule.end - schedule.start)[members].min()) * tick_points
    digits = len(str(schedule.order.operations[members, 2].max()))
    return 0.85 * width / (digits * style.DIGIT_WIDTH)
