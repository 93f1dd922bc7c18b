"""Markers and lines of the data series in charts, and legends for these series and for proven areas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from . import palette, style
from .palette import Look

Place = Literal["outside upper center", "outside lower center"]

_HANDLE, _CHARACTER = 0.45, 0.055  # inches; widths of the mark of a legend entry and of a character
_MARKER = 4.5  # points
# Factors on the size of each kind of marker, with which all kinds look equally large
_OPTICAL = {"^": 1.2, "v": 1.2, "<": 1.2, ">": 1.2, "X": 1.1, "P": 1.1, "D": 0.9, "d": 1.2}
_EDGE, _OPEN_EDGE = 0.5, 1.0  # points
_LARGEST_MARKER, _SMALLEST_MARKER = 7.0, 3.8


def legend(figure: Figure, handles: Sequence[Artist], place: Place = "outside upper center") -> None:
    """Add a legend outside the panels of a figure, in as few lines of even length as fit."""
    longest = max(len(str(handle.get_label())) for handle in handles)
    most = max(1, int(style.WIDTH / (_HANDLE + _CHARACTER * longest)))
    lines = -(-len(handles) // most)
    figure.legend(handles=handles, loc=place, ncols=-(-len(handles) // lines))


def line_look(look: Look) -> dict[str, Any]:
    """Return the colour and the dashes of a series, as keyword arguments of matplotlib."""
    return {"color": look.colour, "linestyle": (0, look.dashes) if look.dashes else "-"}


def marker_look(look: Look, size: float = _MARKER) -> dict[str, Any]:
    """Return the marker of a series, `size` points large, as keyword arguments of matplotlib."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "markersize": size * _OPTICAL.get(look.marker, 1.0) - (_OPEN_EDGE if look.hollow else 0.0),
        "markerfacecolor": palette.PAPER if look.hollow else look.colour,
        "markeredgecolor": look.colour if look.hollow else palette.PAPER,
        "markeredgewidth": _OPEN_EDGE if look.hollow else _EDGE,
    }


def nested_sizes(count: int) -> list[float]:
    """Return marker sizes in points for `count` series, so that coinciding markers enclose each other."""
    step = (_LARGEST_MARKER - _SMALLEST_MARKER) / max(1, count - 1)
    return [_LARGEST_MARKER - step * index for index in range(count)]


def proof_handles(side: str = "below", *, undecided: bool = True) -> list[Patch]:
    """Return legend entries for the band in which the optimum lies and for the area proven impossible.

    Parameters
    ----------
    side
        Where the impossible area lies: below the bound, or above it where a higher value is better.
    undecided
        Whether the chart has a band; it has none if every optimum is known.
    """
    band = Patch(facecolor=palette.UNDECIDED, label="the optimum lies here")
    impossible = Patch(facecolor=palette.PROVEN, label=f"proven impossible ({side} the bound)")
    return [band, impossible] if undecided else [impossible]
