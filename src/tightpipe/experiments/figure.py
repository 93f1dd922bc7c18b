"""The figure of a study is written as PDF and PNG, and the data that it draws as CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .. import drawing
from ..base.files import write_text
from ..base.tables import csv_text
from . import figure_data
from .experiment import FigureKind
from .figure_data import Point
from .task import Row


@dataclass(frozen=True, slots=True)
class _Figure:
    points: Callable[[Sequence[Row]], list[Point]]
    draw: Callable[..., None]  # draws the points to the path


_AVOIDED = f"share of the avoidable bubble of {figure_data.BASELINE} (above the best bound) that is avoided"
_FIGURES = {
    FigureKind.SETTINGS: _Figure(figure_data.setting_points, drawing.draw_bubble_rates),
    FigureKind.MEMORY: _Figure(
        figure_data.memory_points,
        partial(drawing.draw_frontier, x_label="memory limit / (p activations)", looser=True),
    ),
    FigureKind.EQUAL_MEMORY: _Figure(
        figure_data.equal_memory_points,
        partial(drawing.draw_frontier, x_label="memory limit / peak memory of 1F1B", looser=True),
    ),
    FigureKind.DISCOUNT: _Figure(
        figure_data.discount_points,
        partial(drawing.draw_frontier, x_label="discount of a fused backward / %", looser=None),
    ),
    FigureKind.FRONTIER: _Figure(figure_data.frontier_points, drawing.draw_proven_band),
    FigureKind.COMM: _Figure(
        figure_data.comm_points,
        partial(drawing.draw_frontier, x_label="communication / forward time", looser=False),
    ),
    FigureKind.AVOIDED: _Figure(
        figure_data.avoided_points,
        partial(
            drawing.draw_shares,
            x_label=_AVOIDED,
        ),
    ),
    FigureKind.UNEVEN: _Figure(figure_data.uneven_points, drawing.draw_bubble_rates),
    FigureKind.ANYTIME: _Figure(figure_data.anytime_points, drawing.draw_gap_over_time),
    FigureKind.SCALING: _Figure(figure_data.scaling_points, drawing.draw_time_to_gap),
}


def check_figure(kind: FigureKind, rows: Sequence[Row]) -> None:
    """Raise an InputError if the figure cannot show the rows, which need not have been solved."""
    _FIGURES[kind].points(rows)


def write_figure(kind: FigureKind, rows: Sequence[Row], stem: Path, suffixes: Sequence[str]) -> None:
    """Draw the rows whose solves are done; if none is done, write nothing.

    Parameters
    ----------
    kind
        The kind of the figure.
    rows
        The rows of the study.
    stem
        The path of the figure without its suffix.
    suffixes
        The suffixes with which it is written; ``csv`` is the data that it draws.

    Raises
    ------
    InputError
        If the figure cannot show the rows (see `check_figure`), or a file cannot be written.
    """
    figure = _FIGURES[kind]
    drawn = figure.points([row for row in rows if row.state == "done"])
    for suffix in suffixes if drawn else ():
        path = stem.with_name(f"{stem.name}.{suffix}")
        if suffix == "csv":
            write_text(path, csv_text(drawn[0], [point.values() for point in drawn]))
        else:
            figure.draw(drawn, path=path)
