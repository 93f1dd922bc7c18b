"""The look of all figures: colours and sizes; fonts and lines are in tightpipe.mplstyle."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.colors import to_rgb

from ..operation import OpKind

Colour = tuple[float, float, float]

# Okabe and Ito's palette, which people with any colour vision tell apart
KIND_COLOURS = {OpKind.F: "#0072B2", OpKind.B: "#E69F00", OpKind.W: "#009E73", OpKind.BW: "#CC79A7"}
METHOD_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
METHOD_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
IDLE = "#DCDCDC"
INK = "#222222"
PROVEN = "#8C8C8C"
UNDECIDED = "#F6E3A1"
DEVICE_MAP = "cividis"

WIDTH = 7.0  # inches: both columns of a two-column page
DPI = 300
DENSE_DPI = 600
DENSE_BARS = 10_000  # more than these are drawn as one image inside vector files, which keeps them small

FONT_SIZE = 7.0  # points
LARGEST_NUMBER = 6.5
SMALLEST_NUMBER = 3.5
DIGIT_WIDTH = 0.64  # of the font size, for DejaVu Sans

_LIGHTEST = 0.56  # how much white the last lane's colour holds

_STYLE = Path(__file__).with_name("tightpipe.mplstyle")


@contextmanager
def paper_style() -> Iterator[None]:
    """Draw in the project's style; the caller's settings of matplotlib come back afterwards."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(mpl.rc_params_from_file(_STYLE, use_default_template=False))
        yield


def shade(kind: OpKind, lane: int, lanes: int) -> Colour:
    """Return the colour of a kind's operations: the first lane's is pure, later ones are lighter."""
    white = _LIGHTEST * lane / max(1, lanes - 1)
    red, green, blue = (c + (1 - c) * white for c in to_rgb(KIND_COLOURS[kind]))
    return red, green, blue


def text_colour(background: Colour) -> str:
    """Return black or white, whichever stands out more (WCAG 2.1, relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in background]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def thousands(value: float, _position: int | None = None) -> str:
    """Write a number of ticks, e.g. 1,234,567."""
    return f"{value:,.0f}"
