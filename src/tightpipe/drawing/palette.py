"""The palette of the project: figures, the HTML report and exported traces take all colours from here.

Colours that a reader has to tell apart never differ in hue alone, because a page may be printed in grey and
one reader in twenty sees fewer hues. They are told apart as follows:

- Kinds of operations differ in lightness. The lightness of F, W and B is 20, 44 and 68 in CIE L*, and that of
  idle time is 93, nearly white. Further chunks of a device are lighter, by at most half of the difference
  between two kinds, so that an F, a W and a B differ by at least 10, whatever their chunks. The hues of F, W
  and B are blue, green and orange, and bars with enough room have the letter of their kind.
- BW is hatched in white, because no lightness is left for it between the others.
- Copies are grey, those back lighter than those out, in lanes of their own.
- Where microbatches differ, a strip along the lower edge of each bar is the darker the longer the microbatch.
- Each look of a series has its own colour and its own marker.
- Idle time in the HTML report has a strip in the colour of its reason; the pointer shows the reason's name.

`tests/drawing/test_palette.py` checks the lightness and the contrast of the colours, also as readers with
protanopia, deuteranopia and tritanopia see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..model.operation import OpKind

PAPER = "#FFFFFF"
INK = "#222222"  # axes, text and outlines
SOFT = "#5B6470"  # explanatory text
LINE = "#D9DDE2"  # grids and borders
GROUND = "#F4F5F7"  # background of groups and of every second row
ACCENT = "#1F469B"  # elements that can be clicked, and the chosen one
CHOSEN = "#E4E9F4"  # background of the chosen element

KINDS = {
    OpKind.F: ("#022D6E", "#1F469B"),
    OpKind.B: ("#EA9217", "#F3BC7F"),
    OpKind.W: ("#037757", "#2B9773"),
    OpKind.BW: ("#C058A9", "#D682C1"),
    OpKind.O: ("#3B3B3B", "#5E5E5E"),
    OpKind.L: ("#8C8C8C", "#B0B0B0"),
}
"""For each kind, the colours of the first and of the last lane (chunk or direction) of a device."""

HATCHED = frozenset({OpKind.BW})
"""The kinds whose bars have white lines from the lower left to the upper right."""

IDLE = "#EBEBEB"

REASONS = {
    "dependency": "#C2B1BF",
    "link": "#567E83",
    "communication": "#159BF7",
    "copy": "#00E0B0",
    "stage": "#2400D8",
    "memory": "#BB5D03",
    "order": "#515E35",
    "late": "#380036",
    "finished": "#EAFFB9",
}
"""For each reason of idle time (a value of `Reason`), the colour of its strip."""

LENGTHS = (PAPER, INK)  # of the strips of the shortest and of the longest microbatches, where they differ

PROVEN = "#B8B8B8"  # area in which no schedule can lie
UNDECIDED = "#F6E3A1"  # band between the bound and the best schedule, in which the optimum lies

DEVICES = "cividis"
"""matplotlib's colour map for devices; its lightness rises evenly, for readers with any colour vision."""
DEVICES_END = 0.8  # share of the map in use; later colours are too light for lines on white

TRACE_NAMES = {
    OpKind.F: "thread_state_runnable",
    OpKind.B: "thread_state_iowait",
    OpKind.W: "thread_state_running",
    OpKind.BW: "thread_state_uninterruptible",
}
"""Names of blue, orange, green and purple in chrome://tracing, where only colours with a name can be used."""


@dataclass(frozen=True, slots=True)
class Look:
    """The look of a series of points or of a line."""

    colour: str  #: colour of the marker and of the line, e.g. ``#D80100``
    marker: str  #: a marker of matplotlib
    dashes: tuple[float, ...]  #: lengths of strokes and gaps, in widths of the line; empty for a solid line
    hollow: bool = False  #: whether the marker is white inside


# No more than ten colours stay distinct for every reader: these were searched for with that aim.
_RED, _TEAL, _VIOLET, _PLUM, _ROSE = "#D80100", "#0D7394", "#8C80FE", "#430158", "#CE7C7A"
_BLACK, _GREEN, _BLUE, _CYAN, _GREY = "#000000", "#274134", "#1217E1", "#10A4A8", "#6D6466"
SERIES = (
    Look(_RED, "o", ()),
    Look(_VIOLET, "s", (1.2, 1.2)),
    Look(_TEAL, "^", (6, 1.5)),
    Look(_PLUM, "D", (6, 1.5, 1.2, 1.5)),
    Look(_ROSE, "v", (3, 1.2)),
    Look(_BLACK, "X", (3, 1.2, 1.2, 1.2)),
    Look(_GREEN, "P", (6, 1.5, 1.2, 1.5, 1.2, 1.5)),
    Look(_BLUE, "<", (3, 1.2)),
    Look(_CYAN, ">", (1.2, 1.2)),
    Look(_GREY, "d", (6, 1.5, 1.2, 1.5)),
)

_METHODS = {  # a method looks the same in all figures
    name: SERIES[index]
    for index, name in enumerate(
        ("greedy-v", "best", "cpsat", "improve", "milp", "list", "v-zb", "v-half", "v-min", "1f1b-v")
    )
}
_VARIANT = ", "  # stands between a method and the name of a variant, e.g. "greedy-v, median costs"


def series(names: Sequence[str]) -> dict[str, Look]:
    """Return the look of each series of a figure, by name.

    Well-known methods have the same look in all figures. Other series take the remaining looks in turn, and
    start again with the first of these when none is left. A variant of a well-known method, such as
    ``cpsat, median costs``, has the look of the method with a hollow marker.
    """
    known = {name: _METHODS[_method(name)] for name in names if _method(name) in _METHODS}
    free = [look for look in SERIES if look not in known.values()] or list(SERIES)
    others = iter(range(len(names)))
    looks = {name: known.get(name) or free[next(others) % len(free)] for name in names}
    return {name: replace(look, hollow=_VARIANT in name and name in known) for name, look in looks.items()}


def _method(name: str) -> str:
    return name.partition(_VARIANT)[0]


def shade(kind: OpKind, lane: int, lanes: int) -> str:
    """Return the colour of a kind in one of so many lanes; they lie evenly between the two in `KINDS`."""
    return _between(*KINDS[kind], lane / max(1, lanes - 1))


def length_colour(place: int, count: int) -> str:
    """Return the grey of a length of microbatches, by its place among `count` lengths in rising order."""
    return _between(*LENGTHS, place / max(1, count - 1))


def _between(first: str, last: str, part: float) -> str:
    """Return the colour that lies between two colours, `part` of the way from the first to the last."""
    ends = zip(_channels(first), _channels(last), strict=True)
    return "#" + "".join(f"{round(a + part * (b - a)):02X}" for a, b in ends)


def text_colour(background: str) -> str:
    """Return black or white, whichever has more contrast to the background (WCAG 2.1)."""
    unit = (channel / 255 for channel in _channels(background))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in unit]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def _channels(colour: str) -> Iterator[int]:
    """Return red, green and blue of a colour such as ``#D80100``, each from 0 to 255."""
    return (int(colour[k : k + 2], 16) for k in (1, 3, 5))
