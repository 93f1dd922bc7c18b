"""Sizes and drawing style of all figures; colours are in palette.py, fonts in tightpipe.mplstyle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl

from ..core.operation import OpKind
from . import palette

WIDTH = 7.0  # inches; the width of a two-column page
DPI = 300
DENSE_DPI = 600
DENSE_BARS = 10_000  # more bars are drawn as one image inside vector files, which keeps the files small

FONT_SIZE = 7.0  # points
LARGEST_NUMBER = 6.5
SMALLEST_NUMBER = 3.5
SMALLEST_NAMED = 4.5  # numbers in a smaller size have no letter of the kind beside them
DIGIT_WIDTH = 0.64  # share of the font size, for DejaVu Sans
NAME_WIDTHS = {OpKind.F: 0.58, OpKind.B: 0.69, OpKind.W: 0.99, OpKind.BW: 1.68}  # shares of the font size

HATCH = "////"  # the width of its lines is set in tightpipe.mplstyle

_STYLE = Path(__file__).with_name("tightpipe.mplstyle")


@contextmanager
def paper_style() -> Iterator[None]:
    """Let matplotlib draw in the style of the project until the block ends."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(mpl.rc_params_from_file(_STYLE, use_default_template=False))
        mpl.rcParams.update({"axes.edgecolor": palette.INK, "grid.color": palette.LINE})
        yield


def thousands(value: float, _position: int | None = None) -> str:
    """Return a number as text, e.g. ``1,234,567``; matplotlib also passes a position, which is not used."""
    return f"{value:,.0f}"
