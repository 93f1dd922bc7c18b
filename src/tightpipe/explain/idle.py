"""The idle times of a schedule's devices: their phase, what the devices wait for, what could have run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from ..kernels.arrays import Bools, Ints
from ..model.graph_arrays import NOTHING, arrays_of, deltas_of, inputs_of, nodes_of, passing_of
from ..model.metrics import charged_windows
from ..model.operation import Operation, OpKind, operation_text
from ..model.row_graph_kernel import row_graph_of
from ..model.schedule import Order, Schedule
from ..model.simulate import memory_events, most_held
from .idle_kernel import (
    COMMUNICATION,
    COPY,
    DEPENDENCY,
    FINISHED,
    LINK,
    MEMORY,
    ORDER,
    cut_gaps,
    departures,
    search_gaps,
)


@dataclass(frozen=True, eq=False, slots=True)
class Arrivals:
    """The input of every operation of an order without copies; all arrays have the shape (N,).

    They have an entry per row. A row is the index of an operation in that order, counted over all devices.
    Times are in ticks, and 0 where there is no source or no copy.
    """

    source: Ints  #: row whose result the operation needs; `NOTHING` for the first F of a microbatch
    ended: Ints  #: when the source ends
    #: when the result leaves the source's device: as the source ends, or once the link is free
    left: Ints
    arrived: Ints  #: when the result arrives, after the communication time
    #: row, in the order with copies, of the copy that the operation waits for and that ends last; `NOTHING`
    #: where there is none. A backward waits for its own copy back, an F for memory that copies out free.
    copy: Ints
    copied: Ints  #: when this copy ends
    ready: Ints  #: when the stage of an F is ready, for the objective `step`; else 0


def arrivals(schedule: Schedule) -> Arrivals:
    """Return the source and the arrival time of the input of each operation of a valid schedule."""
    computing = schedule.without_copies()
    inputs = inputs_of(schedule.instance, computing.order)
    occupancy = schedule.instance.costs.link_occupancy
    sent = departures(computing.end, computing.order.offsets, inputs.receiver, occupancy)
    ended = np.where(inputs.source == NOTHING, 0, computing.end[inputs.source])
    left = np.where(inputs.message, sent[inputs.source], ended)
    copy = _last_copies(schedule)[schedule.order.computes]
    copied = np.where(copy == NOTHING, 0, schedule.end[copy])
    nodes = arrays_of(schedule.instance).nodes[nodes_of(schedule.instance, computing.order)]
    return Arrivals(inputs.source, ended, left, left + inputs.lag, copy, copied, nodes["ready"])


def _last_copies(schedule: Schedule) -> Ints:
    """Return, for each row, the copy that it waits for and that ends last; `NOTHING` where there is none."""
    found = np.full(len(schedule.order), NOTHING)
    if schedule.order.has_copies:
        graph = row_graph_of(schedule.instance, schedule.order)
        after, before = np.repeat(np.arange(len(found)), np.diff(graph.begin)), graph.before
        counts = ~schedule.order.computes[before] & (schedule.end[before] <= schedule.start[after])
        after, before = after[counts], before[counts]
        by_end = np.argsort(schedule.end[before], kind="stable")
        found[after[by_end]] = before[by_end]  # where several copies count, the last one stays
        second = np.flatnonzero(schedule.order.pairs) + 1  # what a pair waits for stands with its first row
        found[second] = found[second - 1]
    return found


class Phase(StrEnum):
    """Part of the time in which a device works."""

    WARM_UP = "warm-up"  #: until the device's first B or BW starts
    STEADY = "steady"  #: between warm-up and cool-down
    COOL_DOWN = "cool-down"  #: from the end of the device's last F on, but not before its first B or BW


def borders(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return when the warm-up of each device ends and its cool-down begins: two arrays of shape (devices,).

    Times are in ticks. The warm-up of a device that runs F's alone ends with its last one.
    """
    kind = schedule.order.operations[:, 0]
    warm, cool = [], []
    for device in range(schedule.order.devices):
        rows = schedule.order.rows(device)
        backward = kind[rows] != OpKind.F
        warm.append(schedule.start[rows][backward].min(initial=schedule.end[rows].max()))
        cool.append(max(warm[-1], schedule.end[rows][kind[rows] == OpKind.F].max()))
    return np.array(warm), np.array(cool)


def _phases(device: Ints, start: Ints, end: Ints, schedule: Schedule) -> Ints:
    """Return the place in `Phase` of the phase of each idle interval of a device; all times are in ticks.

    No idle interval reaches over the border of two phases, because an operation starts or ends there.
    """
    warm, cool = borders(schedule)
    return np.where(end <= warm[device], 0, np.where(start >= cool[device], 2, 1))


class Fillers(NamedTuple):
    """The operations that could have run in each gap, as arrays of shape (gaps,).

    Rows are indices of operations in the order; where no such operation exists, the row is `NOTHING` and the
    time is the end of the gap. Times are in ticks.
    """

    fits: Ints  #: row of the first operation that could run and end in the gap, if the order had it there
    fits_from: Ints  #: time from which on this operation could run
    allowed_from: Ints  #: time at which the first operation is ready that the memory limit allows to start
    blocked: Ints  #: row of the first F that is ready, but that the memory limit does not allow to start
    blocked_from: Ints  #: time at which this F is ready
    frees: Ints  #: row of the operation after whose end the memory limit would allow this F


class Held(NamedTuple):
    """The memory of a row's device, for each row of an order without copies; arrays of shape (N,)."""

    before: Ints  #: the most from the end of the row before it until it starts
    during: Ints  #: the most from there until it ends


def fillers(schedule: Schedule, inputs: Arrivals, held: Held, heads: Ints, opens: Ints) -> Fillers:
    """Return the operations that could run in the gaps before the rows `heads`.

    While a device is idle, only copies free its memory, so without them the next operation of its order never
    waits for memory. A later F may not fit, however: if it ran in the gap, it would add to the memory of all
    operations from there to its own place in the order. The schedule is one without its copies.

    - `heads`: rows of the operations that run right after the gaps, shape (gaps,).
    - `opens`: when the gaps begin, in ticks, shape (gaps,); they end when the rows `heads` start.
    """
    instance, order = schedule.instance, schedule.order
    device = np.searchsorted(order.offsets, heads, side="right") - 1
    arrived = np.maximum(np.maximum(inputs.arrived, inputs.copied), inputs.ready)
    iteration = np.array([instance.iteration(m) for m in range(instance.units)])
    microbatch = order.operations[:, 2]
    found = search_gaps(
        *(heads, opens, order.offsets[device + 1], arrays_of(instance).devices["limit"][device]),
        *(schedule.start, schedule.end, order.pairs, arrived),
        *(deltas_of(instance, order), passing_of(instance, order), *held),
        iteration[microbatch],
        instance.flush,
    )
    return Fillers(*found)


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
    COPY = "copy"  #: a copy has to end: back, for the next operation, or out, for the memory that it frees
    STAGE = "stage"  #: the stage of the next operation is not ready
    LATE = "late"  #: the next operation could start, because its input has arrived
    #: the device has run all its operations; it reduces gradients, runs its optimizer, or waits for others
    FINISHED = "finished"


_OPERATIONS = ("next", "awaits", "ready", "frees")

SENTENCES = {
    Reason.DEPENDENCY: "{next} needs {awaits}, which has not ended",
    Reason.LINK: "{next} needs {awaits}, whose message waits for its link",
    Reason.COMMUNICATION: "{next} needs {awaits}, which is on its way",
    Reason.MEMORY: "{ready} could run, but memory is full until {frees} ends",
    Reason.ORDER: "{ready} could run, but the order has {next} first",
    Reason.COPY: "{next} waits for the copy {awaits}",
    Reason.STAGE: "{next} waits until its stage is ready",
    Reason.LATE: "{next} could start",
    Reason.FINISHED: "no operation is left to run",
}
"""A sentence for each reason; the names in braces are fields of `Idle`."""


@dataclass(frozen=True, slots=True)
class Idle:
    """An interval in which a device is idle for one reason."""

    device: int
    start: int  #: in ticks, like `end`
    end: int
    phase: Phase
    reason: Reason
    #: that the device runs next; of two that run together, the one whose input arrives later. None after the
    #: last operation.
    next: Operation | None
    #: whose result `next` waits for, or the copy if `reason` is copy; None if `next` waits for no result
    awaits: Operation | None
    ready: Operation | None  #: that could run in the interval; None unless `reason` is memory or order
    frees: Operation | None  #: that must end before the limit allows `ready`; None unless `reason` is memory
    slices: int = 0  #: of a microbatch; 0 where microbatches are whole

    @property
    def ticks(self) -> int:
        """Length of the interval in ticks."""
        return self.end - self.start

    def __str__(self) -> str:
        return SENTENCES[self.reason].format(**self._names())

    def _names(self) -> dict[str, str | None]:
        operations = {key: getattr(self, key) for key in _OPERATIONS}
        return {
            k: op and operation_text(op.kind, op.stage, op.microbatch, self.slices)
            for k, op in operations.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the interval as plain data for JSON."""
        keys = ("device", "start", "end", "phase", "reason")
        return {key: getattr(self, key) for key in keys} | self._names()


def idle_times(schedule: Schedule, inputs: Arrivals) -> list[Idle]:
    """Return all intervals of idle time that the objective charges, sorted by device and then by time."""
    order, held, schedule = schedule.order, _held(schedule), schedule.without_copies()
    gaps, slices = _gaps(schedule), len(schedule.instance.slices)
    followed = gaps.head != NOTHING
    known = fillers(schedule, inputs, held, gaps.head[followed], gaps.start[followed])
    found = Fillers(*(_spread(of_gap, followed) for of_gap in known))
    row = _waiting_rows(schedule, inputs, gaps.head)
    of_row = (inputs.ended, inputs.left, inputs.arrived, inputs.copied, inputs.ready)
    of_gap = (times[row] for times in of_row)
    times = np.stack([*of_gap, found.fits_from, found.allowed_from, found.blocked_from], axis=1)
    gap, begin, why = cut_gaps(gaps.head, gaps.start, gaps.end, times)
    until = np.where(np.diff(gap, append=NOTHING), gaps.end[gap], np.append(begin[1:], 0))

    def where(rows: Ints, *reasons: int) -> Ints:
        return np.where(np.isin(why, reasons), rows, NOTHING)

    waits = (DEPENDENCY, LINK, COMMUNICATION, MEMORY, ORDER)
    ready = np.maximum(where(found.fits[gap], ORDER), where(found.blocked[gap], MEMORY))
    rows = (
        np.where(why == FINISHED, NOTHING, row[gap]),
        where(inputs.source[row[gap]], *waits),
        ready,
        where(found.frees[gap], MEMORY),
    )
    after, on, can, full = (_operations(schedule.order, each) for each in rows)
    copies = _operations(order, where(inputs.copy[row[gap]], COPY))
    phases, reasons, device = [*Phase], [*Reason], gaps.device[gap]
    return [
        Idle(d, t, u, phases[p], reasons[r], a, c or o, k, f, slices)
        for d, t, u, p, r, a, c, o, k, f in zip(
            *(
                array.tolist()
                for array in (device, begin, until, _phases(device, begin, until, schedule), why)
            ),
            *(after, copies, on, can, full),
            strict=True,
        )
    ]


def _held(schedule: Schedule) -> Held:
    """Return the memory that devices hold before and during the operations, for the order without copies."""
    computing = schedule.without_copies()
    instance, order = computing.instance, computing.order
    takes = np.maximum(deltas_of(instance, order), 0) + passing_of(instance, order)
    found = Held(*np.zeros((2, len(order)), np.int64))
    for device, (times, held) in enumerate(memory_events(schedule)):
        rows = order.rows(device)
        start, end = computing.start[rows], computing.end[rows]
        since = np.minimum(np.append(start[:1], end[:-1]), start)
        # The events at the start of a row contain what the row itself takes. Between two rows, only copies
        # change what the device holds.
        at_start = held[np.searchsorted(times, start, "right") - 1] - takes[rows]
        idle = np.where(since < start, most_held(times, held, since, start), at_start)
        found.before[rows] = np.maximum(idle, at_start)
        found.during[rows] = most_held(times, held, since, end)
    return found


def _operations(order: Order, rows: Ints) -> list[Operation | None]:
    """Return the operations of rows; None for each that is `NOTHING`."""
    kinds, found = tuple(OpKind), order.operations[rows].tolist()
    return [
        None if row == NOTHING else Operation(kinds[kind], stage, m)
        for row, (kind, stage, m) in zip(rows.tolist(), found, strict=True)
    ]


class _Gaps(NamedTuple):
    """All maximal idle intervals, sorted by device and then by time, as arrays of shape (gaps,)."""

    device: Ints
    start: Ints  #: in ticks, like `end`
    end: Ints
    head: Ints  #: the next row; `NOTHING` after the last operation of a device


def _gaps(schedule: Schedule) -> _Gaps:
    opens, closes = charged_windows(schedule)
    found = []
    for device in range(schedule.order.devices):
        rows = schedule.order.rows(device)
        # Rows that run together have the same times, so there is no gap between them.
        start = np.append(schedule.start[rows], closes[device])
        ended = np.append(opens[device], schedule.end[rows])
        k = np.flatnonzero(start > ended)
        head = np.where(k < rows.stop - rows.start, rows.start + k, NOTHING)
        found.append((np.full(len(k), device), ended[k], start[k], head))
    return _Gaps(*(np.concatenate(part) for part in zip(*found, strict=True)))


def _spread(values: Ints, followed: Bools) -> Ints:
    """Return an entry for each gap, that of `values` where an operation has followed, else `NOTHING`."""
    found = np.full(len(followed), NOTHING)
    found[followed] = values
    return found


def _waiting_rows(schedule: Schedule, inputs: Arrivals, heads: Ints) -> Ints:
    """Return for each row in `heads` the row that waits.

    Where it runs together with the next row, it is the one of them whose input arrives later.
    """
    second = np.minimum(heads + 1, len(schedule.order) - 1)
    later = (schedule.order.pairs[heads] == 1) & (inputs.arrived[second] > inputs.arrived[heads])
    return np.where(later, second, heads)
