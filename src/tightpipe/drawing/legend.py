"""The legend below Gantt charts: the colour of each kind of operation and chunk, and of idle time."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..core.operation import OpKind
from ..core.schedule import Schedule
from . import palette, style
from .lanes import lane_noun, looks

LEGEND_LINE = 0.14
"""Height of a line of the legend in inches."""

CHARACTER = 0.054
"""Width of a character in inches."""

_SWATCH = 0.36  # inches; width of the patch of a legend's entry, with its margins


def legend_columns(schedules: Sequence[Schedule], shades: int) -> list[list[Artist]]:
    """Return the columns of the legend: one for each kind of operation, and then idle time.

    The column of a kind has an entry for each lane (chunk or direction) with such operations. If a schedule
    has several iterations, an entry for the line between them follows the entry for idle time, and so do
    entries for reductions and optimizers where a step has them. `shades` is the number of shades of a colour,
    at least the number of lanes of a device.
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
    others = [rest] if shades > 1 else [[artist] for artist in rest]  # keeps the legend low
    return [*columns.values(), *others]


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
    """Return an empty entry, which fills up a column that has fewer entries than the others."""
    return Patch(facecolor="none", label=" ")


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
