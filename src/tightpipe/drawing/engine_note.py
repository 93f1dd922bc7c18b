"""A note in small letters, at the lower right of a figure, that names the engine of the results.

The engine is the code that schedules and proves; it is named by its version and its last commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from . import palette
from .panels import Point

_FONT_SIZE = 4.5  # points
_STRIP = 0.1  # inches that are added below all else for the note
_MARGIN = 0.03  # inches to the edges of the figure
_NAME = "engine"  # gid of the note among the texts of a figure


def engine_of(points: Sequence[Point]) -> str | None:
    """Return the value of the key `engine` in the points of a figure; None if no point has it.

    Several engines are separated by commas.
    """
    engines = dict.fromkeys(point.get("engine") for point in points)
    return ", ".join(engine for engine in engines if engine) or None


def note_engine(figure: Figure, engine: str) -> None:
    """Write an engine version at the lower right of a figure.

    A figure with constrained layout first grows by a strip at the bottom, which only the note takes.
    """
    layout = figure.get_layout_engine()
    if isinstance(layout, ConstrainedLayoutEngine):
        height = figure.get_figheight() + _STRIP
        figure.set_figheight(height)
        layout.set(rect=(0.0, _STRIP / height, 1.0, 1.0 - _STRIP / height))
    corner = (1 - _MARGIN / figure.get_figwidth(), _MARGIN / figure.get_figheight())
    look: dict[str, Any] = {"ha": "right", "color": palette.SOFT, "fontsize": _FONT_SIZE, "gid": _NAME}
    figure.text(*corner, f"tightpipe {engine}", **look)


def engine_note(figure: Figure) -> str | None:
    """Return the text of the note in a figure, e.g. ``tightpipe 0.1.0+8442489``; None without a note."""
    return next((text.get_text() for text in figure.texts if text.get_gid() == _NAME), None)
