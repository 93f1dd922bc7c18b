"""Where things lie in drawings: the lanes of a device's stages, and the window of time that is shown.

The simplest drawing is here too: `draw_text` draws a schedule as text, with one line per device.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ..base.errors import InputError, check_int
from ..kernels.arrays import Ints
from ..model.instance import Instance
from ..model.metrics import charged_windows, finished
from ..model.microbatches import lengths, listed
from ..model.operation import Operation, OpKind
from ..model.placement import Placement
from ..model.schedule import Schedule


def lane_count(placement: Placement) -> int:
    """Return the number of lanes of a device: its chunks, counted once for each direction."""
    return len(placement.routes) * placement.stages_per_device


def lanes(schedule: Schedule) -> Ints:
    """Return the lane of each operation, shape (N,).

    The lanes of a device are its chunks in the sequence of the forward pass: first the chunks of the first
    direction, then the chunks of the second.
    """
    instance = schedule.instance
    routes = instance.placement.routes
    chunk = np.array([[route[:s].count(d) for s, d in enumerate(route)] for route in routes], np.int64)
    _, stage, microbatch = schedule.order.operations.T
    route = np.array([instance.route(m) for m in range(instance.units)])[microbatch]
    lane: Ints = route * instance.placement.stages_per_device + chunk[route, stage]
    return lane


def visits(schedule: Schedule) -> Ints:
    """Return each operation's lane, renumbered in the sequence in which its pass reaches lanes, shape (N,).

    Lanes of the first direction come first. The pass of an F is the forward pass, which reaches the chunks of
    a device in the sequence of the lanes; that of other kinds is the backward pass, which runs from the last
    stage to the first, and so reaches them in the opposite sequence.
    """
    placement = schedule.instance.placement
    chunks = placement.stages_per_device
    forward = lanes(schedule)
    backward = forward - 2 * (forward % chunks) + chunks - 1
    return np.where(schedule.order.operations[:, 0] == OpKind.F, forward, backward)


def looks(schedule: Schedule) -> list[tuple[OpKind, int]]:
    """Return the pairs of kind and lane that have an operation of a tick or more, in ascending order."""
    drawn = schedule.end > schedule.start
    kinds, lane = schedule.order.operations[drawn, 0], lanes(schedule)[drawn]
    return sorted({(OpKind(k), i) for k, i in zip(kinds.tolist(), lane.tolist(), strict=True)})


def lane_noun(placements: Iterable[Placement]) -> str:
    """Return the word for the lanes of these placements in a legend; empty if no device has two lanes."""
    several = [p for p in placements if lane_count(p) > 1]
    nouns = {"chunk" if len(p.routes) == 1 else "direction" for p in several}
    return " or ".join(sorted(nouns))


def number(instance: Instance, unit: int) -> str:
    """Return the number of the microbatch of a unit, with that of its slice behind it if it has slices."""
    return instance.name(Operation(OpKind.F, 0, unit)).partition(".")[2]


_LONGEST_LIST = 16  # characters
_MOST_LENGTHS = 6  # more lengths of microbatches have no names of their own


def length_names(instance: Instance) -> list[tuple[int, str, int]]:
    """Return lengths of microbatches: the place among `lengths`, a name, and the ticks of a microbatch.

    If all microbatches are alike, the list is empty. Of more than six lengths, it has the shortest and the
    longest.
    """
    groups = lengths(instance)
    if len(groups) == 1:
        return []
    few = len(groups) <= _MOST_LENGTHS
    named = dict.fromkeys(range(len(groups)), "") if few else {0: "shortest: ", len(groups) - 1: "longest: "}
    return [
        (k, word + _name(instance, groups[k]), instance.class_costs[instance.mb_class(groups[k][0])].work)
        for k, word in named.items()
    ]


def _name(instance: Instance, units: Sequence[int]) -> str:
    """Return which microbatches these are, or which slices of every microbatch."""
    one, several, numbers = "microbatch", "microbatches", units
    if instance.slices:
        one, several, numbers = "slice", "slices", sorted({unit % instance.slice_count for unit in units})
    text = listed(numbers)
    shown = text if len(text) <= _LONGEST_LIST else f"{text[:_LONGEST_LIST].rpartition(',')[0]}, …"
    return f"{several if len(numbers) > 1 else one} {shown}"


Window = tuple[int | None, int | None]
"""First and last tick that a drawing shows; None stands for the start or the end of the schedules."""

WHOLE: Window = (None, None)


def shown_ticks(schedules: Sequence[Schedule], window: Window) -> tuple[int, int]:
    """Return the first and the last tick of a drawing of schedules that share one time axis.

    All time that the objective charges is shown: a step begins at tick 0. Raise an InputError if the window
    does not end after it begins, or no part of the schedules lies in it.
    """
    first = min(int(charged_windows(s)[0].min()) for s in schedules)
    last = max(int(finished(s).max()) for s in schedules)
    start, end = (
        usual if given is None else check_int("window", given)
        for given, usual in zip(window, (first, last), strict=True)
    )
    if not start < end or start >= last or end <= first:
        rule = f"must be a stretch of time from a tick to a later one, within the ticks {first} to {last}"
        raise InputError(rule, key="window", value=f"{start} to {end}")
    return start, end


USUAL_WIDTH = 160
_LEAST_WIDTH = 40
_MOST_COLUMNS = 10**6
_RULER_STEP = 20
_LETTERS = {OpKind.F: "FGHJ", OpKind.B: "BCDE", OpKind.W: "WXYZ", OpKind.BW: "QRST"}
_MEANINGS = {
    OpKind.F: "forward",
    OpKind.B: "gradient of the input",
    OpKind.W: "gradient of the weights",
    OpKind.BW: "both gradients",
}


def draw_text(
    schedule: Schedule, scale: int | None = None, width: int | None = None, window: Window = WHOLE
) -> str:
    """Draw a schedule with one line of characters per device.

    Parameters
    ----------
    schedule
        Schedule to draw.
    scale
        Ticks per character, at least 1; None takes the smallest number that fits `width`, rounded up to two
        significant digits.
    width
        Largest length of the line of a device in characters, at least 40; None takes 160. If `scale` is
        given, lines are as long as that scale requires.
    window
        First and last tick to show; None stands for the start or the end of the schedule. Operations are cut
        off at both ends: one whose beginning is cut off has no first letter.

    Returns
    -------
    str
        The lines, without a newline at the end.

    Raises
    ------
    InputError
        If `scale` or `width` is too small, nothing lies in the window, or a line would have more than a
        million characters.

    Notes
    -----
    The grammar of the drawing::

        drawing = scale device+ ruler legend+
        scale   = "1 character = " ticks " ticks, from tick " first " to " last
        device  = number "|" character*     in ascending order of the numbers
        ruler   = ("|" [tick] " "*)+        "|" stands below the character that begins at this tick
        legend  = what the letters mean

    Character j of a device is the time from ``first + j * scale`` to ``first + (j + 1) * scale``. An
    operation from s to e takes the characters ``(s - first) // scale`` to ``(e - first) // scale - 1``. The
    first and the last of them are its letter; between the two stands the number of its microbatch, with that
    of a slice as in ``3.1``, if all digits fit, and then ``-``. So a character shows the operation that runs
    at its end, and an operation that is shorter than a character appears only if it runs to the end of one or
    across it. ``.`` is idle time. Of two operations that run together, the F has the first half of the
    characters, with ``+`` as its last, and the other one has the rest: ``F3-+Q0-Q``.

    The letter of an operation shows its kind and its chunk. The first chunk of a device has F, B, W or Q
    (Q is B and W fused), and the second chunk has the small letter. The next chunks have G g H h J j for F,
    C c D d E e for B, X x Y y Z z for W and R r S s T t for Q; from the ninth chunk on the letters repeat.
    The *first* chunk is the one that a microbatch reaches first with this kind of operation: in placement `v`
    on device d, that is stage d for F and stage 2p - 1 - d for B and W. In placement `bidirectional`, capital
    letters are the first direction and small letters the second. Where microbatches differ, the last lines
    say how many ticks all operations of one take, of the shortest to the longest. Copies of activations are
    not drawn; the last line says how many there are.
    """
    first, last = shown_ticks([schedule], window)
    copies, schedule = int((~schedule.order.computes).sum()), schedule.without_copies()
    margin = len(str(schedule.instance.devices - 1)) + 1
    scale = _fit(last - first, margin, width) if scale is None else check_int("scale", scale, 1)
    columns = (last - first) // scale
    if columns > _MOST_COLUMNS:
        rule = f"lines would be {columns} characters long, at most {_MOST_COLUMNS} are drawn"
        raise InputError(rule, key="scale", value=scale)
    hidden = max(0, -(-(first - int(schedule.start.min())) // scale))  # characters before the window
    drawn = max(columns, (int(schedule.end.max()) - first) // scale) + hidden
    rows = _device_rows(schedule, first - hidden * scale, scale)
    return "\n".join(
        [
            f"1 character = {scale} ticks, from tick {first} to {last}",
            *(
                f"{d:>{margin - 1}}|{_line(bars, drawn)[hidden : hidden + columns]}"
                for d, bars in enumerate(rows)
            ),
            " " * margin + _ruler(first, scale, columns),
            *_legend(schedule),
            *([f"{copies} copies of activations are not shown"] if copies else []),
        ]
    )


def _fit(ticks: int, margin: int, width: int | None) -> int:
    """Return the smallest scale with at most two significant digits at which `ticks` fit into the width."""
    width = USUAL_WIDTH if width is None else check_int("width", width, _LEAST_WIDTH)
    exact = -(-ticks // (width - margin))
    unit: int = 10 ** max(0, len(str(exact)) - 2)
    return -(-exact // unit) * unit


Bar = tuple[str, str, int, int, bool]
"""The bar of an operation: letter, number, first character, character after the last, and a flag.

The flag says whether the next operation of the device runs together with this one.
"""


def _device_rows(schedule: Schedule, first: int, scale: int) -> Iterator[list[Bar]]:
    """Yield for each device the list of its bars, in the sequence in which they run."""
    kind, _, unit = schedule.order.operations.T.tolist()
    numbers = [number(schedule.instance, u) for u in range(schedule.instance.units)]
    letters = [_letter(OpKind(k), v) for k, v in zip(kind, visits(schedule).tolist(), strict=True)]
    begin = ((schedule.start - first) // scale).tolist()
    end = ((schedule.end - first) // scale).tolist()
    joins = (schedule.order.pairs == 1).tolist()
    bars = list(zip(letters, [numbers[u] for u in unit], begin, end, joins, strict=True))
    for device in range(schedule.order.devices):
        yield bars[schedule.order.rows(device)]


def _letter(kind: OpKind, visit: int) -> str:
    letters = _LETTERS[kind]
    letter = letters[visit // 2 % len(letters)]
    return letter.lower() if visit % 2 else letter


def _line(bars: Iterable[Bar], columns: int) -> str:
    cells = ["."] * columns
    taken = 0  # number of characters of a pair that its F has
    for letter, name, begin, end, joins in bars:
        length = (end - begin) // 2 if joins else end - begin - taken
        if length > 0:
            bar = _bar(letter, name, length)
            cells[begin + taken : begin + taken + length] = bar[:-1] + "+" if joins and length > 1 else bar
        taken = length if joins else 0
    return "".join(cells)


def _bar(letter: str, number: str, length: int) -> str:
    if length == 1:
        return letter
    inside = length - 2
    # A number without its last digits would name another microbatch.
    return letter + (number if len(number) <= inside else "").ljust(inside, "-") + letter


def _ruler(first: int, scale: int, columns: int) -> str:
    marks = ((j, f"|{first + j * scale}") for j in range(0, columns, _RULER_STEP))
    shown = (mark if j + len(mark) <= columns else "|" for j, mark in marks)
    return "".join(f"{mark} ".ljust(_RULER_STEP) for mark in shown).rstrip()


def _legend(schedule: Schedule) -> list[str]:
    placement = schedule.instance.placement
    count = lane_count(placement)
    kinds = sorted(set(schedule.order.operations[:, 0].tolist()))
    shown = [" ".join(_letter(OpKind(k), v) for v in range(min(count, 8))) for k in kinds]
    lines = [", ".join(f"{s}: {_MEANINGS[OpKind(k)]}" for s, k in zip(shown, kinds, strict=True))]
    if len(placement.routes) > 1:
        lines.append("capital letter: from device 0 to the last; small letter: from the last to device 0")
    elif count == 2:
        lines.append("capital letter: the stage that a microbatch reaches first on the device")
    elif count > 2:
        lines.append("letters in the order in which a microbatch reaches the stages of the device")
    return [*lines, *(f"{name}: {t:,} ticks each" for _, name, t in length_names(schedule.instance))]
