"""Figures to files, in the format of their suffix."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ..core.errors import InputError
from ..core.files import check_writable, is_standard_output, write_bytes
from . import style

SUFFIXES = (".pdf", ".png", ".svg")
_METADATA: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}


def check_target(path: str | Path) -> str:
    """Return the suffix of a figure's format if it can be written there, so that nothing is drawn in vain.

    Standard output has no suffix and gets a PNG.

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


def draw_to(path: str | Path, draw: Callable[[], Figure]) -> None:
    """Draw a figure in the project's style and write it, where it can be written.

    Raises
    ------
    InputError
        If the suffix is not known, or the file cannot be written.
    """
    check_target(path)
    with style.paper_style():
        figure = draw()
    write_figure(figure, path, style.DPI)


def write_figure(figure: Figure, path: str | Path, dpi: int) -> None:
    """Write a figure in the format of the path's suffix, in one step.

    Raises
    ------
    InputError
        If the suffix is not known or the file cannot be written.
    """
    write_bytes(path, figure_bytes(figure, check_target(path), dpi))


def figure_bytes(figure: Figure, suffix: str, dpi: int) -> bytes:
    """Return a figure as the content of a file with a suffix of `SUFFIXES`, which has no date."""
    content = BytesIO()
    with style.paper_style():
        figure.savefig(content, format=suffix[1:], dpi=dpi, metadata=_METADATA[suffix])
    return content.getvalue()
