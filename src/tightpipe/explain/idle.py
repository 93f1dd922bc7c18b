"""Where a schedule's devices idle, in which phase, and what they wait for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import count, groupby, pairwise
from typing import Any

import numpy as np

from ..core.metrics import charged_windows
from ..core.operation import Operation
from ..core.schedule import Order, Schedule
from .arrivals import Arrivals
from .arrivals_kernel import NOTHING
from .fillers import Fillers, fillers
from .phases import Phase, borders, phase


class Reason(StrEnum):
    """Why a device is idle.

    `late`, `order` and `memory` go before what the next operation waits for. That another operation
    is ready which would end too late for the next one is no reason: the device then waits by choice.
    """

    DEPENDENCY = "dependency"  #: the input of the next operation is not computed yet
    LINK = "link"  #: it is, and waits until the link is free
    COMMUNICATION = "communication"  #: it is on its way
    MEMORY = "memory"  #: an F is ready, only the memory limit keeps it out, and nothing else is ready
    ORDER = "order"  #: an operation could run until the next one starts, but the order has it later
    LATE = "late"  #: the next operation could start
    FINISHED = "finished"  #: the device has nothing left to do, others have


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
"""What an interval waits for, in words; the names are fields of `Idle`."""


@dataclass(frozen=True, slots=True)
class Idle:
    """A time in which a device is idle for one reason.

    Parameters
    ----------
    device, start, end
        Where and from when to when, in ticks.
    phase, reason
        In which phase, and why.
    next
        The operation that the device runs next; of two that run together the one that waits longer.
        None at the end.
    awaits
        The operation whose result `next` waits for; None where it waits for none.
    ready
        The operation that could run meanwhile; None unless `reason` is memory or order.
    frees
        The operation that has to end before memory allows `ready`; None unless `reason` is memory.
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
        """Length."""
        return self.end - self.start

    def __str__(self) -> str:
        operations = {key: getattr(self, key) for key in _OPERATIONS}
        return SENTENCES[self.reason].format(**operations)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        operations = {key: getattr(self, key) for key in _OPERATIONS}
        return {
            **{key: getattr(self, key) for key in ("device", "start", "end")},
            **{key: str(getattr(self, key)) for key in ("phase", "reason")},
            **{key: None if op is None else str(op) for key, op in operations.items()},
        }


def idle_times(schedule: Schedule, inputs: Arrivals) -> list[Idle]:
    """Return all idle time that the objective charges, device after device, in the sequence of time.

    Parameters
    ----------
    schedule
        A valid schedule.
    inputs
        Its arrivals.
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
    """Return (device, start, end, row that comes next) of every maximal idle time."""
    opens, closes = charged_windows(schedule)
    found = []
    for device in range(schedule.order.devices):
        rows = schedule.order.rows(device)
        # rows that run together share their times, so that no gap opens between them
        start = np.append(schedule.start[rows], closes[device])
        ended = np.append(opens[device], schedule.end[rows])
        for k in np.flatnonzero(start > ended).tolist():
            head = rows.start + k if k < rows.stop - rows.start else NOTHING
            found.append((device, int(ended[k]), int(start[k]), head))
    return found


def _waiting_row(schedule: Schedule, inputs: Arrivals, head: int) -> int:
    """Return the row whose input arrives last of those that run together from `head` on."""
    members = range(head, head + 1 + int(schedule.order.pairs[head]))
    return max(members, key=lambda row: int(inputs.arrived[row]))


Piece = tuple[int, int, Reason, int, int, int]


def _pieces(
    schedule: Schedule, inputs: Arrivals, row: int, start: int, end: int, found: Fillers, gap: int
) -> Iterator[Piece]:
    """Cut a gap where its reason changes; yield start, end, reason and the rows awaits, ready, frees."""
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
