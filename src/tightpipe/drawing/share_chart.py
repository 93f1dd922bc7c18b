"""A chart of the share of an avoidable cost that each method avoids: a row per setting, a mark per method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from . import palette, style
from .marks import legend, marker_look
from .output import draw_points
from .palette import Look
from .panels import Point, distinct, having

_ROW_HEIGHT = 0.25  # inches
_MARGIN = 1.0
_BAND = 0.9  # part of a row over which its marks are spread, so that equal shares do not hide each other
_MARKER = 3.6  # points
_LOWEST = -0.25  # a smaller share is drawn as an arrow at the edge, with its value
_BEHIND_ARROW = 0.015  # distance from an arrow to its value, in units of the axis


def draw_shares(points: Sequence[Point], path: str | Path, *, x_label: str) -> None:
    """Draw the share of an avoidable cost that each method avoids, in one row per setting; write the figure.

    A share below -25 % is an arrow at the left edge, with its value beside it. Where a share is missing, the
    reason is written: within the row if the row has no mark at all, otherwise at the right end of the row.

    Parameters
    ----------
    points
        Points with the keys `setting` and `method` (texts), `share` (1 if all of the avoidable cost is
        avoided, below 0 if the method adds to it, None if the share is missing) and `why` (the reason of a
        missing share in a few words). If points have the key `engine` (an engine version), the figure names
        these versions.
    path
        File to write, ending in ``.pdf``, ``.png`` or ``.svg``.
    x_label
        Label of the axis of shares.

    Raises
    ------
    InputError
        If there is no point, the suffix is not known, or the file cannot be written.
    """
    draw_points(points, path, lambda: _draw(points, x_label))


def _draw(points: Sequence[Point], x_label: str) -> Figure:
    settings, methods = distinct(points, "setting"), distinct(points, "method")
    looks = palette.series(methods)
    figure = Figure(figsize=(style.WIDTH, _MARGIN + _ROW_HEIGHT * len(settings)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlim(_LOWEST, 1.02)
    for row, setting in enumerate(settings):
        if row % 2:
            axes.axhspan(row - 0.5, row + 0.5, color=palette.GROUND, linewidth=0, zorder=0)
        here = having(points, setting=setting)
        for index, method in enumerate(methods):
            y = row + _BAND * ((index + 0.5) / len(methods) - 0.5)
            for point in having(here, method=method):
                _draw_point(axes, point["share"], y, looks[method])
        _write_reasons(axes, here, row)
    _label(axes, settings, x_label)
    handles = [Line2D([], [], label=m, **marker_look(looks[m]), linestyle="none") for m in methods]
    legend(figure, handles)
    return figure


def _draw_point(axes: Axes, share: float | None, y: float, look: Look) -> None:
    if share is None:
        return
    common: dict[str, Any] = {"linestyle": "none", "clip_on": False, "zorder": 3}
    if share >= _LOWEST:
        axes.plot(share, y, **marker_look(look, _MARKER), **common)
        return
    axes.plot(_LOWEST, y, marker=4, markersize=4, color=look.colour, **common)
    axes.text(
        _LOWEST + _BEHIND_ARROW,
        y,
        f"{share:.0%}".replace("-", "−"),
        va="center_baseline",
        color=look.colour,
        fontsize=6,
    )


def _write_reasons(axes: Axes, points: Sequence[Point], row: int) -> None:
    """Write into a row why shares are missing there."""
    missing = having(points, share=None)
    alone = len(missing) == len(points)
    axes.text(
        0.01 if alone else 1.04,
        row,
        ", ".join(distinct(missing, "why")),
        va="center",
        color=palette.SOFT,
        fontsize=6,
    )


def _label(axes: Axes, settings: Sequence[str], x_label: str) -> None:
    axes.axvline(0, color=palette.INK, linewidth=0.6, zorder=1)
    axes.axvline(1, color=palette.INK, linewidth=0.6, linestyle=(0, (4, 2)), zorder=1)
    axes.set_ylim(len(settings) - 0.5, -0.5)
    axes.set_yticks(range(len(settings)), settings)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel(x_label)
