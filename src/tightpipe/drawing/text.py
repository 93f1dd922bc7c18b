"""A schedule is drawn as text, with one line per device, within a window of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..base.errors import InputError, check_int
from ..model.operation import OpKind
from ..model.schedule import Schedule
from .lanes import WHOLE, Window, lane_count, length_names, shown_ticks, visits

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
    first and the last of them are its letter; between the two stands the number of its microbatch, if all
    digits fit, and then ``-``. So a character shows the operation that runs at its end, and an operation that
    is shorter than a character appears only if it runs to the end of one or across it. ``.`` is idle time. Of
    two operations that run together, the F has the first half of the characters, with ``+`` as its last, and
    the other one has the rest: ``F3-+Q0-Q``.

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


Bar = tuple[str, int, int, int, bool]
"""The bar of an operation: letter, microbatch, first character, character after the last, and a flag.

The flag says whether the next operation of the device runs together with this one.
"""


def _device_rows(schedule: Schedule, first: int, scale: int) -> Iterator[list[Bar]]:
    """Yield for each device the list of its bars, in the sequence in which they run."""
    kind, _, microbatch = schedule.order.operations.T.tolist()
    letters = [_letter(OpKind(k), v) for k, v in zip(kind, visits(schedule).tolist(), strict=True)]
    begin = ((schedule.start - first) // scale).tolist()
    end = ((schedule.end - first) // scale).tolist()
    joins = (schedule.order.pairs == 1).tolist()
    bars = list(zip(letters, microbatch, begin, end, joins, strict=True))
    for device in range(schedule.order.devices):
        yield bars[schedule.order.rows(device)]


def _letter(kind: OpKind, visit: int) -> str:
    letters = _LETTERS[kind]
    letter = letters[visit // 2 % len(letters)]
    return letter.lower() if visit % 2 else letter


def _line(bars: Iterable[Bar], columns: int) -> str:
    cells = ["."] * columns
    taken = 0  # number of characters of a pair that its F has
    for letter, microbatch, begin, end, joins in bars:
        length = (end - begin) // 2 if joins else end - begin - taken
        if length > 0:
            bar = _bar(letter, str(microbatch), length)
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
