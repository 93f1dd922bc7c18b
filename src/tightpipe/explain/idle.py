"""The idle times of a schedule's devices: in which phase they lie, and what the device waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, groupby, pairwise
from typing import Any

import numpy as np

from ..core.inputs import NOTHING
from ..core.metrics import charged_windows
from ..core.operation import Operation
from ..core.schedule import Order, Schedule
from .arrivals import Arrivals
from .fillers import Fillers, fillers
from .phases import Phase, borders, phase


class Reason(StrEnum):
    """Why a device is idle.

    Several reasons may apply at once. Then `late` counts before `order`, and `order` before `memory`; if none
    of these applies, the reason is what the input of the next operation waits for. An operation that is ready
    but would end after the start of the next one does not count for `order`, because running it would delay
    the next one.
    """

    DEPENDENCY = "dependency"  #: the input of the next operation is not computed yet
    LINK = "link"  #: the input of the next operation waits until its link is free
    COMMUNICATION = "communication"  #: the input of the next operation is on its way
    MEMORY = "memory"  #: a later F is ready but does not fit the memory, and nothing else could start
    ORDER = "order"  #: a later operation could run and end before the next operation starts
    LATE = "late"  #: the next operation could start, because its input has arrived
    FINISHED = "finished"  #: the device has run all its operations, but other devices have not


_OPERATIONS = ("next", "awaits", "ready", "frees")

SENTENCES = {
    Reason.DEPENDENCY: "{next} needs {awaits}, which has not ended",
    Reason.LINK: "{next} needs {awaits}, whose message waits for its link",
    Reason.COMMUNICATION: "{next} needs {awaits}, which is on its way",
    Reason.MEMORY: "{ready} could run, but memory is full until {frees} ends",
    Reason.ORDER: "{ready} could run, but the order has {next} first",
    Reason.LATE: "{next} could start",
    Reason.FINISHED: "nothing is left to do",
}
"""A sentence for each reason; the names in braces are fields of `Idle`."""


@dataclass(frozen=True, slots=True)
class Idle:
    """An interval in which a device is idle for one reason.

    Parameters
    ----------
    device
        The device that is idle.
    start, end
        Begin and end of the interval, in ticks.
    phase, reason
        Phase in which the interval lies, and why the device is idle.
    next
        The operation that the device runs next; of two that run together, the one whose input arrives later.
        None after the last operation.
    awaits
        The operation whose result `next` waits for; None if `next` waits for no result.
    ready
        The operation that could run in the interval; None unless `reason` is memory or order.
    frees
        The operation that must end before the memory limit allows `ready`; None unless `reason` is memory.
    """

    device: int
    start: int
    end: int
    phase: Phase
    reason: Reason
    next: Operation | None
    awaits: Operation | None
    ready: Operation | None
    frees: Operation | None

    @property
    def ticks(self) -> int:
        """Length of the interval in ticks."""
        return self.end - self.start

    def __str__(self) -> str:
        operations = {key: getattr(self, key) for key in _OPERATIONS}
        return SENTENCES[self.reason].format(**operations)

    def to_dict(self) -> dict[str, Any]:
        """Return the interval as plain data for JSON."""
        operations = {key: getattr(self, key) for key in _OPERATIONS}
        return {
            **{key: getattr(self, key) for key in ("device", "start", "end")},
            **{key: str(getattr(self, key)) for key in ("phase", "reason")},
            **{key: None if op is None else str(op) for key, op in operations.items()},
        }


def idle_times(schedule: Schedule, inputs: Arrivals) -> list[Idle]:
    """Return all intervals of idle time that the objective charges, sorted by device and then by time.

    Parameters
    ----------
    schedule
        A valid schedule.
    inputs
        What `arrivals` returns for the schedule.
    """
    gaps = _gaps(schedule)
    heads = np.array([head for _, _, _, head in gaps if head != NOTHING], np.int64)
    opens = np.array([start for _, start, _, head in gaps if head != NOTHING], np.int64)
    found = fillers(schedule, inputs, heads, opens)
    number = count()
    warm, cool = borders(schedule)
    idle = []
    for device, start, end, head in gaps:
        where = phase(start, end, warm[device], cool[device])
        if head == NOTHING:
            idle.append(Idle(device, start, end, where, Reason.FINISHED, None, None, None, None))
            continue
        row = _waiting_row(schedule, inputs, head)
        pieces = _pieces(schedule, inputs, row, start, end, found, next(number))
        for begin, until, reason, awaits, ready, frees in pieces:
            four = (_operation(schedule.order, r) for r in (row, awaits, ready, frees))
            idle.append(Idle(device, begin, until, where, reason, *four))
    return idle


def _operation(order: Order, row: int) -> Operation | None:
    return None if row == NOTHING else order.operation_at(row)


def _gaps(schedule: Schedule) -> list[tuple[int, int, int, int]]:
    """Return device, start, end and next row of every maximal idle interval.

    The row is `NOTHING` after the last operation of a device; times are in ticks.
    """
    opens, closes = charged_windows(schedule)
    found = []
    for device in range(schedule.order.devices):
        rows = schedule.order.rows(device)
        # Rows that run together have the same times, so there is no gap between them.
        start = np.append(schedule.start[rows], closes[device])
        ended = np.append(opens[device], schedule.end[rows])
        for k in np.flatnonzero(start > ended).tolist():
            head = rows.start + k if k < rows.stop - rows.start else NOTHING
            found.append((device, int(ended[k]), int(start[k]), head))
    return found


def _waiting_row(schedule: Schedule, inputs: Arrivals, head: int) -> int:
    """Return row `head` or, if it runs together with the next row, the one of them with the later input."""
    members = range(head, head + 1 + int(schedule.order.pairs[head]))
    return max(members, key=lambda row: int(inputs.arrived[row]))


Piece = tuple[int, int, Reason, int, int, int]


def _pieces(
    schedule: Schedule, inputs: Arrivals, row: int, start: int, end: int, found: Fillers, gap: int
) -> Iterator[Piece]:
    """Yield the pieces into which a gap is cut where its reason changes.

    The gap lies from `start` to `end` before `row`, and has the index `gap` in `found`. A piece consists of
    start and end in ticks, the reason, and the rows `awaits`, `ready` and `frees`.
    """
    ended, left, arrived = (int(times[row]) for times in (inputs.ended, inputs.left, inputs.arrived))
    fits_from, allowed_from, blocked_from = (
        int(times[gap]) for times in (found.fits_from, found.allowed_from, found.blocked_from)
    )
    source = int(inputs.source[row])

    def why(time: int) -> tuple[Reason, int, int, int]:
        if time >= arrived:
            return Reason.LATE, NOTHING, NOTHING, NOTHING
        if time >= fits_from:
            return Reason.ORDER, source, int(found.fits[gap]), NOTHING
        if blocked_from <= time < allowed_from:
            return Reason.MEMORY, source, int(found.blocked[gap]), int(found.frees[gap])
        steps = ((ended, Reason.DEPENDENCY), (left, Reason.LINK), (arrived, Reason.COMMUNICATION))
        return next(reason for until, reason in steps if time < until), source, NOTHING, NOTHING

    changes = (ended, left, arrived, fits_from, allowed_from, blocked_from)
    cuts = sorted({start, *(time for time in changes if start < time < end)})
    begins = [next(times) for _, times in groupby(cuts, key=why)]
    for begin, until in pairwise([*begins, end]):
        yield begin, until, *why(begin)
