"""A chart of the time until a gap is reached against the number of devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullFormatter

from . import palette
from .marks import legend, line_look, marker_look, nested_sizes
from .output import draw_points
from .palette import Look
from .panels import Point, distinct, having, label_y, panels

_FIRST = 0.01  # seconds; the logarithmic axis of time begins here


def draw_time_to_gap(points: Sequence[Point], path: str | Path) -> None:
    """Draw the seconds until a gap is reached over the number of devices, and write the figure.

    A gap is (cost - bound) / cost. There is one panel per method and number of microbatches.

    Parameters
    ----------
    points
        Points with the keys `panel` and `target` (texts; the target names the gap), `p` (number of devices),
        `seconds`, and `reached`: True if the gap was reached after these seconds, False if the solve ended
        then without reaching it. If points have the key `engine` (an engine version), the figure names these
        versions.
    path
        File to write, ending in ``.pdf``, ``.png`` or ``.svg``.

    Raises
    ------
    InputError
        If there is no point, the suffix is not known, or the file cannot be written.
    """
    draw_points(points, path, lambda: _draw(points))


def _draw(points: Sequence[Point]) -> Figure:
    targets = distinct(points, "target")
    looks, sizes = palette.series(targets), nested_sizes(len(targets))
    figure, axes = panels(distinct(points, "panel"))
    for panel in axes:
        here = having(points, panel=panel.get_title())
        for target, size in zip(targets, sizes, strict=True):
            line = having(here, target=target)
            look = looks[target]
            places, seconds = [p["p"] for p in line], [max(_FIRST, p["seconds"]) for p in line]
            panel.plot(places, seconds, **line_look(look), zorder=2)
            for place, second, point in zip(places, seconds, line, strict=True):
                mark = marker_look(replace(look, hollow=not point["reached"]), size)
                panel.plot(place, second, **mark, zorder=3)
        panel.set_yscale("log")
        panel.set_xlabel("devices p")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        panel.yaxis.set_minor_formatter(NullFormatter())
    label_y(axes, "seconds")
    handles = [
        Line2D([], [], label=target, **line_look(looks[target]) | marker_look(looks[target]))
        for target in targets
    ]
    open_mark = Look(palette.INK, "o", (), hollow=True)
    hollow = Line2D([], [], label="not reached", **marker_look(open_mark), linestyle="none")
    legend(figure, [*handles, hollow])
    return figure
