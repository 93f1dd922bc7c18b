"""Sizes of all figures, and how they are drawn; colours are in palette.py, fonts in tightpipe.mplstyle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl

from ..core.operation import OpKind
from . import palette

WIDTH = 7.0  # inches: both columns of a two-column page
DPI = 300
DENSE_DPI = 600
DENSE_BARS = 10_000  # more than these are drawn as one image inside vector files, which keeps them small

FONT_SIZE = 7.0  # points
LARGEST_NUMBER = 6.5
SMALLEST_NUMBER = 3.5
SMALLEST_NAMED = 4.5  # at less the number of a bar goes without the letter of its kind
DIGIT_WIDTH = 0.64  # of the font size, for DejaVu Sans
NAME_WIDTHS = {OpKind.F: 0.58, OpKind.B: 0.69, OpKind.W: 0.99, OpKind.BW: 1.68}  # as above

HATCH = "////"  # at the width of lines that tightpipe.mplstyle sets

_STYLE = Path(__file__).with_name("tightpipe.mplstyle")


@contextmanager
def paper_style() -> Iterator[None]:
    """Draw in the project's style; the caller's settings of matplotlib come back afterwards."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(mpl.rc_params_from_file(_STYLE, use_default_template=False))
        mpl.rcParams.update({"axes.edgecolor": palette.INK, "grid.color": palette.LINE})
        yield


def thousands(value: float, _position: int | None = None) -> str:
    """Write a number of ticks, e.g. 1,234,567."""
    return f"{value:,.0f}"
