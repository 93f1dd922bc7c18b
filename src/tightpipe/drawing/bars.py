"""The parts of a Gantt chart: a bar per operation, in lanes of a device's stages; a legend; memory over time.

A lane tells the stages of one device apart: it is a chunk of the device, or a direction in the bidirectional
placement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator
from numpy.typing import NDArray

from ..kernels.arrays import Ints
from ..model.metrics import charged_windows, finished, reductions
from ..model.microbatches import lengths
from ..model.operation import COPIES, OpKind
from ..model.schedule import Schedule
from ..model.simulate import memory_events
from . import palette, style
from .lanes import lane_noun, lanes, length_names, looks, number

Floats = NDArray[np.floating[Any]]
Group = tuple[OpKind, str, Ints]  # kind, colour, and the indices in the order of the operations with both

_BAR_HEIGHT = 0.84  # share of a row's height
_WIDEST_EDGE = 0.4  # points
_STRIP = 0.2  # share of a bar's height; the strip that shows how long a microbatch is
_COPY_LANE = 0.17  # share of a bar's height; the lane of copies out, and that of copies back
_REDUCTION = 1.6  # points; width of the line that shows a reduction


def draw_bars(
    axes: Axes,
    schedule: Schedule,
    *,
    shades: int,
    row_points: float,
    tick_points: float,
    dense: bool,
    heights: Floats | None = None,
) -> None:
    """Draw a bar for every operation, in one row per device (device 0 on top), and idle time in light grey.

    Of two operations that run together, the F has the upper half of the row. Copies have thin lanes of their
    own at the bottom of the row. A dark line shows where a device starts another iteration. Where
    microbatches differ, a strip along the lower edge of each bar is white for the shortest, and darker for
    longer ones. Idle time is grey where the objective charges it. For `step`, a line below the bars shows
    where a device reduces gradients, and a dark bar its optimizer.

    - `axes`: axes to draw on, whose limits of time are set; operations beyond them are left out.
    - `shades`: number of shades of a colour in the figure, at least the number of lanes of a device.
    - `row_points`, `tick_points`: height of the row of a device, and width of a tick, in points.
    - `dense`: whether to draw all bars as one image, without edges, hatching and numbers.
    - `heights`: where the middle of each device's row lies; None puts device d at d.
    """
    rows = np.arange(schedule.order.devices, dtype=np.float64) if heights is None else heights
    top, bottom = _heights(schedule, rows)
    shown = shown_rows(schedule, axes.get_xlim())
    common: dict[str, Any] = {"rasterized": dense, "antialiased": not dense}
    charged = charged_windows(schedule)
    idle = _boxes(*charged, rows - _BAR_HEIGHT / 2, rows + _BAR_HEIGHT / 2)
    axes.add_collection(PolyCollection(idle, facecolor=palette.IDLE, linewidth=0, **common))
    shortest = (schedule.end - schedule.start)[shown].min(initial=schedule.end.max())
    edge = 0.0 if dense else min(_WIDEST_EDGE, 0.1 * tick_points * float(shortest))
    groups = _groups(schedule, shades, shown)
    for kind, colour, members in groups:
        boxes = _boxes(schedule.start[members], schedule.end[members], top[members], bottom[members])
        hatch = style.HATCH if kind in palette.HATCHED and not dense else None
        axes.add_collection(
            PolyCollection(
                boxes, facecolor=colour, edgecolor=palette.PAPER, hatch=hatch, linewidth=edge, **common
            )
        )
    above = _draw_lengths(axes, schedule, (top, bottom), shown, {"linewidth": edge, **common})
    if schedule.instance.iterations > 1:
        _draw_iterations(axes, schedule, rows)
    if schedule.instance.barrier is not None:
        _draw_step(axes, schedule, rows)
    if not dense:
        largest = 0.75 * row_points * float((above - top)[schedule.order.computes].min())
        named = [group for group in groups if group[0] not in COPIES]  # lanes of copies are too low
        _draw_numbers(axes, schedule, (top + above) / 2, named, largest, tick_points)


def shown_rows(schedule: Schedule, span: tuple[float, float]) -> NDArray[np.bool_]:
    """Return for each operation whether a part of it lies in `span` (two times in ticks), shape (N,).

    Operations of empty stages take no time, so they have no part.
    """
    start, end = schedule.start, schedule.end
    return (end > span[0]) & (start < span[1]) & (end > start)


def _heights(schedule: Schedule, rows: Floats) -> tuple[Floats, Floats]:
    """Return the top and the bottom of each operation's bar on the vertical axis, each of shape (N,)."""
    order = schedule.order
    middle = np.repeat(rows, np.diff(order.offsets))
    joins = order.pairs == 1
    joined = np.append(False, joins[:-1])
    highest = middle - _BAR_HEIGHT / 2
    top, bottom = np.where(joined, middle, highest), np.where(joins, middle, middle + _BAR_HEIGHT / 2)
    if order.has_copies:
        top, bottom = (highest + (1 - 2 * _COPY_LANE) * (y - highest) for y in (top, bottom))
        for lanes_below, kind in enumerate(reversed(COPIES)):
            mine = order.operations[:, 0] == kind
            bottom[mine] = middle[mine] + _BAR_HEIGHT * (0.5 - lanes_below * _COPY_LANE)
            top[mine] = bottom[mine] - _BAR_HEIGHT * _COPY_LANE
    return top, bottom


def _boxes(start: Ints, end: Ints, top: Floats, bottom: Floats) -> Any:
    """Return the corners (x, y) of one rectangle per entry of the arrays, shape (entries, 4, 2)."""
    x = np.stack([start, end, end, start], axis=1)
    y = np.stack([top, top, bottom, bottom], axis=1)
    return np.stack([x.astype(np.float64), y], axis=2)


def _groups(schedule: Schedule, shades: int, shown: NDArray[np.bool_]) -> list[Group]:
    """Return the groups of operations in `shown` that look alike, each with its kind and its colour."""
    kind, lane = schedule.order.operations[:, 0], lanes(schedule)
    groups = [
        (k, palette.shade(k, i, shades), np.flatnonzero((kind == k) & (lane == i) & shown))
        for k, i in looks(schedule)
    ]
    return [group for group in groups if len(group[2])]


def _draw_lengths(
    axes: Axes,
    schedule: Schedule,
    heights: tuple[Floats, Floats],
    shown: NDArray[np.bool_],
    look: dict[str, Any],
) -> Floats:
    """Draw the strips that show how long microbatches are, if they differ; return where the bars' rest ends.

    `heights` has the top and the bottom of each operation's bar on the vertical axis.
    """
    (top, bottom), groups = heights, lengths(schedule.instance)
    if len(groups) == 1:
        return bottom
    low = bottom - _STRIP * (bottom - top)
    place = np.empty(schedule.instance.units, np.int64)
    for k, group in enumerate(groups):
        place[group] = k
    places = place[schedule.order.operations[:, 2]]
    for k in range(len(groups)):
        members = np.flatnonzero(shown & (places == k))
        boxes = _boxes(schedule.start[members], schedule.end[members], low[members], bottom[members])
        colour = palette.length_colour(k, len(groups))
        axes.add_collection(PolyCollection(boxes, facecolor=colour, edgecolor=palette.PAPER, **look))
    return np.asarray(low)


def _draw_iterations(axes: Axes, schedule: Schedule, heights: Floats) -> None:
    """Draw a line where a device starts its second and each later iteration."""
    instance, order = schedule.instance, schedule.order
    of_microbatch = np.array([instance.iteration(m) for m in range(instance.units)])
    iteration = of_microbatch[order.operations[:, 2]]
    for device in range(order.devices):
        rows = order.rows(device)
        start = schedule.start[rows]
        begins = [start[iteration[rows] == k].min() for k in range(1, instance.iterations)]
        axes.vlines(begins, heights[device] - 0.5, heights[device] + 0.5, color=palette.INK, linewidth=1.2)


def _draw_step(axes: Axes, schedule: Schedule, heights: Floats) -> None:
    """Draw a line for each reduction, and a bar for the optimizer of each device."""
    step = schedule.instance.barrier
    assert step is not None
    for device, _, begin, end in reductions(schedule):
        low = heights[device] + _BAR_HEIGHT / 2
        axes.hlines(low, begin, end, color=palette.SOFT, linewidth=_REDUCTION)
    ticks, done = np.array(step.optimizer), finished(schedule)
    boxes = _boxes(done - ticks, done, heights - _BAR_HEIGHT / 2, heights + _BAR_HEIGHT / 2)
    axes.add_collection(PolyCollection(boxes, facecolor=palette.SOFT, linewidth=0))


def _draw_numbers(
    axes: Axes, schedule: Schedule, height: Floats, groups: list[Group], largest: float, tick_points: float
) -> None:
    """Write into each bar the number of its microbatch, with one font size for all bars.

    If a number of a group does not fit into its bar, the bars of that group get no numbers. The letter of the
    kind stands before each number if both together fit into every bar in a size that is easy to read.
    """
    sizes = [_fitting_size(schedule, m, tick_points, style.NAME_WIDTHS[k]) for k, _, m in groups]
    named = min([largest, *sizes]) >= style.SMALLEST_NAMED
    if not named:
        sizes = [_fitting_size(schedule, m, tick_points, 0.0) for _, _, m in groups]
    fitting = [s for s in sizes if s >= style.SMALLEST_NUMBER]
    size = min([style.LARGEST_NUMBER, largest, *fitting])
    if size < style.SMALLEST_NUMBER:
        return
    for (kind, colour, members), fits in zip(groups, sizes, strict=True):
        if fits >= size:
            name = kind.name if named else ""
            # A plate in the colour of the bar keeps the hatching away from the text.
            plate = {"facecolor": colour, "linewidth": 0, "pad": 0.4} if kind in palette.HATCHED else None
            look = {"fontsize": size, "color": palette.text_colour(colour), "bbox": plate}
            _write(axes, schedule, height, members, name, look)


def _write(
    axes: Axes, schedule: Schedule, height: Floats, members: Ints, name: str, look: dict[str, Any]
) -> None:
    """Write `name` and microbatch into each bar, but for those that the edge of the axes cuts too short."""
    begin, end = np.clip((schedule.start, schedule.end), *axes.get_xlim())
    middle, narrowest = (begin + end) / 2, (schedule.end - schedule.start)[members].min()
    for i in members[(end - begin)[members] >= narrowest].tolist():
        text = f"{name}{number(schedule.instance, int(schedule.order.operations[i, 2]))}"
        axes.text(middle[i], height[i], text, ha="center", va="center_baseline", clip_on=True, **look)


def _fitting_size(schedule: Schedule, members: Ints, tick_points: float, name_width: float) -> float:
    """Return the largest font size, in points, at which every bar of `members` has room for its text.

    The text is the letter of the kind and the longest number of a microbatch. `name_width` is the width of
    the letter as a share of the font size, 0 for texts without it.
    """
    width = float((schedule.end - schedule.start)[members].min()) * tick_points
    digits = len(number(schedule.instance, int(schedule.order.operations[members, 2].max())))
    return 0.85 * width / (name_width + digits * style.DIGIT_WIDTH)


LEGEND_LINE = 0.14
"""Height of a line of the legend in inches."""

CHARACTER = 0.054
"""Width of a character in inches."""

_BESIDE_IDLE = 3  # lengths of microbatches in the column of idle time; further ones have a column
_SWATCH = 0.36  # inches; width of the patch of a legend's entry, with its margins


def legend_columns(schedules: Sequence[Schedule], shades: int) -> list[list[Artist]]:
    """Return the columns of the legend: one for each kind of operation, and then idle time.

    The column of a kind has an entry for each lane (chunk or direction) with such operations. If a schedule
    has several iterations, an entry for the line between them follows the entry for idle time, and so do
    entries for reductions and optimizers where a step has them. Lengths of microbatches come last. `shades`
    is the number of shades of a colour, at least the number of lanes of a device.
    """
    noun = lane_noun(schedule.instance.placement for schedule in schedules)
    columns: dict[OpKind, list[Artist]] = {}
    for kind, lane in sorted(set().union(*map(looks, schedules))):
        name = kind.name + (f" {noun} {lane}" if noun else "")
        columns.setdefault(kind, []).append(_swatch(kind, lane, shades, name))
    rest: list[Artist] = [Patch(facecolor=palette.IDLE, label="idle")]
    if any(schedule.instance.iterations > 1 for schedule in schedules):
        rest.append(Line2D([], [], color=palette.INK, linewidth=1.2, label="next iteration"))
    steps = [schedule.instance.barrier for schedule in schedules]
    if any(step is not None and any(step.reduce) for step in steps):  # type: ignore[arg-type]
        rest.append(Line2D([], [], color=palette.SOFT, linewidth=1.6, label="reduction"))
    if any(step is not None and any(step.optimizer) for step in steps):  # type: ignore[arg-type]
        rest.append(Patch(facecolor=palette.SOFT, label="optimizer"))
    named = _length_entries(schedules)
    if named:
        return [*columns.values(), rest + named[:_BESIDE_IDLE], *filter(None, [named[_BESIDE_IDLE:]])]
    others = [rest] if shades > 1 else [[artist] for artist in rest]  # keeps the legend low
    return [*columns.values(), *others]


def _length_entries(schedules: Sequence[Schedule]) -> list[Artist]:
    """Return entries of the legend for the lengths of microbatches, where they differ."""
    entries = dict.fromkeys(
        (name, palette.length_colour(place, len(lengths(schedule.instance))))
        for schedule in schedules
        for place, name, _ in length_names(schedule.instance)
    )
    look: dict[str, Any] = {"edgecolor": palette.SOFT, "linewidth": _WIDEST_EDGE}
    return [Patch(facecolor=colour, label=name, **look) for name, colour in entries]


def folded(columns: list[list[Artist]], width: float) -> list[list[Artist]]:
    """Return the columns; those that do not fit into `width` inches are put below the others."""
    longest = max(len(str(artist.get_label())) for column in columns for artist in column)
    most = max(1, int(width / (_SWATCH + CHARACTER * longest)))
    if len(columns) <= most:
        return columns
    lines = max(map(len, columns))
    padded = [column + [_blank()] * (lines - len(column)) for column in columns]
    return [[artist for column in padded[i::most] for artist in column] for i in range(most)]


def _blank() -> Artist:
    return Patch(facecolor="none", label=" ")  # fills up a column that has fewer entries than the others


def _swatch(kind: OpKind, lane: int, shades: int, name: str) -> Patch:
    hatch = style.HATCH if kind in palette.HATCHED else None
    colour = palette.shade(kind, lane, shades)
    return Patch(facecolor=colour, edgecolor=palette.PAPER, hatch=hatch, linewidth=0, label=name)


def draw_legend(figure: Figure, columns: list[list[Artist]]) -> None:
    """Draw a legend with these columns of entries at the bottom of a figure."""
    lines = max(map(len, columns))
    figure.legend(
        handles=[patch for column in columns for patch in column + [_blank()] * (lines - len(column))],
        loc="lower center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=len(columns),
        borderaxespad=0.2,
        labelspacing=0.25,
        handlelength=1.6,
        handleheight=0.8,
        columnspacing=1.8,
    )


_MOST_STEPS = 700  # with more steps than fit the width, a line shows the largest level in each part
_ENVELOPE_PARTS = 600
_KEY_MARGIN, _KEY_ENTRY = 1.3, 0.66  # inches; width of the limit's entry with margins, of a device's entry

Steps = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Ascending times in ticks, and a level of memory from each of these times until the next."""


def memory_steps(schedule: Schedule) -> Iterator[Steps]:
    """Yield for each device times in ticks, and the memory that it holds from each of them until the next.

    The first entry has memory 0; then there is an entry for each change of the memory.
    """
    for times, levels in memory_events(schedule):
        changes = np.diff(levels, prepend=0) != 0
        yield np.append(times[0], times[changes]), np.append(0, levels[changes])


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
