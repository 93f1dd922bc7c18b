"""The map of the study of docs/theorem.md: where the greedy V-schedule meets the formula, by b/f and c/f.

f, b and c are the times of an F, a B and a message in ticks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tightpipe.drawing import palette
from tightpipe.drawing.palette import Look
from tightpipe.drawing.style import WIDTH, draw_points, marker_look

Line = Mapping[str, str]
_HEIGHT, _MARKER = 3.7, 3.4  # inches, points
_PANELS = {"short W's: 2w ≤ b + 2c": True, "long W's: 2w > b + 2c": False}
_LOOKS = (
    Look(palette.SERIES[2].colour, "o", ()),
    Look(palette.SERIES[1].colour, "s", (), hollow=True),
    Look(palette.SERIES[0].colour, "X", ()),
)


def draw_map(rows: Sequence[Line], classes: Sequence[str], path: Path) -> None:
    """Draw one panel for short and one for long W's, with a marker for each setting.

    Parameters
    ----------
    rows
        Lines of instances.csv; the columns forward, backward, weight, comm and class are used.
    classes
        The three classes in the sequence of the legend, from the least to the most striking marker.
    path
        File to write, ending in ``.pdf``, ``.png`` or ``.svg``.
    """
    draw_points(rows, path, lambda: _figure(rows, classes))


def _figure(rows: Sequence[Line], classes: Sequence[str]) -> Figure:
    figure = Figure(figsize=(WIDTH, _HEIGHT), layout="constrained")
    axes = figure.subplots(1, len(_PANELS), sharex=True, sharey=True)
    looks = dict(zip(classes, _LOOKS, strict=True))
    for panel, (title, short) in zip(axes, _PANELS.items(), strict=True):
        here = [row for row in rows if has_short_weights(row) == short]
        for name, look in looks.items():
            _draw_class(panel, [row for row in here if row["class"] == name], look)
        _label(panel, title, len(here))
    axes[0].set_ylabel("time of a message / time of an F  (c / f)")
    counts = {name: sum(row["class"] == name for row in rows) for name in classes}
    handles = [
        Line2D([], [], label=f"{name}: {counts[name]}", linestyle="none", **marker_look(look))
        for name, look in looks.items()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(classes))
    return figure


def has_short_weights(row: Line) -> bool:
    """Return whether twice a W takes no longer than a B and two messages."""
    return 2 * int(row["weight"]) <= int(row["backward"]) + 2 * int(row["comm"])


def _draw_class(panel: Axes, rows: Sequence[Line], look: Look) -> None:
    if not rows:  # matplotlib would make room for markers even if there are no points
        return
    x, y = ([int(row[key]) / int(row["forward"]) for row in rows] for key in ("backward", "comm"))
    panel.plot(x, y, linestyle="none", clip_on=False, **marker_look(look, _MARKER))


def _label(panel: Axes, title: str, count: int) -> None:
    panel.set_title(f"{title}  ({count} settings)", pad=11)
    panel.set_xlabel("time of a B / time of an F  (b / f)")
    panel.set_xlim(0.48, 1.42)
    panel.set_ylim(-0.005, 0.505)
    panel.axvline(1, color=palette.INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1)
    panel.annotate("b = f", (1, 1), (0, 1), ("data", "axes fraction"), "offset points", ha="center")
    panel.grid(zorder=0)
