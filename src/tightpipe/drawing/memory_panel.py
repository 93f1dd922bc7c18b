"""The memory panel of a Gantt chart shows how much each device holds over time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import NDArray

from ..core.graph_arrays import deltas_of
from ..core.schedule import Schedule
from ..core.simulate import memory_trace
from . import palette, style

_MOST_STEPS = 700  # with more steps than fit the width, a line shows the largest level in each part
_ENVELOPE_PARTS = 600
_KEY_MARGIN, _KEY_ENTRY = 1.3, 0.66  # inches; width of the limit's entry with margins, of a device's entry

Steps = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Ascending times in ticks, and a level of memory from each of these times until the next."""


def memory_steps(schedule: Schedule) -> Iterator[Steps]:
    """Yield for each device times in ticks, and the memory that it holds from each of them until the next.

    The first entry has memory 0. Then each operation has two entries: one for its start, at which F takes
    memory, and one for its end, at which B and W free memory. Of two operations that run together, the F has
    both entries at its start, so that the times ascend.
    """
    during = memory_trace(schedule.instance, schedule.order)
    after = during + np.minimum(deltas_of(schedule.instance, schedule.order), 0)
    changes = np.where(schedule.order.pairs == 1, schedule.start, schedule.end)  # F of a pair frees nothing
    all_times = np.stack([schedule.start, changes], axis=1)
    all_levels = np.stack([during, after], axis=1)
    for device in range(schedule.order.devices):
        rows = schedule.order.rows(device)
        times, levels = all_times[rows].ravel(), all_levels[rows].ravel()
        yield np.insert(times, 0, times[0]), np.insert(levels, 0, 0)


def draw_memory(axes: Axes, schedule: Schedule, span: tuple[float, float] = (-np.inf, np.inf)) -> None:
    """Draw the memory of every device between the two times of `span`, in ticks, and the limit."""
    devices = schedule.instance.devices
    colours = colormaps[palette.DEVICES](np.linspace(0, palette.DEVICES_END, devices))
    shown = [_within(steps, span) for steps in memory_steps(schedule)]
    exact = max(len(times) for times, _ in shown) <= _MOST_STEPS
    for (times, levels), colour in zip(shown, colours, strict=True):
        if not exact:
            times, levels = envelope(times, levels, _ENVELOPE_PARTS)
        axes.step(times, levels, where="post", color=colour, linewidth=0.7 if exact else 0.4)
    limits = _draw_limits(axes, schedule, colours)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.08)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_ylabel("memory" if exact else "memory\n(upper envelope)")
    _draw_key(axes, colours, limits)


def _within(steps: Steps, span: tuple[float, float]) -> Steps:
    """Return the steps between the two times of `span`, with the nearest step on either side of them."""
    times, levels = steps
    before = max(0, int(np.searchsorted(times, span[0], side="right")) - 1)
    behind = int(np.searchsorted(times, span[1], side="left")) + 1
    return times[before:behind], levels[before:behind]


def envelope(times: NDArray[np.int64], levels: NDArray[np.int64], parts: int) -> Steps:
    """Return, as steps, the largest level in each of `parts` equal parts of the time, and the last level."""
    edges = np.linspace(times[0], times[-1], parts + 1).astype(np.int64)
    owner = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, parts - 1)
    largest = np.zeros(parts, np.int64)
    np.maximum.at(largest, owner, levels)
    # A level also counts in all later parts until it changes.
    entering = levels[np.clip(np.searchsorted(times, edges[:-1], side="right") - 1, 0, None)]
    return edges, np.append(np.maximum(largest, entering), levels[-1])


def _draw_limits(axes: Axes, schedule: Schedule, colours: NDArray[np.float64]) -> list[Line2D]:
    """Draw one line if all devices have the same limit, else one per device; return the legend's entries."""
    limits = [schedule.instance.memory_limit(d) for d in range(schedule.instance.devices)]
    if limits[0] is None:
        return []
    if len(set(limits)) == 1:
        line = axes.axhline(limits[0], color=palette.INK, linestyle=(0, (4, 2)), linewidth=0.8)
        line.set_label(f"limit {style.thousands(limits[0])}")
        return [line]
    for limit, colour in zip(limits, colours, strict=True):
        axes.axhline(limit or 0, color=colour, linestyle=(0, (4, 2)), linewidth=0.6)
    return [Line2D([], [], color=palette.INK, linestyle=(0, (4, 2)), linewidth=0.6, label="limits")]


def _draw_key(axes: Axes, colours: NDArray[np.float64], limits: list[Line2D]) -> None:
    devices = len(colours)
    width = axes.figure.bbox.width / axes.figure.dpi
    fitting = int((width - _KEY_MARGIN) / _KEY_ENTRY)
    few = (0, devices // 2, devices - 1) if fitting > 2 else (0, devices - 1)
    named = range(devices) if devices <= fitting else few
    lines = [Line2D([], [], color=colours[d], linewidth=1.2, label=f"device {d}") for d in named]
    handles = [*lines, *limits]
    axes.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=len(handles),
        borderaxespad=0.1,
        handlelength=1.4,
        handletextpad=0.4,
        columnspacing=1.0,
    )
