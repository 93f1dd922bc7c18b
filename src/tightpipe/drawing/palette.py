"""The project's one palette: figures, the HTML report and exported traces take every colour from here.

Colour alone is never what tells two things apart, as a page may be printed in grey and one reader in
twenty sees fewer hues. What stands beside it:

- Kinds of operations differ in lightness first. F, W and B are steps of 24 in CIE L* (20, 44, 68), idle
  time is nearly white (93), and a device's further chunks are lighter by at most half a step, so that any
  two of them still differ by 10 where their kinds differ. Hues are blue, green and orange; the letter of the
  kind stands on bars with room for it.
- BW, which has no step left between these, is hatched in white.
- Series have a marker and a line pattern of their own.
- A reason of idle time is a strip within idle time, and named where the pointer rests.

`tests/drawing/test_palette.py` holds the colours to this in lightness, in contrast, and as readers with
protanopia, deuteranopia and tritanopia see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..core.operation import OpKind

PAPER = "#FFFFFF"
INK = "#222222"  # axes, text and outlines
SOFT = "#5B6470"  # text that explains
LINE = "#D9DDE2"  # grids and borders
GROUND = "#F4F5F7"  # behind what is grouped, and every second row
ACCENT = "#1F469B"  # what can be clicked, and is chosen
CHOSEN = "#E4E9F4"  # behind what is chosen

KINDS = {
    OpKind.F: ("#022D6E", "#1F469B"),
    OpKind.B: ("#EA9217", "#F3BC7F"),
    OpKind.W: ("#037757", "#2B9773"),
    OpKind.BW: ("#C058A9", "#D682C1"),
}
"""Of each kind the colour of a device's first lane (chunk or direction) and that of its last."""

HATCHED = frozenset({OpKind.BW})
"""The kinds whose bars bear white lines from the lower left to the upper right."""

IDLE = "#EBEBEB"

REASONS = {
    "dependency": "#C2B1BF",
    "link": "#567E83",
    "communication": "#159BF7",
    "memory": "#BB5D03",
    "order": "#515E35",
    "late": "#380036",
    "finished": "#EAFFB9",
}
"""Colours of idle time by the text of its `Reason`."""

PROVEN = "#B8B8B8"  # where no schedule can be
UNDECIDED = "#F6E3A1"  # between a bound and the best schedule, where the optimum lies

DEVICES = "cividis"
"""matplotlib's map for devices: even in lightness, and made for readers with any colour vision."""
DEVICES_END = 0.8  # of the map; what comes after it is too light for lines on white

TRACE_NAMES = {
    OpKind.F: "thread_state_runnable",
    OpKind.B: "thread_state_iowait",
    OpKind.W: "thread_state_running",
    OpKind.BW: "thread_state_uninterruptible",
}
"""The names that chrome://tracing has for its own blue, orange, green and purple; it takes no others."""


@dataclass(frozen=True, slots=True)
class Look:
    """What a series of points or a line looks like.

    Parameters
    ----------
    colour
        Of its marker and line, e.g. ``#D80100``.
    marker
        One of matplotlib's markers.
    dashes
        Lengths of strokes and gaps in line widths; empty for a solid line.
    hollow
        Whether the marker is white inside.
    """

    colour: str
    marker: str
    dashes: tuple[float, ...]
    hollow: bool = False


# seven colours are the most that stay apart; three come twice, with another marker and line
_RED, _TEAL, _VIOLET, _PLUM = "#D80100", "#0D7394", "#8C80FE", "#430158"
_ROSE, _BLACK, _GREEN = "#CD797D", "#000000", "#274134"
SERIES = (
    Look(_RED, "o", ()),
    Look(_VIOLET, "s", (1.2, 1.2)),
    Look(_TEAL, "^", (6, 1.5)),
    Look(_PLUM, "D", (6, 1.5, 1.2, 1.5)),
    Look(_ROSE, "v", (3, 1.2)),
    Look(_BLACK, "X", (3, 1.2, 1.2, 1.2)),
    Look(_GREEN, "P", (6, 1.5, 1.2, 1.5, 1.2, 1.5)),
    Look(_VIOLET, "<", (3, 1.2)),
    Look(_PLUM, ">", (1.2, 1.2)),
    Look(_ROSE, "d", (6, 1.5, 1.2, 1.5)),
)

_METHODS = {  # a method looks the same in all figures
    name: SERIES[index]
    for index, name in enumerate(
        ("greedy-v", "best", "cpsat", "improve", "milp", "list", "v-zb", "v-half", "v-min", "1f1b-v")
    )
}
_VARIANT = ", "  # between a method and what it was changed in, e.g. "greedy-v, median costs"


def series(names: Sequence[str]) -> dict[str, Look]:
    """Return the look of each series of a figure.

    The methods that the project's figures compare have theirs in all of them; other series take in
    turn what is left, and from the eleventh on looks repeat. A variant of a method that is named too,
    such as ``cpsat, median costs``, has the method's look with a hollow marker.
    """
    known = {name: _METHODS[_method(name)] for name in names if _method(name) in _METHODS}
    free = [look for look in SERIES if look not in known.values()] or list(SERIES)
    others = iter(range(len(names)))
    looks = {name: known.get(name) or free[next(others) % len(free)] for name in names}
    return {name: replace(look, hollow=_VARIANT in name and name in known) for name, look in looks.items()}


def _method(name: str) -> str:
    return name.partition(_VARIANT)[0]


def shade(kind: OpKind, lane: int, lanes: int) -> str:
    """Return the colour of a kind's operations in a lane, evenly between the first lane's and the last's.

    Parameters
    ----------
    kind
        What the operations compute.
    lane
        Chunk or direction of the operations on their device, from 0 on.
    lanes
        How many the figure tells apart, at least `lane` + 1.
    """
    part = lane / max(1, lanes - 1)
    first, last = (list(_channels(colour)) for colour in KINDS[kind])
    return "#" + "".join(f"{round(a + part * (b - a)):02X}" for a, b in zip(first, last, strict=True))


def text_colour(background: str) -> str:
    """Return black or white, whichever stands out more (WCAG 2.1, relative luminance)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _unit(background)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"


def _channels(colour: str) -> Iterator[int]:
    """Yield red, green and blue, 0 to 255."""
    return (int(colour[k : k + 2], 16) for k in (1, 3, 5))


def _unit(colour: str) -> list[float]:
    return [channel / 255 for channel in _channels(colour)]
