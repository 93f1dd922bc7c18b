"""The chain of operations and messages that makes a schedule cost what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from ..core.instance import Objective
from ..core.metrics import charged_windows, cost
from ..core.operation import Operation
from ..core.schedule import Schedule
from .arrivals import Arrivals
from .arrivals_kernel import NOTHING


class Link(StrEnum):
    """How a step of the critical path follows the one before."""

    FIRST = "first"  #: an operation that begins the path
    DEVICE = "device"  #: an operation that starts when its device has ended the one before
    DEPENDENCY = "dependency"  #: an operation that starts when its input is there
    LINK = "link"  #: a message that waits until the link is free
    COMMUNICATION = "communication"  #: a message on its way
    LATE = "late"  #: time that nothing asks for: the operation after it could start earlier


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of the critical path; each starts when the one before ends.

    Parameters
    ----------
    link
        What kind of step it is, and how it follows the one before.
    device
        Of the operation; for messages and late time that of the operation after them.
    start, end
        In ticks.
    operation
        The operation that runs, sends the message, or is late.
    """

    link: Link
    device: int
    start: int
    end: int
    operation: Operation

    @property
    def runs(self) -> bool:
        """Whether the step is an operation."""
        return self.link in (Link.FIRST, Link.DEVICE, Link.DEPENDENCY)

    @property
    def ticks(self) -> int:
        """Length."""
        return self.end - self.start

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        times = {"device": self.device, "start": self.start, "end": self.end}
        return {"link": str(self.link), **times, "operation": str(self.operation)}


def critical_path(schedule: Schedule, inputs: Arrivals) -> tuple[Step, ...]:
    """Return a chain of tight constraints whose lengths sum to the cost.

    It leads, if there is such a chain, from the first operation of a device whose span is the cost to
    its last (for `makespan`, from the first operation of all to the last). There is none where the
    cost is an average over several devices, each of which starts as late as it can without a longer
    span of its own: then the chain is followed back from the last operation, with the device's choice
    as `late` time, until the device's first start, where an operation of another device is cut off.

    Parameters
    ----------
    schedule
        A valid schedule.
    inputs
        Its arrivals.

    Notes
    -----
    An operation is held by the one before it on its device and by its input. A constraint is tight if
    the operation starts at the very time at which it allows that.
    """
    graph = _Holders(schedule, inputs)
    opens, closes = charged_windows(schedule)
    makespan = schedule.instance.objective is Objective.MAKESPAN
    ends = schedule.end[schedule.order.offsets[1:] - 1]
    critical = np.flatnonzero((closes - opens == cost(schedule)) & (ends == closes))
    for device in critical.tolist():
        goal = NOTHING if makespan else int(schedule.order.offsets[device])
        chain = _tight_chain(graph, graph.last(device), goal, int(opens[device]))
        if chain:
            break
    else:
        device = int(critical[0])
        chain = _followed_back(graph, graph.last(device), int(opens[device]))
    return tuple(_steps(graph, chain, int(opens[device])))


@dataclass(frozen=True, slots=True)
class _Hold:
    """A row and the row that holds it: the one before on the device, or its input."""

    row: int  # of two that run together, the one that is held
    by: int
    allows: int  # the time from which on it may start
    link: Link


class _Holders:
    """The constraints that hold each operation; those that run together are named by the first one's row."""

    def __init__(self, schedule: Schedule, inputs: Arrivals) -> None:
        self.schedule, self.inputs = schedule, inputs
        self._second = np.append(False, schedule.order.pairs[:-1] == 1)
        self._first_rows = set(schedule.order.offsets.tolist())

    def head(self, row: int) -> int:
        """Return the first row of those that run together with `row`."""
        return row - int(self._second[row])

    def last(self, device: int) -> int:
        """Return the device's last operation."""
        return self.head(int(self.schedule.order.offsets[device + 1]) - 1)

    def device(self, row: int) -> int:
        """Return the device of a row."""
        return int(np.searchsorted(self.schedule.order.offsets, row, side="right")) - 1

    def start(self, row: int) -> int:
        """Return when the row starts."""
        return int(self.schedule.start[row])

    def of(self, head: int) -> Iterator[_Hold]:
        """Yield what holds the operations that run together from row `head` on."""
        if head not in self._first_rows:
            before = self.head(head - 1)
            yield _Hold(head, before, int(self.schedule.end[before]), Link.DEVICE)
        for row in range(head, head + 1 + int(self.schedule.order.pairs[head])):
            source = int(self.inputs.source[row])
            if source != NOTHING:
                yield _Hold(row, self.head(source), int(self.inputs.arrived[row]), Link.DEPENDENCY)


Chain = list[tuple[int, _Hold | None]]  # from the first operation to the last, each with what holds it


def _tight_chain(graph: _Holders, last: int, goal: int, opens: int) -> Chain:
    """Search a chain of tight constraints from `goal` (any that starts at `opens` if NOTHING) to `last`."""
    leads_to: dict[int, tuple[int, _Hold]] = {}
    pending, seen = [last], {last}
    while pending:
        head = pending.pop()
        if head == goal or (goal == NOTHING and graph.start(head) == opens):
            chain: Chain = [(head, None)]
            while head != last:
                head, hold = leads_to[head]
                chain.append((head, hold))
            return chain
        for hold in reversed(list(graph.of(head))):  # popped from the end: the device's own chain first
            if hold.allows == graph.start(head) and hold.by not in seen and graph.start(hold.by) >= opens:
                seen.add(hold.by)
                leads_to[hold.by] = head, hold
                pending.append(hold.by)
    return []


def _followed_back(graph: _Holders, last: int, opens: int) -> Chain:
    """Follow what holds each operation longest, until the time `opens` or an operation that nothing holds."""
    chain: Chain = []
    head = last
    while graph.start(head) > opens:
        hold = max(graph.of(head), key=lambda h: h.allows, default=None)
        chain.append((head, hold))
        if hold is None:
            return chain[::-1]
        head = hold.by
    chain.append((head, None))
    return chain[::-1]


def _steps(graph: _Holders, chain: Chain, opens: int) -> Iterator[Step]:
    """Turn a chain into steps that leave no time out, from `opens` on."""
    for head, hold in chain:
        device, start = graph.device(head), graph.start(head)
        row = head if hold is None else hold.row
        ready, link = (opens, Link.FIRST) if hold is None else (hold.allows, hold.link)
        pieces: list[tuple[Link, int, int, int]] = []
        if link is Link.DEPENDENCY:
            source, ended, left = (
                int(a[row]) for a in (graph.inputs.source, graph.inputs.ended, graph.inputs.left)
            )
            pieces += [(Link.LINK, ended, left, source), (Link.COMMUNICATION, left, ready, source)]
        pieces += [(Link.LATE, ready, start, row), (link, start, int(graph.schedule.end[head]), row)]
        for what, begin, end, who in pieces:
            if end > max(begin, opens):
                operation = graph.schedule.order.operation_at(who)
                yield Step(what, device, max(begin, opens), end, operation)
