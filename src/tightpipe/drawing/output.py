"""Figures are written to files in the format that the suffix of the path names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ..base.errors import InputError
from ..base.files import check_writable, is_standard_output, write_bytes
from . import style
from .style import Point, engine_note, engine_of, note_engine

SUFFIXES = (".pdf", ".png", ".svg")
_METADATA: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}
_PROGRAM = {".pdf": "Creator", ".svg": "Creator", ".png": "Software"}
"""The entry of the metadata that says, in each format, which program made the file."""


def check_target(path: str | Path) -> str:
    """Return the suffix of a figure's format, after a check that the figure can be written.

    The check comes before the drawing, which may take long. Standard output has no suffix and gets a PNG.

    Raises
    ------
    InputError
        If the suffix is not known, or the file cannot be written.
    """
    suffix = ".png" if is_standard_output(path) else Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"must end in one of {', '.join(SUFFIXES)}", key="figure", value=str(path))
    check_writable(path)
    return suffix


def draw_points(points: Sequence[Point], path: str | Path, draw: Callable[[], Figure]) -> None:
    """Call `draw` in the style of the project, and write the figure that it returns.

    Parameters
    ----------
    points
        What the figure shows. If points have the key `engine` (an engine version), the figure names these
        versions.
    path
        File to write, ending in ``.pdf``, ``.png`` or ``.svg``.
    draw
        Function that returns the figure of the points.

    Raises
    ------
    InputError
        If there is no point, the suffix is not known, or the file cannot be written.
    """
    if not points:
        raise InputError("there is nothing to draw", key="figure", value=str(path))
    check_target(path)
    with style.paper_style():
        figure, engine = draw(), engine_of(points)
        if engine is not None:
            note_engine(figure, engine)
    write_figure(figure, path, style.DPI)


def write_figure(figure: Figure, path: str | Path, dpi: int) -> None:
    """Write a figure in the format of the path's suffix; `dpi` is the resolution of images in the file.

    Raises
    ------
    InputError
        If the suffix is not known or the file cannot be written.
    """
    write_bytes(path, figure_bytes(figure, check_target(path), dpi))


def figure_bytes(figure: Figure, suffix: str, dpi: int) -> bytes:
    """Return the content of a figure's file; `suffix` is one of `SUFFIXES`, and `dpi` the resolution.

    The content has no date, so that the same figure always gives the same file. If the figure has a note
    that names the engine of its results (see `style`), the metadata has the text of the note too.
    """
    content, noted = BytesIO(), engine_note(figure)
    metadata = _METADATA[suffix] | ({} if noted is None else {_PROGRAM[suffix]: noted})
    with style.paper_style():
        figure.savefig(content, format=suffix[1:], dpi=dpi, metadata=metadata)
    return content.getvalue()
