"""The critical path: a chain of operations, messages and other waits, whose length is the cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from ..model.graph_arrays import NOTHING
from ..model.metrics import charged_windows, cost, finished, reductions
from ..model.operation import COPIES, Operation, OpKind, operation_text
from ..model.row_graph_kernel import RowGraph, row_graph_of
from ..model.schedule import Schedule
from .idle import Arrivals


class Link(StrEnum):
    """How a step of the critical path follows the step before.

    Only the member `LINK` is about the link between two devices.
    """

    FIRST = "first"  #: an operation that begins the path
    DEVICE = "device"  #: an operation that starts when its device has ended the operation before
    DEPENDENCY = "dependency"  #: an operation that starts when its input has arrived
    LINK = "link"  #: a message that waits until its link is free
    COMMUNICATION = "communication"  #: a message on its way
    COPY = "copy"  #: a copy, or an operation that starts when a copy has ended
    STAGE = "stage"  #: the time until the stage of the first operation is ready
    REDUCTION = "reduction"  #: of gradients, which begins after an operation or another reduction
    OPTIMIZER = "optimizer"  #: it runs once a device has ended its operations and its reductions
    LATE = "late"  #: idle time without need: the operation after it could start earlier


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the critical path, which starts when the step before ends."""

    link: Link  #: kind of the step, and how it follows the step before
    device: int  #: of the operation; for a message or late time, that of the operation after it
    start: int  #: in ticks, like `end`
    end: int
    #: that runs, that sends the message, that waits, or the last one of what is reduced or optimized
    operation: Operation
    slices: int = 0  #: of a microbatch; 0 where microbatches are whole

    @property
    def name(self) -> str:
        """Text form of the operation."""
        return operation_text(*self.operation, self.slices)

    @property
    def runs(self) -> bool:
        """Whether the step is an operation that runs."""
        return self.link in (Link.FIRST, Link.DEVICE, Link.DEPENDENCY, Link.COPY)

    @property
    def ticks(self) -> int:
        """Length of the step in ticks."""
        return self.end - self.start

    def to_dict(self) -> dict[str, Any]:
        """Return the step as plain data for JSON."""
        times = {"device": self.device, "start": self.start, "end": self.end}
        return {"link": str(self.link), **times, "operation": self.name}


def critical_path(schedule: Schedule, inputs: Arrivals) -> tuple[Step, ...]:
    """Return a chain of steps, without gaps, whose lengths sum to the cost of a valid schedule.

    For `device_span`, the chain leads from the first to the last operation of a device whose span is the
    cost; for `makespan`, from an operation that starts first to one that ends last. For `step`, it begins at
    tick 0 and ends with the reductions and the optimizer of a device that ends last. Where possible, every
    constraint on the chain is tight (see below). For `device_span` there may be no tight chain, because the
    cost may follow from a cycle of waits over several devices (see `retime`). The chain
    then goes back from the last operation, always along the constraint that is satisfied last; idle time that
    no constraint explains becomes a `late` step, and the chain is cut off at the first start of the device.

    `inputs` is what `arrivals` returns for the schedule.

    Two constraints keep an operation from starting earlier: the operation before it on its device must have
    ended, and its input must have arrived. Copies are operations of the path as well: they wait for their
    engine, for what they copy and for memory, and other operations wait for them. A constraint is tight if
    the operation starts as soon as the constraint allows it.
    """
    graph = _Holders(schedule, inputs)
    opens, closes = charged_windows(schedule)
    makespan, ends = schedule.instance.whole, finished(schedule)
    critical = np.flatnonzero((closes - opens == cost(schedule)) & (ends == closes))
    for device in critical.tolist():
        goal = NOTHING if makespan else int(schedule.order.offsets[device])
        last, behind = _behind(graph, device, int(ends[device]))
        chain = _tight_chain(graph, last, goal, int(opens[device]))
        if chain:
            break
    else:
        device = int(critical[0])
        last, behind = _behind(graph, device, int(ends[device]))
        chain = _followed_back(graph, last, int(opens[device]))
    opened, slices = int(opens[device]), len(schedule.instance.slices)
    return tuple(
        Step(link, device, max(begin, opened), end, schedule.order.operation_at(row), slices)
        for link, device, begin, end, row in [*_pieces(graph, chain, opened), *behind]
        if end > max(begin, opened)
    )


_Piece = tuple[Link, int, int, int, int]  # of the path: kind, device, begin and end in ticks, and row


def _behind(graph: _Holders, device: int, end: int) -> tuple[int, list[_Piece]]:
    """Return the head of the operation that the end of a device waits for, and what follows until the end.

    These are reductions, one right after another, and the optimizer.
    """
    order, step = graph.schedule.order, graph.schedule.instance.barrier
    rows, found = order.rows(device), list[_Piece]()
    # the operation that ends last; a copy behind it in the order may have ended before
    row = rows.stop - 1 - int(np.argmax(graph.schedule.end[rows][::-1]))
    if step is not None:
        end -= step.optimizer[device]  # type: ignore[index]  # expanded by the instance
        found = [(Link.OPTIMIZER, device, end, end + step.optimizer[device], row)]  # type: ignore[index]
    turns = {one.end: one for one in reductions(graph.schedule) if one.device == device}
    while graph.schedule.end[row] < end:
        reduced = turns[end]
        row = rows.start + int(np.flatnonzero(order.operations[rows, 1] == reduced.stage)[-1])
        found.insert(0, (Link.REDUCTION, device, reduced.begin, end, row))
        end = reduced.begin
    return graph.head(row), found


@dataclass(frozen=True, slots=True)
class _Hold:
    """A constraint: `row` cannot start until `by` has ended, or until the result of `by` has arrived."""

    row: int  # of two operations that run together, the one that has to wait
    by: int  # the head (see `_Holders`) of the operation that `row` waits for
    allows: int  # the time in ticks from which on the operation may start
    link: Link


class _Holders:
    """The constraints that keep each operation of a schedule from starting earlier.

    Operations that run together are identified by the row of the first one, which is called their head. An
    operation that runs alone is its own head.
    """

    def __init__(self, schedule: Schedule, inputs: Arrivals) -> None:
        self.schedule, self.inputs = schedule, inputs
        order = schedule.order
        self._second = np.append(False, order.pairs[:-1] == 1)
        self._rows = np.flatnonzero(order.computes)  # of what computes
        self._place = np.cumsum(order.computes) - 1  # of each row that computes, its index in these rows
        self._first_rows = set(order.without_copies().offsets.tolist())
        self._copies = row_graph_of(schedule.instance, order) if order.has_copies else None

    def head(self, row: int) -> int:
        """Return the head of the operations that run together with `row`."""
        return row - int(self._second[row])

    def device(self, row: int) -> int:
        """Return the device that runs the operation of a row."""
        return int(np.searchsorted(self.schedule.order.offsets, row, side="right")) - 1

    def start(self, row: int) -> int:
        """Return when the operation of a row starts, in ticks."""
        return int(self.schedule.start[row])

    def ready(self, head: int) -> int:
        """Return when the stage of the operation with this head is ready, in ticks."""
        return int(self.inputs.ready[self._place[head]]) if self._computes(head) else 0

    def of(self, head: int) -> Iterator[_Hold]:
        """Yield the constraints that keep the operations with this head from starting earlier."""
        if self._computes(head):
            place = int(self._place[head])
            if place not in self._first_rows:
                before = self.head(int(self._rows[place - 1]))
                yield _Hold(head, before, int(self.schedule.end[before]), Link.DEVICE)
            for row in range(head, head + 1 + int(self.schedule.order.pairs[head])):
                source, arrived = self.input(row), int(self.inputs.arrived[self._place[row]])
                if source != NOTHING:
                    yield _Hold(row, self.head(source), arrived, Link.DEPENDENCY)
        if self._copies is not None:
            yield from self._copy_holds(head, self._copies)

    def _copy_holds(self, head: int, graph: RowGraph) -> Iterator[_Hold]:
        """Yield the constraints of a copy, or those by copies of another operation."""
        for before in graph.before[graph.begin[head] : graph.begin[head + 1]].tolist():
            ended = int(self.schedule.end[before])
            if not (self._computes(head) and self._computes(before)) and ended <= self.start(head):
                yield _Hold(head, self.head(before), ended, Link.COPY)

    def _computes(self, row: int) -> bool:
        return bool(self.schedule.order.operations[row, 0] <= OpKind.BW)

    def input(self, row: int) -> int:
        """Return the row whose result a row that computes waits for; `NOTHING` if there is none."""
        source = int(self.inputs.source[self._place[row]])
        return source if source == NOTHING else int(self._rows[source])

    def message(self, row: int) -> tuple[int, int]:
        """Return when the input of a row that computes ends, and when its message leaves, in ticks."""
        place = self._place[row]
        return int(self.inputs.ended[place]), int(self.inputs.left[place])


Chain = list[tuple[int, _Hold | None]]  # heads from first to last, each with its constraint, if any


def _tight_chain(graph: _Holders, last: int, goal: int, opens: int) -> Chain:
    """Return a chain of tight constraints from the head `goal` to the head `last`; empty if none exists.

    If `goal` is `NOTHING`, the chain may begin with any operation that starts at the time `opens`, or as soon
    as its stage is ready.
    """
    leads_to: dict[int, tuple[int, _Hold]] = {}
    pending, seen = [last], {last}
    while pending:
        head = pending.pop()
        if head == goal or (goal == NOTHING and graph.start(head) == max(opens, graph.ready(head))):
            chain: Chain = [(head, None)]
            while head != last:
                head, hold = leads_to[head]
                chain.append((head, hold))
            return chain
        for hold in reversed(list(graph.of(head))):  # the constraint of the device is popped first
            if hold.allows == graph.start(head) and hold.by not in seen and graph.start(hold.by) >= opens:
                seen.add(hold.by)
                leads_to[hold.by] = head, hold
                pending.append(hold.by)
    return []


def _followed_back(graph: _Holders, last: int, opens: int) -> Chain:
    """Return the chain that leads back from `last`, always along the constraint that is satisfied last.

    The chain begins with an operation that starts no later than tick `opens`, or that waits longest for its
    stage, or that has no constraint.
    """
    chain: Chain = []
    head = last
    while graph.start(head) > opens:
        hold = max(graph.of(head), key=lambda h: h.allows, default=None)
        if hold is None or hold.allows < graph.ready(head):
            break
        chain.append((head, hold))
        head = hold.by
    chain.append((head, None))
    return chain[::-1]


def _pieces(graph: _Holders, chain: Chain, opens: int) -> Iterator[_Piece]:
    """Yield the pieces of a chain, which together cover all time from tick `opens` to its end."""
    for head, hold in chain:
        device, start = graph.device(head), graph.start(head)
        if hold is None:
            row, allowed, link = head, max(opens, graph.ready(head)), Link.FIRST
            yield Link.STAGE, device, opens, allowed, row
        else:
            row, allowed, link = hold.row, hold.allows, hold.link
        if link is Link.DEPENDENCY:
            source, (ended, left) = graph.input(row), graph.message(row)
            yield Link.LINK, device, ended, left, source
            yield Link.COMMUNICATION, device, left, allowed, source
        yield Link.LATE, device, allowed, start, row
        yield link, device, start, int(graph.schedule.end[head]), row


_LONG_STAY = 3  # at least this many consecutive operations on one device are a leg of their own


@dataclass(frozen=True, slots=True)
class Leg:
    """Consecutive steps of the critical path, which stay on one device or lead over several devices."""

    steps: tuple[Step, ...]

    @property
    def start(self) -> int:
        """When the leg starts, in ticks."""
        return self.steps[0].start

    @property
    def ticks(self) -> int:
        """Length of the leg in ticks."""
        return self.steps[-1].end - self.start

    @property
    def computing(self) -> int:
        """Ticks in which operations of the leg run, without copies."""
        return sum(step.ticks for step in self.steps if step.runs) - self.copying

    @property
    def copying(self) -> int:
        """Ticks in which copies of the leg run."""
        return sum(step.ticks for step in self.steps if step.runs and step.operation.kind in COPIES)

    @property
    def messages(self) -> int:
        """Ticks in which messages are on their way or wait for their link."""
        return self._ticks(Link.LINK, Link.COMMUNICATION)

    @property
    def step(self) -> int:
        """Ticks until a stage is ready, of reductions, and of the optimizer."""
        return self._ticks(Link.STAGE, Link.REDUCTION, Link.OPTIMIZER)

    @property
    def late(self) -> int:
        """Ticks in which no operation runs although the next one of the leg could have started."""
        return self._ticks(Link.LATE)

    def _ticks(self, *links: Link) -> int:
        return sum(step.ticks for step in self.steps if step.link in links)

    @property
    def devices(self) -> str:
        """The devices at which the leg begins, turns and ends, e.g. ``0-7-0``.

        A leg turns where the numbers of its devices change from rising to falling, or from falling to rising.
        """
        path = [device for device, _ in groupby(step.device for step in self.steps)]
        ends = [False] + [(b - a) * (c - b) > 0 for (a, b), (_, c) in pairwise(pairwise(path))] + [False]
        return "-".join(str(d) for d, passes in zip(path, ends[: len(path)], strict=True) if not passes)

    def __str__(self) -> str:
        names = [step.name for step in self.steps if step.runs]
        if not names:
            first = self.steps[0]
            return f"{'before' if first.link in (Link.STAGE, Link.LATE) else 'after'} {first.name}"
        return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]} ({len(names)} operations)"


def legs(path: Iterable[Step]) -> tuple[Leg, ...]:
    """Return the legs of a critical path.

    At least `_LONG_STAY` consecutive operations on one device are a leg. All steps between two such legs
    together are a leg too, as are the steps before the first one and after the last one.
    """
    stays = [tuple(steps) for _, steps in groupby(path, key=lambda step: (step.runs, step.device))]
    cut: list[tuple[Step, ...]] = []
    joinable = False
    for steps in stays:
        long = steps[0].runs and len(steps) >= _LONG_STAY
        if joinable and not long:
            cut[-1] += steps
        else:
            cut.append(steps)
        joinable = not long
    return tuple(map(Leg, cut))
