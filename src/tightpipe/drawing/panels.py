"""Figures with several panels side by side, and functions that select the points of a panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import style

Point = Mapping[str, Any]
"""The data of one mark or row of a chart, by key; each drawing function says which keys it needs."""
_HEIGHT = 2.6  # inches; height of a row of panels
_MOST_IN_A_ROW = 3
_MOST_LEVEL_CHARACTERS = 85  # if the names below an axis have more characters in all, they are slanted


def panels(titles: Sequence[str], *, share_x: bool = True) -> tuple[Figure, list[Axes]]:
    """Return a figure as wide as a page, and its panels, one per title.

    The panels share the y axis, and with `share_x` also the x axis.
    """
    columns = 2 if len(titles) == 4 else min(len(titles), _MOST_IN_A_ROW)
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(style.WIDTH, _HEIGHT * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=share_x, sharey=True, squeeze=False)
    for panel, title in zip(axes.flat, titles, strict=False):
        panel.set_title(title)
        panel.grid(axis="y")
        panel.tick_params(labelbottom=True)  # also where the last row has no panel below
    for panel in list(axes.flat)[len(titles) :]:
        panel.remove()
    return figure, list(axes.flat)[: len(titles)]


def label_y(axes: Sequence[Axes], text: str) -> None:
    """Write the label of the y axis at the left of each row of panels."""
    for panel in axes:
        if panel.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            panel.set_ylabel(text)


def label_places(axes: Axes, names: Sequence[str]) -> None:
    """Label the positions 0, 1, 2 and so on of the x axis of a page-wide figure with `names`."""
    axes.set_xticks(range(len(names)), names)
    if sum(len(name) + 2 for name in names) > _MOST_LEVEL_CHARACTERS:
        axes.tick_params(axis="x", labelrotation=30)
        for text in axes.get_xticklabels():
            text.set(ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.tick_params(axis="x", length=0)


def distinct(points: Sequence[Point], key: str) -> list[Any]:
    """Return the values of a key, each once, in the sequence in which they first appear."""
    return list(dict.fromkeys(point[key] for point in points))


def having(points: Sequence[Point], **values: Any) -> list[Point]:
    """Return the points that have these values for these keys."""
    return [point for point in points if all(point[key] == value for key, value in values.items())]
