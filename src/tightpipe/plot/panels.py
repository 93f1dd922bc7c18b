"""Figures of several panels side by side, with one legend above them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from . import palette, style
from .palette import Look

Point = Mapping[str, Any]
_HEIGHT = 2.6  # inches, of a row of panels
_MOST_IN_A_ROW = 3
_HANDLE, _CHARACTER = 0.45, 0.055  # inches: the mark of a legend's entry, and a character of its text
_MARKER = 4.5  # points
# what makes markers of one size look equally large
_OPTICAL = {"^": 1.2, "v": 1.2, "<": 1.2, ">": 1.2, "X": 1.1, "P": 1.1, "D": 0.9, "d": 1.2}
_EDGE, _OPEN_EDGE = 0.5, 1.0  # points
_LARGEST_MARKER, _SMALLEST_MARKER = 7.0, 3.8


def panels(titles: Sequence[str], *, share_x: bool = True) -> tuple[Figure, list[Axes]]:
    """Return a figure of the paper's width with one panel per title, the y axes alike."""
    columns = 2 if len(titles) == 4 else min(len(titles), _MOST_IN_A_ROW)
    rows = -(-len(titles) // columns)
    figure = Figure(figsize=(style.WIDTH, _HEIGHT * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharex=share_x, sharey=True, squeeze=False)
    for panel, title in zip(axes.flat, titles, strict=False):
        panel.set_title(title)
        panel.grid(axis="y")
        panel.tick_params(labelbottom=True)  # also above a panel that is not there
    for panel in list(axes.flat)[len(titles) :]:
        panel.remove()
    return figure, list(axes.flat)[: len(titles)]


def label_y(axes: Sequence[Axes], text: str) -> None:
    """Name the y axis at the left of each row."""
    for panel in axes:
        if panel.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            panel.set_ylabel(text)


def legend(figure: Figure, handles: Sequence[Artist], where: str = "upper") -> None:
    """Explain marks above the panels, or below them with ``lower``, in as many columns as fit."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = int(style.WIDTH / (_HANDLE + _CHARACTER * longest))
    figure.legend(handles=handles, loc=f"outside {where} center", ncols=min(len(handles), max(1, columns)))


def line_look(look: Look) -> dict[str, Any]:
    """Return colour and dashes of a series as matplotlib takes them."""
    return {"color": look.colour, "linestyle": (0, look.dashes) if look.dashes else "-"}


def marker_look(look: Look, size: float = _MARKER) -> dict[str, Any]:
    """Return the marker of a series, `size` points large, as matplotlib takes it."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "markersize": size * _OPTICAL.get(look.marker, 1.0) - (_OPEN_EDGE if look.hollow else 0.0),
        "markerfacecolor": palette.PAPER if look.hollow else look.colour,
        "markeredgecolor": look.colour if look.hollow else palette.PAPER,
        "markeredgewidth": _OPEN_EDGE if look.hollow else _EDGE,
    }


def nested_sizes(count: int) -> list[float]:
    """Return a marker size for each of some series: of those at one place the first encloses the next."""
    step = (_LARGEST_MARKER - _SMALLEST_MARKER) / max(1, count - 1)
    return [_LARGEST_MARKER - step * index for index in range(count)]


def proof_handles() -> list[Patch]:
    """Return what a legend says of the band in which the optimum lies, and of what is proven impossible."""
    return [
        Patch(facecolor=palette.UNDECIDED, label="the optimum lies here"),
        Patch(facecolor=palette.PROVEN, label="proven impossible (below the bound)"),
    ]


def distinct(points: Sequence[Point], key: str) -> list[Any]:
    """Return the values of a key in the order in which they first appear."""
    return list(dict.fromkeys(point[key] for point in points))


def having(points: Sequence[Point], **values: Any) -> list[Point]:
    """Return the points with these values."""
    return [point for point in points if all(point[key] == value for key, value in values.items())]
