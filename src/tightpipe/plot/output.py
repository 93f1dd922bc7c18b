"""Figures to files, in one step."""

from __future__ import annotations

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ..errors import InputError
from . import style

SUFFIXES = (".pdf", ".png", ".svg")
_METADATA: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}


def check_target(path: str | Path) -> Path:
    """Return the path if a figure can be written there, so that nothing is drawn in vain.

    Raises
    ------
    InputError
        If the suffix is not known, or the folder is missing or not writable.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InputError(f"must end in one of {', '.join(SUFFIXES)}", key="figure", value=str(path))
    folder = target.parent
    if not folder.is_dir():
        raise InputError(f"cannot be written: no folder {str(folder)!r}", source=str(path))
    if target.is_dir() or not os.access(folder, os.W_OK):
        what = "it is a folder" if target.is_dir() else f"folder {str(folder)!r} is not writable"
        raise InputError(f"cannot be written: {what}", source=str(path))
    return target


def draw_to(path: str | Path, draw: Callable[[], Figure]) -> None:
    """Draw a figure in the project's style and write it, where it can be written.

    Raises
    ------
    InputError
        If the suffix is not known, or the file cannot be written.
    """
    check_target(path)
    with style.paper_style():
        write_figure(draw(), path, style.DPI)


def write_figure(figure: Figure, path: str | Path, dpi: int) -> None:
    """Write a figure in the format of the path's suffix; readers see the old file or the new, never half.

    Raises
    ------
    InputError
        If the suffix is not known or the file cannot be written.
    """
    target = check_target(path)
    suffix = target.suffix.lower()
    content = BytesIO()
    figure.savefig(content, format=suffix[1:], dpi=dpi, metadata=_METADATA[suffix])
    partial = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    try:
        partial.write_bytes(content.getvalue())
        partial.replace(target)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
    finally:
        partial.unlink(missing_ok=True)
