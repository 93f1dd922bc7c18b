"""Where the time of each device went in a measured training step: how long it was busy, and why it was idle.

The idle intervals come from `tightpipe.explain`, which also tells which of them are due to full memory. The
causes here take the order of operations as given. Whether a device could have run another operation while it
waited is a question that only `tightpipe.explain` answers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any

from ..explain import DeviceTime, Idle, Reason, arrivals, explain
from ..model.metrics import charged_windows
from ..model.operation import Operation
from ..model.schedule import Schedule


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
    """Where the time of one device went; all times are in ticks, and a tick is a microsecond.

    Parameters
    ----------
    device
        Number of the device.
    begins
        When the charged time begins, counted from the first start of an operation on any device.
    charged
        The time that the objective of the instance charges to the device: busy and idle together.
    busy
        Time in which operations ran.
    idle
        Time without operations, by cause.
    waited_for
        Idle time in which the device waited for an operation of another device or for its message, by the
        number of the other device.
    longest
        A phrase about the operation before which the device was idle longest: the ticks, the operation, and
        the input that it waited for, if any. The phrase is empty if the device was idle before no operation.
    """

    device: int
    begins: int
    charged: int
    busy: int
    idle: dict[Cause, int]
    waited_for: dict[int, int]
    longest: str

    @property
    def idle_share(self) -> float:
        """Idle time as a share of the charged time."""
        return sum(self.idle.values()) / self.charged if self.charged else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the times as plain data for JSON."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        named = {str(cause): ticks for cause, ticks in self.idle.items()}
        waited = {str(device): ticks for device, ticks in self.waited_for.items()}
        return plain | {"idle": named, "idle_share": self.idle_share, "waited_for": waited}


Stretches = Sequence[tuple[int, int]]
"""Intervals as pairs of start and end in ticks."""


def accounts_of(schedule: Schedule, messages: Sequence[Stretches]) -> tuple[Account, ...]:
    """Return the account of each device of a measured schedule.

    - `schedule`: a measured schedule. The communication time in its instance, from one device to another, is
      the shortest time that a message between the two took.
    - `messages`: for each device the intervals in which it sent or waited to receive, as far as they are
      known.
    """
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
    """Return the ticks of an idle interval by cause, which sum to its length.

    `input_` is the input of the operation after the interval, or None if no operation follows. `messages`
    holds the intervals in which the device sent or waited to receive, as `_merged` returns them.
    """
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
