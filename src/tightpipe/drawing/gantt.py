"""Gantt charts of schedules, in the style of the zero-bubble papers, with a panel of memory over time."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from math import ceil, log2
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from ..base.errors import InputError
from ..model import metrics
from ..model.graph_arrays import deltas_of
from ..model.schedule import Schedule
from ..model.simulate import memory_events, memory_trace
from . import palette, style
from .bars import CHARACTER, LEGEND_LINE, draw_bars, draw_legend, folded, legend_columns, shown_rows
from .lanes import WHOLE, Window, lane_count, shown_ticks
from .style import check_target, figure_bytes, note_engine, write_figure

_MOST_STEPS = 700  # with more steps than fit the width, a line shows the largest level in each part
_ENVELOPE_PARTS = 600
_KEY_MARGIN, _KEY_ENTRY = 1.3, 0.66  # inches; width of the limit's entry with margins, of a device's entry

Steps = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Ascending times in ticks, and a level of memory from each of these times until the next."""


def memory_steps(schedule: Schedule) -> Iterator[Steps]:
    """Yield for each device times in ticks, and the memory that it holds from each of them until the next.

    The first entry has memory 0. Then each operation has two entries: one for its start, at which F takes
    memory, and one for its end, at which B and W free memory. Of two operations that run together, the F has
    both entries at its start, so that the times ascend. With copies there is an entry for each time at which
    something takes or frees memory.
    """
    if schedule.order.has_copies:
        for times, levels in memory_events(schedule):
            yield np.insert(times, 0, times[0]), np.insert(levels, 0, 0)
        return
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
            _draw_memory_panel(page, schedule, span)
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


def _draw_memory_panel(page: _Page, schedule: Schedule, span: tuple[int, int]) -> None:
    page.skip(_MEMORY_KEY)
    axes = page.add_axes(_MEMORY_HEIGHT)
    axes.set_xlim(*span)
    draw_memory(axes, schedule, span)


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
