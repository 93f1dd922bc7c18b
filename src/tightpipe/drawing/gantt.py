"""Gantt charts: schedules above each other, in the style of the zero-bubble papers, or a plan and its run."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import fields, replace
from math import ceil, log2
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..base.errors import InputError
from ..model import metrics
from ..model.costs import Step
from ..model.schedule import Schedule
from . import style
from .bars import (
    CHARACTER,
    LEGEND_LINE,
    draw_bars,
    draw_legend,
    draw_memory,
    folded,
    legend_columns,
    shown_rows,
)
from .lanes import WHOLE, Window, lane_count, shown_ticks
from .style import check_target, figure_bytes, note_engine, write_figure

_LEFT, _RIGHT, _TOP = 0.62, 0.26, 0.04  # inches, like the following lengths
_TITLE, _TITLE_LINE = 0.2, 0.12  # height of a title of one line, and of each further line
_MEMORY_HEIGHT, _MEMORY_KEY = 1.05, 0.2
_BETWEEN = 0.16
_TIME_AXIS = 0.36
_TALLEST_ROW, _USUAL_ROWS, _LOWEST_ROW = 0.22, 2.9, 0.01
_LONGEST_LABEL = 44  # characters
_SHORTEST_LABEL = 16  # characters; a label with less room stands above the numbers
_GAP = "   "  # between two numbers of a title
_BOLD_CHARACTER = 0.066  # width of a character of a label
_NARROWEST, _WIDEST = 3.0, 100.0
_MOST_TIMES = 8  # most numbers on the time axis of a figure of the usual width


MOST_SVG_BARS = 2_000  # with more bars a notebook would scroll slowly, and an image is smaller


def html_of(schedule: Schedule, *, label: str = "", bound: int | None = None) -> str:
    """Return the Gantt chart as HTML: an inline SVG, or an image if it has more than `MOST_SVG_BARS` bars."""
    figure = gantt_figure([(label, schedule)], bounds=[bound])
    if len(schedule.order) > MOST_SVG_BARS:
        image = b64encode(figure_bytes(figure, ".png", 150)).decode()
        return f'<img alt="Gantt chart" src="data:image/png;base64,{image}">'
    svg = figure_bytes(figure, ".svg", 150).decode()
    return svg[svg.index("<svg") :]  # without the XML declaration, which only a file has


def draw_gantt(
    schedules: Sequence[tuple[str, Schedule]],
    *,
    path: str | Path,
    memory: bool = False,
    bounds: Sequence[int | None] | None = None,
    window: Window = WHOLE,
    width: float | None = None,
    engine: str | None = None,
) -> None:
    """Draw schedules above each other on one time axis and write the figure.

    The colour of a bar shows the kind of the operation, and its shade the chunk (the direction in placement
    `bidirectional`). Bars have the letter of their kind and the number of their microbatch, if these fit. BW
    is hatched, and light grey is idle time that the objective charges. Copies have lanes of their own below
    what the device computes. The title of a schedule has its label,
    its cost and its bubble rate.

    Parameters
    ----------
    schedules
        Label and schedule of each chart, from top to bottom.
    path
        File to write. The endings ``.pdf`` and ``.svg`` give vector graphics, in which more than 10,000 bars
        are drawn as one image; ``.png`` gives an image.
    bounds
        For each schedule, a proven lower bound of its cost in ticks, or None.
    memory, window, width
        As in `tightpipe.plot`. Titles show the cost and the bubble rate of the whole schedule.
    engine
        Version of the engine that made the schedules, which the figure then shows; None to show none.

    Raises
    ------
    InputError
        If there is no schedule, if `memory` is set and no schedule has memory, if nothing lies in the window,
        if the width is out of its range, or if the suffix is not known or the file cannot be written.
    """
    check_target(path)
    figure = gantt_figure(schedules, memory=memory, bounds=bounds, window=window, width=width)
    if engine is not None:
        with style.paper_style():
            note_engine(figure, engine)
    dense = _is_dense(schedules, shown_ticks([schedule for _, schedule in schedules], window))
    write_figure(figure, path, style.DENSE_DPI if dense else style.DPI)


def gantt_figure(
    schedules: Sequence[tuple[str, Schedule]],
    *,
    memory: bool = False,
    bounds: Sequence[int | None] | None = None,
    window: Window = WHOLE,
    width: float | None = None,
) -> Figure:
    """Return the figure that `draw_gantt` writes; raise what that raises, but for the file."""
    if not schedules:
        raise InputError("no schedule to draw")
    if memory and all(schedule.instance.memory is None for _, schedule in schedules):
        raise InputError("the instance has no memory deltas to draw", key="memory", value=None)
    if width is not None and not _NARROWEST <= width <= _WIDEST:
        rule = f"must be a number of inches, {_NARROWEST:g} to {_WIDEST:g}"
        raise InputError(rule, key="width", value=width)
    known = bounds or [None] * len(schedules)
    span = shown_ticks([schedule for _, schedule in schedules], window)
    with style.paper_style():
        return _draw(schedules, known, span, memory=memory, width=style.WIDTH if width is None else width)


def _is_dense(schedules: Sequence[tuple[str, Schedule]], span: tuple[int, int]) -> bool:
    return sum(int(shown_rows(schedule, span).sum()) for _, schedule in schedules) > style.DENSE_BARS


class _Page:
    """A figure that is filled with axes from top to bottom, down to the height `y`; lengths are in inches."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height))
        self.width, self.height, self.y = width, height, height - _TOP

    def skip(self, height: float) -> None:
        self.y -= height

    def add_axes(self, height: float) -> Axes:
        self.y -= height
        w = self.width
        box = (_LEFT / w, self.y / self.height, (w - _LEFT - _RIGHT) / w, height / self.height)
        return self.figure.add_axes(box)


def _draw(
    labelled: Sequence[tuple[str, Schedule]],
    bounds: Sequence[int | None],
    span: tuple[int, int],
    *,
    memory: bool,
    width: float,
) -> Figure:
    schedules = [schedule for _, schedule in labelled]
    dense = _is_dense(labelled, span)
    titles = [
        _title(label, _numbers(schedule, bound), width - _LEFT - _RIGHT)
        for (label, schedule), bound in zip(labelled, bounds, strict=True)
    ]
    shades = max(lane_count(s.instance.placement) for s in schedules)
    legend = folded(legend_columns(schedules, shades), width)
    below = _TIME_AXIS + LEGEND_LINE * max(map(len, legend)) + 0.04
    panels = sum(_panel_height(schedule, memory) for schedule in schedules)
    panels += sum(title.height for title in titles)
    page = _Page(width, _TOP + panels + _BETWEEN * (len(schedules) - 1) + below)
    for title, schedule in zip(titles, schedules, strict=True):
        page.skip(title.height)
        axes = _draw_bar_panel(page, schedule, span, shades=shades, dense=dense)
        axes.set_title(title.label, loc="left", fontweight="bold", pad=3)
        axes.set_title(title.numbers, loc="right", pad=3)
        if memory and schedule.instance.memory is not None:
            page.skip(_MEMORY_KEY)
            axes = page.add_axes(_MEMORY_HEIGHT)
            axes.set_xlim(*span)
            draw_memory(axes, schedule, span)
        page.skip(_BETWEEN)
    _label_times(page.figure.axes, max(2, round(_MOST_TIMES * width / style.WIDTH)))
    draw_legend(page.figure, legend)
    return page.figure


def _row_height(devices: int) -> float:
    return max(_LOWEST_ROW, min(_TALLEST_ROW, _USUAL_ROWS / devices))


def _panel_height(schedule: Schedule, memory: bool) -> float:
    devices = schedule.instance.devices
    bars = devices * _row_height(devices)
    return bars + (_MEMORY_KEY + _MEMORY_HEIGHT if memory and schedule.instance.memory else 0.0)


def _draw_bar_panel(
    page: _Page, schedule: Schedule, span: tuple[int, int], *, shades: int, dense: bool
) -> Axes:
    devices = schedule.instance.devices
    row = _row_height(devices)
    axes = page.add_axes(devices * row)
    axes.set_xlim(*span)
    axes.set_ylim(devices - 0.5, -0.5)
    tick = (page.width - _LEFT - _RIGHT) * 72 / (span[1] - span[0])
    draw_bars(axes, schedule, shades=shades, row_points=row * 72, tick_points=tick, dense=dense)
    axes.set_ylabel("device")
    step = 2 ** max(0, ceil(log2(style.FONT_SIZE / (row * 72))))  # so that a number fits beside each such row
    axes.set_yticks(range(0, devices, step))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return axes


class _Title(NamedTuple):
    """The title above a schedule: the label at the left; cost, bubble rate and bound at the right."""

    label: str
    numbers: str

    @property
    def height(self) -> float:
        return _TITLE + _TITLE_LINE * max(self.label.count("\n"), self.numbers.count("\n"))


def _title(label: str, numbers: Sequence[str], width: float) -> _Title:
    """Return the title with label and numbers side by side if they fit into `width` inches, else stacked."""
    lines = [numbers[0]]
    for part in numbers[1:]:
        longer = lines[-1] + _GAP + part
        lines[-1:] = [longer] if CHARACTER * len(longer) <= width else [lines[-1], part]
    beside = int((width - CHARACTER * len(lines[0])) / _BOLD_CHARACTER)
    fits = beside >= min(len(label), _SHORTEST_LABEL)
    most = beside if fits else int(width / _BOLD_CHARACTER)
    below = len(lines) - 1 if fits else len(lines)
    return _Title(_shorten(label, min(_LONGEST_LABEL, most)) + "\n" * below, "\n".join(lines))


def _numbers(schedule: Schedule, bound: int | None) -> list[str]:
    cost = metrics.cost(schedule)
    parts = [f"cost {style.thousands(cost)}", f"bubble rate {metrics.bubble_rate(schedule):.2%}"]
    if bound is not None:
        parts.append(f"bound {style.thousands(bound)} (gap {(cost - bound) / cost:.2%})")
    return parts


def _shorten(label: str, most: int) -> str:
    """Return the label; if it is longer than `most` characters, its middle is replaced by an ellipsis."""
    label = " ".join(label.split())
    if len(label) <= most:
        return label
    half = most // 2
    return f"{label[:half].rstrip()}…{label[-half:].lstrip()}"


def _label_times(all_axes: Sequence[Axes], most: int) -> None:
    for axes in all_axes:
        axes.xaxis.set_major_locator(MaxNLocator(most, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(style.thousands))
        axes.tick_params(axis="x", labelbottom=axes is all_axes[-1])
    all_axes[-1].set_xlabel("time (ticks)", labelpad=2)


_PAIR_LEFT, _PAIR_RIGHT, _PAIR_TOP = 0.86, 0.2, 0.36  # inches
_PAIR_TALLEST, _PAIR_USUAL, _PAIR_LOWEST = 0.2, 4.4, 0.04  # inches; heights of a row, and of all usual rows
_PITCH = 2.4  # rows from one device to the next: two, and a gap
_SAME_SCALE = 4.0  # a plan that is shorter or longer by more than this factor has a scale of its own


def draw_side_by_side(plan: Schedule, measured: Schedule, path: str | Path) -> None:
    """Draw the planned and the measured schedule of one run, and write the figure.

    Every device has two rows, the plan above the measurement. Both begin at the left end of the axis, which
    counts microseconds. The ticks of a plan may stand for any unit of time. If the plan's cost in ticks is
    less than a quarter or more than four times the measured cost in microseconds, the plan is scaled until
    the busy times of all devices have the same sum in both. The title then has the scale.
    """
    check_target(path)
    dpi = style.DENSE_DPI if _are_dense(plan, measured) else style.DPI
    write_figure(side_by_side_figure(plan, measured), path, dpi)


def _are_dense(plan: Schedule, measured: Schedule) -> bool:
    return len(plan.order) + len(measured.order) > style.DENSE_BARS


def stretch_of(plan: Schedule, measured: Schedule) -> float:
    """Return as how many microseconds a tick of the plan is drawn; 1 if the plan is not scaled."""
    ratio = metrics.cost(measured) / metrics.cost(plan)
    if 1 / _SAME_SCALE <= ratio <= _SAME_SCALE:
        return 1.0
    return float(metrics.busy_times(measured).sum() / metrics.busy_times(plan).sum())


@style.paper_style()
def side_by_side_figure(plan: Schedule, measured: Schedule) -> Figure:
    """Return the figure that `draw_side_by_side` writes."""
    devices, stretch = plan.instance.devices, stretch_of(plan, measured)
    row = max(_PAIR_LOWEST, min(_PAIR_TALLEST, _PAIR_USUAL / (_PITCH * devices)))
    shades = lane_count(plan.instance.placement)
    legend = folded(legend_columns([plan, measured], shades), style.WIDTH)
    below = _TIME_AXIS + LEGEND_LINE * max(map(len, legend)) + 0.04
    rows = _PITCH * devices * row
    height, wide = _PAIR_TOP + rows + below, style.WIDTH - _PAIR_LEFT - _PAIR_RIGHT
    figure = Figure(figsize=(style.WIDTH, height))
    box = (_PAIR_LEFT / style.WIDTH, below / height, wide / style.WIDTH, rows / height)
    axes = figure.add_axes(box)
    drawn = [_stretched(plan, stretch), _stretched(measured, 1.0)]
    _, last = shown_ticks(drawn, WHOLE)
    axes.set_xlim(0, last)
    axes.set_ylim(_PITCH * devices - 0.7, -0.7)
    points: dict[str, Any] = {"row_points": row * 72, "tick_points": wide * 72 / last}
    for place, schedule in enumerate(drawn):
        heights = _PITCH * np.arange(devices, dtype=np.float64) + place
        dense = _are_dense(plan, measured)
        draw_bars(axes, schedule, shades=shades, dense=dense, heights=heights, **points)
    _label_pairs(axes, devices, row)
    scale = "" if stretch == 1 else f", a tick drawn as {stretch:,.3g} microseconds"
    planned, ran = (", ".join(_numbers(schedule, None)) for schedule in (plan, measured))
    axes.set_title(f"plan: {planned}{scale}\nmeasured: {ran}", loc="left", pad=3)
    draw_legend(figure, legend)
    return figure


def _stretched(schedule: Schedule, factor: float) -> Schedule:
    """Return the schedule with its times shifted to begin at 0 and multiplied by `factor`."""

    def stretched(times: Any, begin: int = 0) -> Any:
        return np.rint((np.array(times) - begin) * factor).astype(np.int64)

    instance, (begin, _) = schedule.instance, shown_ticks([schedule], WHOLE)
    if instance.step is not None:
        step = Step(*(stretched(getattr(instance.step, field.name)) for field in fields(Step)))
        instance = replace(instance, step=step)
    start, end = (stretched(times, begin) for times in (schedule.start, schedule.end))
    return Schedule(instance, schedule.order, start, end)


def _label_pairs(axes: Axes, devices: int, row: float) -> None:
    """Label the rows of plan and measurement, or one device in so many as fit, and the axis of time."""
    step = max(1, ceil(style.FONT_SIZE / (row * 72)))
    word = " plan" if step == 1 else ""
    labels = {_PITCH * device: f"{device}{word}" for device in range(0, devices, step)}
    if step == 1:
        labels |= {_PITCH * device + 1: f"{device} measured" for device in range(devices)}
    axes.set_yticks(list(labels), list(labels.values()))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    _label_times([axes], _MOST_TIMES)
    axes.set_xlabel("time (microseconds)", labelpad=2)
