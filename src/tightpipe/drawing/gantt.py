"""Gantt charts of schedules, in the style of the zero-bubble papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..core import metrics
from ..core.errors import InputError
from ..core.schedule import Schedule
from . import style
from .bars import draw_bars, shown_rows
from .engine_note import note_engine
from .lanes import lane_count
from .legend import CHARACTER, LEGEND_LINE, draw_legend, folded, legend_columns
from .memory_panel import draw_memory
from .output import check_target, write_figure
from .time_range import WHOLE, Window, shown_ticks

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
    is hatched, and light grey is idle time that the objective charges. The title of a schedule has its label,
    its cost and its bubble rate.

    Parameters
    ----------
    schedules
        Label and schedule of each chart, from top to bottom.
    path
        File to write. The endings ``.pdf`` and ``.svg`` give vector graphics, in which more than 10,000 bars
        are drawn as one image; ``.png`` gives an image.
    memory
        Whether to draw, below each schedule whose instance has memory, how much memory its devices hold over
        time, and the limit.
    bounds
        For each schedule, a proven lower bound of its cost in ticks, or None.
    window
        First and last tick to show; None stands for the start or the end of the schedules. Titles still
        show the cost and the bubble rate of the whole schedule.
    width
        Width of the figure in inches, 3 to 100; None takes 7, the width of a page with two columns.
    engine
        Version of the engine that made the schedules, which the figure then shows; None to show none.

    Raises
    ------
    InputError
        If there is no schedule, if `memory` is set and no schedule has memory, if nothing lies in the window,
        if the width is out of its range, or if the suffix is not known or the file cannot be written.
    """
    _refuse_nothing_to_draw(schedules, memory)
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
    """Return the figure that `draw_gantt` writes.

    Raises
    ------
    InputError
        If there is no schedule, if `memory` is set and no schedule has memory, if nothing lies in the window,
        or if the width is out of its range.
    """
    _refuse_nothing_to_draw(schedules, memory)
    known = bounds or [None] * len(schedules)
    span = shown_ticks([schedule for _, schedule in schedules], window)
    inches = _checked_width(width)
    with style.paper_style():
        return _draw(schedules, known, span, memory=memory, width=inches)


def _checked_width(width: float | None) -> float:
    if width is not None and not _NARROWEST <= width <= _WIDEST:
        rule = f"must be a number of inches, {_NARROWEST:g} to {_WIDEST:g}"
        raise InputError(rule, key="width", value=width)
    return style.WIDTH if width is None else width


def _refuse_nothing_to_draw(schedules: Sequence[tuple[str, Schedule]], memory: bool) -> None:
    if not schedules:
        raise InputError("no schedule to draw")
    if memory and all(schedule.instance.memory is None for _, schedule in schedules):
        raise InputError("the instance has no memory deltas to draw", key="memory", value=None)


def _is_dense(schedules: Sequence[tuple[str, Schedule]], span: tuple[int, int]) -> bool:
    return sum(int(shown_rows(schedule, span).sum()) for _, schedule in schedules) > style.DENSE_BARS


@dataclass
class _Page:
    """A figure that is filled with axes from top to bottom.

    `y` is the height at which the filled part ends, above the bottom of the figure. Lengths are in inches.
    """

    figure: Figure
    width: float
    height: float
    y: float

    @classmethod
    def of_size(cls, width: float, height: float) -> _Page:
        return cls(Figure(figsize=(width, height)), width, height, height - _TOP)

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
    page = _Page.of_size(width, _TOP + panels + _BETWEEN * (len(schedules) - 1) + below)
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
    axes.set_yticks(range(0, devices, _label_step(row)))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return axes


def _draw_memory_panel(page: _Page, schedule: Schedule, span: tuple[int, int]) -> None:
    page.skip(_MEMORY_KEY)
    axes = page.add_axes(_MEMORY_HEIGHT)
    axes.set_xlim(*span)
    draw_memory(axes, schedule, span)


def _label_step(row: float) -> int:
    """Return the least power of 2, k, such that a number fits beside every k-th row.

    `row` is the height of a row in inches.
    """
    step = 1
    while step * row * 72 < style.FONT_SIZE:
        step *= 2
    return step


@dataclass(frozen=True, slots=True)
class _Title:
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
