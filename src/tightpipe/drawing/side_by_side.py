"""The planned and the measured schedule of one run, as two rows for each device on one time axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..model import metrics
from ..model.schedule import Schedule
from . import style
from .bars import LEGEND_LINE, draw_bars, draw_legend, folded, legend_columns
from .lanes import lane_count
from .style import check_target, write_figure

_LEFT, _RIGHT, _TOP, _TIME_AXIS = 0.86, 0.2, 0.36, 0.36  # inches
_TALLEST_ROW, _USUAL_ROWS, _LOWEST_ROW = 0.2, 4.4, 0.04  # inches
_PITCH = 2.4  # rows from one device to the next: two, and a gap
_SAME_SCALE = 4.0  # a plan that is shorter or longer by more than this factor has a scale of its own
_MOST_TIMES = 8


def draw_side_by_side(plan: Schedule, measured: Schedule, path: str | Path) -> None:
    """Draw the planned and the measured schedule of one run, and write the figure.

    Every device has two rows, the plan above the measurement. Both begin at the left end of the axis, which
    counts microseconds. The ticks of a plan may stand for any unit of time. If the plan's cost in ticks is
    less than a quarter or more than four times the measured cost in microseconds, the plan is scaled until
    the busy times of all devices have the same sum in both. The title then has the scale.

    - `plan`, `measured`: the planned schedule, and the measured one, whose ticks are microseconds; both have
      the same devices.
    """
    check_target(path)
    dpi = style.DENSE_DPI if _is_dense(plan, measured) else style.DPI
    write_figure(side_by_side_figure(plan, measured), path, dpi)


def side_by_side_figure(plan: Schedule, measured: Schedule) -> Figure:
    """Return the figure that `draw_side_by_side` writes."""
    with style.paper_style():
        return _draw(plan, measured, _is_dense(plan, measured))


def _is_dense(plan: Schedule, measured: Schedule) -> bool:
    return len(plan.order) + len(measured.order) > style.DENSE_BARS


def stretch_of(plan: Schedule, measured: Schedule) -> float:
    """Return as how many microseconds a tick of the plan is drawn; 1 if the plan is not scaled."""
    ratio = metrics.cost(measured) / metrics.cost(plan)
    if 1 / _SAME_SCALE <= ratio <= _SAME_SCALE:
        return 1.0
    return float(metrics.busy_times(measured).sum() / metrics.busy_times(plan).sum())


def _draw(plan: Schedule, measured: Schedule, dense: bool) -> Figure:
    devices, stretch = plan.instance.devices, stretch_of(plan, measured)
    row = max(_LOWEST_ROW, min(_TALLEST_ROW, _USUAL_ROWS / (_PITCH * devices)))
    shades = lane_count(plan.instance.placement)
    legend = folded(legend_columns([plan, measured], shades), style.WIDTH)
    below = _TIME_AXIS + LEGEND_LINE * max(map(len, legend)) + 0.04
    rows = _PITCH * devices * row
    figure = Figure(figsize=(style.WIDTH, _TOP + rows + below))
    height, wide = _TOP + rows + below, style.WIDTH - _LEFT - _RIGHT
    box = (_LEFT / style.WIDTH, below / height, wide / style.WIDTH, rows / height)
    axes = figure.add_axes(box)
    drawn = [_stretched(plan, stretch), _stretched(measured, 1.0)]
    last = max(int(schedule.end.max()) for schedule in drawn)
    axes.set_xlim(0, last)
    axes.set_ylim(_PITCH * devices - 0.7, -0.7)
    points = wide * 72 / last
    for place, schedule in enumerate(drawn):
        heights = _PITCH * np.arange(devices, dtype=np.float64) + place
        draw_bars(
            axes,
            schedule,
            shades=shades,
            row_points=row * 72,
            tick_points=points,
            dense=dense,
            heights=heights,
        )
    _label(axes, plan, measured, stretch, row)
    draw_legend(figure, legend)
    return figure


def _stretched(schedule: Schedule, factor: float) -> Schedule:
    """Return the schedule with its times shifted to begin at 0 and multiplied by `factor`."""
    begin = int(schedule.start.min())
    start, end = (np.rint((times - begin) * factor) for times in (schedule.start, schedule.end))
    return Schedule(schedule.instance, schedule.order, start.astype(np.int64), end.astype(np.int64))


def _label(axes: Axes, plan: Schedule, measured: Schedule, stretch: float, row: float) -> None:
    devices = plan.instance.devices
    middles = [_PITCH * device + place for device in range(devices) for place in (0, 1)]
    names = [f"{device} {word}" for device in range(devices) for word in ("plan", "measured")]
    step = max(1, int(np.ceil(style.FONT_SIZE / (row * 72))))
    shown = [k for k in range(2 * devices) if (k // 2) % step == 0 and (step == 1 or k % 2 == 0)]
    labels = [names[k] if step == 1 else names[k].split()[0] for k in shown]
    axes.set_yticks([middles[k] for k in shown], labels)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(_MOST_TIMES, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(style.thousands))
    axes.set_xlabel("time (microseconds)", labelpad=2)
    scale = "" if stretch == 1 else f", a tick drawn as {stretch:,.3g} microseconds"
    axes.set_title(f"{_figures('plan', plan)}{scale}\n{_figures('measured', measured)}", loc="left", pad=3)


def _figures(name: str, schedule: Schedule) -> str:
    cost, rate = style.thousands(metrics.cost(schedule)), metrics.bubble_rate(schedule)
    return f"{name}: cost {cost}, bubble rate {rate:.2%}"
