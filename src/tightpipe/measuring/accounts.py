"""What operations cost in measured training steps, and why a device was idle in one of them.

The idle intervals come from `tightpipe.explain`, which also tells which of them are due to full memory. The
causes here take the order of operations as given. Whether a device could have run another operation while it
waited is a question that only `tightpipe.explain` answers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import islice, pairwise
from math import sqrt
from statistics import fmean
from typing import Any

import numpy as np

from ..base.tables import csv_text
from ..explain import DeviceTime, Idle, Reason, arrivals, explain
from ..model.instance import Instance
from ..model.metrics import charged_windows
from ..model.microbatches import ClassTimes
from ..model.operation import Operation, OpKind
from ..model.schedule import Schedule
from ..runtime.measured import class_times
from .training_steps import Step, edges


class Cause(StrEnum):
    """Why a device was idle."""

    DEPENDENCY = "dependency"  #: the input of the next operation was not computed yet
    STRAGGLER = "straggler"  #: computing the input took longer than its median, and this is the excess
    COMMUNICATION = "communication"  #: the input was on its way, or the device sent or waited to receive
    MEMORY = "memory"  #: an F was ready, but memory was full
    LATE = "late"  #: the input had arrived, but the next operation had not begun
    FINISHED = "finished"  #: nothing was left to do


@dataclass(frozen=True, slots=True)
class Account:
    """Where the time of one device went; all times are in ticks, and a tick is a microsecond."""

    device: int  #: its number
    begins: int  #: when the charged time begins, counted from the first start of an operation on any device
    charged: int  #: the time that the objective of the instance charges to it: busy and idle together
    busy: int  #: time in which operations ran
    idle: dict[Cause, int]  #: time without operations, by cause
    waited_for: dict[int, int]  #: idle time in which it waited for an operation or a message, by other device
    #: the ticks, the operation before which it was idle longest, and the input that this waited for, if any,
    #: as a phrase; empty if it was idle before no operation
    longest: str

    @property
    def idle_share(self) -> float:
        """Idle time as a share of the charged time."""
        return sum(self.idle.values()) / self.charged if self.charged else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the times as plain data for JSON."""
        waited = {str(device): ticks for device, ticks in self.waited_for.items()}
        return asdict(self) | {"idle_share": self.idle_share, "waited_for": waited}


Stretches = Sequence[tuple[int, int]]
"""Intervals as pairs of start and end in ticks."""


def accounts_of(schedule: Schedule, messages: Sequence[Stretches]) -> tuple[Account, ...]:
    """Return the account of each device of a measured schedule."""
    found = explain(schedule, relax=False)
    opens, _ = charged_windows(schedule)
    inputs = _inputs(schedule)
    begins = (opens - schedule.start.min()).tolist()
    return tuple(
        _account(
            [interval for interval in found.idle if interval.device == times.device],
            times,
            begins[times.device],
            inputs,
            _merged(messages[times.device]),
        )
        for times in found.devices
    )


@dataclass(frozen=True, slots=True)
class _Input:
    """The input of an operation: the device that made it, and when it was made and could arrive, in ticks."""

    home: int
    ended: int  # end of the operation that made the input
    usual_end: int  # the same, had this operation taken no longer than its median
    arrived: int  # when the fastest message would have brought the input


def _inputs(schedule: Schedule) -> dict[Operation, _Input]:
    lists = schedule.order.to_lists()
    homes = [device for device, operations in enumerate(lists) for _ in operations]
    flat = [operation for operations in lists for operation in operations]
    took = (schedule.end - schedule.start).tolist()
    usual = schedule.instance.duration_of
    extra = [max(0, t - usual(op)) for op, t in zip(flat, took, strict=True)]
    found = arrivals(schedule)
    rows = zip(flat, found.source.tolist(), found.ended.tolist(), found.arrived.tolist(), strict=True)
    return {
        op: _Input(homes[source], ended, ended - extra[source], arrived)
        if source >= 0
        else _Input(homes[row], ended, ended, arrived)  # it waits for no operation
        for row, (op, source, ended, arrived) in enumerate(rows)
    }


def _account(
    idle: Sequence[Idle],
    times: DeviceTime,
    begins: int,
    inputs: Mapping[Operation, _Input],
    messages: Stretches,
) -> Account:
    causes = dict.fromkeys(Cause, 0)
    waited: dict[int, int] = defaultdict(int)
    gaps: dict[Operation, int] = defaultdict(int)
    for interval in idle:
        parts = _parts(interval, None if interval.next is None else inputs[interval.next], messages)
        for cause, ticks in parts.items():
            causes[cause] += ticks
        if interval.next is not None:
            gaps[interval.next] += interval.ticks
            home = inputs[interval.next].home
            waited[home] += sum(parts.get(cause, 0) for cause in _FOR_OTHERS)
    others = {home: ticks for home, ticks in sorted(waited.items()) if ticks and home != times.device}
    longest = _longest(gaps, idle, inputs)
    return Account(times.device, begins, times.charged, times.busy, causes, others, longest)


_FOR_OTHERS = (Cause.DEPENDENCY, Cause.STRAGGLER, Cause.COMMUNICATION)


def _parts(idle: Idle, input_: _Input | None, messages: Stretches) -> dict[Cause, int]:
    """Return the ticks of an idle interval by cause, which sum to its length."""
    if input_ is None or idle.reason is Reason.FINISHED:
        return {Cause.FINISHED: idle.ticks}
    if idle.reason is Reason.MEMORY:
        return {Cause.MEMORY: idle.ticks}
    usual, ended, arrived = (
        min(max(time, idle.start), idle.end) for time in (input_.usual_end, input_.ended, input_.arrived)
    )
    talks = _overlap(messages, arrived, idle.end)
    return {
        Cause.DEPENDENCY: usual - idle.start,
        Cause.STRAGGLER: ended - usual,
        Cause.COMMUNICATION: arrived - ended + talks,
        Cause.LATE: idle.end - arrived - talks,
    }


def _merged(stretches: Stretches) -> Stretches:
    """Return intervals that cover the same ticks, do not overlap, and are sorted."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _overlap(stretches: Stretches, start: int, end: int) -> int:
    """Return how many ticks from `start` to `end` lie in `stretches`, which are as `_merged` returns them."""
    first = max(0, bisect_left(stretches, (start, start)) - 1)
    total = 0
    for begins, ends in islice(stretches, first, None):
        if begins >= end:
            break
        total += max(0, min(ends, end) - max(begins, start))
    return total


def _longest(gaps: Mapping[Operation, int], idle: Sequence[Idle], inputs: Mapping[Operation, _Input]) -> str:
    if not gaps:
        return ""
    operation = max(gaps, key=lambda op: gaps[op])
    awaits = next(interval.awaits for interval in idle if interval.next == operation)
    needs = "" if awaits is None else f", which needs {awaits} of device {inputs[operation].home}"
    return f"{gaps[operation]:,} before {operation}{needs}"


_DIGITS = 4


def variation_table(costs: Sequence[Cost]) -> str:
    """Return a CSV table with the coefficient of variation of F, B and W at each stage.

    Where microbatches differ, it is the root mean square over their classes. Where all backwards were fused,
    B and W count as two equal halves, each with the coefficient of the sum times the square root of 2: the
    noise model draws the two independently, and only then does their sum vary as measured.
    """
    squares: defaultdict[tuple[int, OpKind], list[float]] = defaultdict(list)  # one for each operation
    for cost in costs:
        squares[cost.stage, cost.kind] += [
            (cost.deviation / cost.mean) ** 2 if cost.mean else 0.0
        ] * cost.count
    measured = {key: sqrt(fmean(found)) for key, found in squares.items()}
    rows = []
    for stage in sorted({cost.stage for cost in costs}):
        half = sqrt(2) * measured.get((stage, OpKind.BW), 0.0)
        for kind in (OpKind.F, OpKind.B, OpKind.W):
            rows.append((stage, kind.name, round(measured.get((stage, kind), half), _DIGITS)))
    return csv_text(("stage", "kind", "variation"), rows)


_MICRO = 1000.0  # nanoseconds of a microsecond


@dataclass(frozen=True, slots=True)
class Cost:
    """How long the operations of one kind, stage and class took, over all steps, in microseconds."""

    kind: OpKind  #: of the operations
    stage: int  #: of the operations
    count: int  #: number of the operations that ran
    median: float
    mean: float
    deviation: float  #: the standard deviation of their times
    p95: float  #: the 95th percentile of their times
    longest: float  #: the longest time
    slowest: Operation  #: the operation that took longest
    jitter: float  #: standard deviation of the logarithm of the times: the sigma of a lognormal distribution
    mb_class: int = 0  #: class of the microbatches; 0 where all are alike

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data for JSON."""
        return asdict(self) | {"kind": self.kind.name, "slowest": str(self.slowest)}


def costs_of(steps: Sequence[Step], plan: Instance | None = None) -> tuple[Cost, ...]:
    """Return the costs of each kind, stage and class that ran, sorted by stage, kind and class."""
    samples: dict[tuple[int, OpKind, int], list[tuple[float, Operation]]] = defaultdict(list)
    for step in steps:
        for ran in step:
            for operation, start, end, *_ in ran:
                mb_class = 0 if plan is None or plan.alike else plan.mb_class(operation.microbatch)
                key = operation.stage, operation.kind, mb_class
                samples[key].append(((end - start) / _MICRO, operation))
    return tuple(_cost(kind, stage, took, c) for (stage, kind, c), took in sorted(samples.items()))


def _cost(kind: OpKind, stage: int, took: list[tuple[float, Operation]], mb_class: int) -> Cost:
    times = np.array([time for time, _ in took])
    longest, slowest = max(took)
    middle, p95 = np.percentile(times, (50, 95)).tolist()
    jitter = float(np.log(np.maximum(times, 1 / _MICRO)).std())
    numbers = len(took), middle, float(times.mean()), float(times.std()), p95, longest
    return Cost(kind, stage, *numbers, slowest, jitter, mb_class)


def planned_times(costs: Sequence[Cost], stages: int, mb_class: int = 0) -> ClassTimes:
    """Return the median times of a class, in ticks of one microsecond, and at least 1; see `class_times`."""
    took = {
        (cost.kind, cost.stage): max(1, round(cost.median)) for cost in costs if cost.mb_class == mb_class
    }
    return class_times(took, stages)


def message_times(steps: Sequence[Step]) -> tuple[tuple[int, ...], ...]:
    """Return the median time of a message from each device (row) to each other (column), in microseconds.

    No trace records when a message arrives. But a device that was idle when a message was sent to it starts
    to compute as soon as the message arrives. The median is taken over these messages. Between two devices
    without such a message, the least time from the end of an operation to the use of its result is taken.
    """
    devices = len(steps[0])
    waited: dict[tuple[int, int], list[int]] = defaultdict(list)
    least: dict[tuple[int, int], int] = {}
    for step in steps:
        free = {b.operation: a.end for ran in step for a, b in pairwise(ran)}
        for sender, sent, receiver, used in edges(step):
            gap, link = used.start - sent.end, (sender, receiver)
            least[link] = min(gap, least.get(link, gap))
            if free.get(used.operation, sent.end) <= sent.end:
                waited[link].append(gap)
    typical = least | {link: float(np.median(gaps)) for link, gaps in waited.items()}
    return tuple(
        tuple(round(typical.get((i, j), 0) / _MICRO) if i != j else 0 for j in range(devices))
        for i in range(devices)
    )
