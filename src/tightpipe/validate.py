"""Every rule of the model as one function, written independently of the simulator and of all solvers.

A rule is a function Schedule -> Iterator of messages. Only data is shared with the rest of the
package: the instance's numbers and the schedule's times. The dependency and resource rules look
at operations that occur exactly once; the rule `complete` reports the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from .instance import Instance
from .operation import Operation, OpKind
from .schedule import Schedule

MOST_PER_RULE = 20  # a broken schedule can break a rule thousands of times; the first ones tell enough

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule."""

    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


def validate(instance: Instance, schedule: Schedule) -> list[Violation]:
    """Check a schedule against every rule of the model.

    Parameters
    ----------
    instance
        The problem; it must be the one that the schedule was made for.
    schedule
        The schedule to check.

    Returns
    -------
    list of Violation
        Empty when the schedule is valid; at most `MOST_PER_RULE` entries for each rule.
    """
    if schedule.instance != instance:
        schedule = Schedule(instance, schedule.order, schedule.start, schedule.end)
    shape = [Violation("complete", message) for message in islice(_shape(schedule), MOST_PER_RULE)]
    if shape:
        return shape  # the other rules index tables by stage and microbatch
    return [
        Violation(name, message)
        for name, rule in RULES.items()
        for message in islice(rule(schedule), MOST_PER_RULE)
    ]


def _shape(schedule: Schedule) -> Iterator[str]:
    """Devices, kinds, stages and microbatches are those of the instance."""
    instance, order = schedule.instance, schedule.order
    if order.devices != instance.devices:
        yield f"the schedule has {order.devices} devices, the instance {instance.devices}"
    upper = (len(OpKind), instance.stages, instance.microbatches)
    for row in order.operations.tolist():
        if not all(0 <= value < bound for value, bound in zip(row, upper, strict=True)):
            kind = OpKind(row[0]).name if 0 <= row[0] < len(OpKind) else f"kind {row[0]}"
            yield f"{kind}{row[1]}.{row[2]} is no operation of the instance"


def complete(schedule: Schedule) -> Iterator[str]:
    """Every microbatch runs F, and either B and W or BW, exactly once at every stage."""
    instance = schedule.instance
    counts = np.zeros((len(OpKind), instance.stages, instance.microbatches), np.int64)
    np.add.at(counts, tuple(schedule.order.operations.T), 1)
    f, b, w, bw = counts
    for kind, stage, m in np.argwhere(counts > 1):
        yield f"{Operation(OpKind(kind), stage, m)} runs {counts[kind, stage, m]} times"
    for stage, m in np.argwhere(f == 0):
        yield f"{Operation(OpKind.F, stage, m)} is missing"
    for stage, m in np.argwhere((bw > 0) & (b + w > 0)):
        yield f"{Operation(OpKind.BW, stage, m)} runs besides B or W of the same microbatch"
    for kind, count in ((OpKind.B, b), (OpKind.W, w)):
        for stage, m in np.argwhere((count == 0) & (bw == 0)):
            yield f"{Operation(kind, stage, m)} is missing"


def placement(schedule: Schedule) -> Iterator[str]:
    """Every operation runs on the device of its stage."""
    for device, operations in enumerate(schedule.order.to_lists()):
        for op in operations:
            home = schedule.instance.device(op.stage, op.microbatch)
            if home != device:
                yield f"{op} runs on device {device}, its stage is on device {home}"


def duration(schedule: Schedule) -> Iterator[str]:
    """Every operation takes exactly its duration."""
    took = schedule.end - schedule.start
    due = _durations(schedule.instance)[schedule.order.operations[:, 0], schedule.order.operations[:, 1]]
    for i in np.flatnonzero(took != due):
        yield f"{_name(schedule, i)} takes {took[i]} ticks, must take {due[i]}"


def not_before_zero(schedule: Schedule) -> Iterator[str]:
    """No operation starts before time 0."""
    for i in np.flatnonzero(schedule.start < 0):
        yield f"{_name(schedule, i)} starts at {schedule.start[i]}"


def one_at_a_time(schedule: Schedule) -> Iterator[str]:
    """A device runs its operations one after another, in the order that is written."""
    for device in range(schedule.order.devices):
        rows = range(*schedule.order.rows(device).indices(len(schedule.order)))
        for i, j in pairwise(rows):
            if schedule.start[j] < schedule.end[i]:
                yield (
                    f"{_name(schedule, j)} starts at {schedule.start[j]} on device {device}, "
                    f"before {_name(schedule, i)} ends at {schedule.end[i]}"
                )


def forward_dependency(schedule: Schedule) -> Iterator[str]:
    """F of a stage starts after F of the previous stage, plus communication."""
    starts, ends = _by_operation(schedule)
    for stage in range(1, schedule.instance.stages):
        lag = _comm(schedule.instance, stage - 1, stage)
        f, previous = (OpKind.F, stage), (OpKind.F, stage - 1)
        yield from _late(f, starts[f], previous, ends[previous], lag)


def turning_point(schedule: Schedule) -> Iterator[str]:
    """B of the last stage starts after its F."""
    starts, ends = _by_operation(schedule)
    last = schedule.instance.stages - 1
    f = (OpKind.F, last)
    for b in ((OpKind.B, last), (OpKind.BW, last)):
        yield from _late(b, starts[b], f, ends[f], 0)


def backward_dependency(schedule: Schedule) -> Iterator[str]:
    """B of a stage starts after B of the next stage, plus communication; BW counts as B."""
    starts, ends = _by_operation(schedule)
    for stage in range(schedule.instance.stages - 1):
        lag = _comm(schedule.instance, stage + 1, stage)
        for b in ((OpKind.B, stage), (OpKind.BW, stage)):
            for following in ((OpKind.B, stage + 1), (OpKind.BW, stage + 1)):
                yield from _late(b, starts[b], following, ends[following], lag)


def weight_dependency(schedule: Schedule) -> Iterator[str]:
    """W starts after its own B, without communication."""
    starts, ends = _by_operation(schedule)
    for stage in range(schedule.instance.stages):
        w, b = (OpKind.W, stage), (OpKind.B, stage)
        yield from _late(w, starts[w], b, ends[b], 0)


def memory_limit(schedule: Schedule) -> Iterator[str]:
    """Memory never exceeds a device's limit: F adds at its start, B and W free at their end."""
    instance, operations = schedule.instance, schedule.order.operations
    for device in range(instance.devices):
        limit = instance.memory_limit(device)
        if limit is None:
            continue
        rows = schedule.order.rows(device)
        events = []
        for (kind, stage, _), start, end in zip(
            operations[rows].tolist(), schedule.start[rows].tolist(), schedule.end[rows].tolist(), strict=True
        ):
            delta = instance.memory_delta(OpKind(kind), stage)
            events.append((start if delta > 0 else end, delta))
        used = 0
        for time, delta in sorted(events):  # at equal times what is freed comes first
            used += delta
            if used > limit and delta > 0:
                yield f"device {device} holds {used} at time {time}, its limit is {limit}"


RULES: dict[str, Callable[[Schedule], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        complete,
        placement,
        duration,
        not_before_zero,
        one_at_a_time,
        forward_dependency,
        turning_point,
        backward_dependency,
        weight_dependency,
        memory_limit,
    )
}
"""The rules by name, in the order in which they are checked."""


def _name(schedule: Schedule, row: int | np.int64) -> str:
    kind, stage, m = schedule.order.operations[row].tolist()
    return str(Operation(OpKind(kind), stage, m))


def _durations(instance: Instance) -> Times:
    return np.array([[instance.duration(kind, s) for s in range(instance.stages)] for kind in OpKind])


_NEVER = -(2**62)


def _by_operation(schedule: Schedule) -> tuple[Times, Times]:
    """Return start and end by (kind, stage, microbatch); `_NEVER` where it does not run exactly once."""
    instance = schedule.instance
    index = tuple(schedule.order.operations.T)
    shape = (len(OpKind), instance.stages, instance.microbatches)
    counts = np.zeros(shape, np.int64)
    np.add.at(counts, index, 1)
    starts, ends = np.full(shape, _NEVER), np.full(shape, _NEVER)
    starts[index], ends[index] = schedule.start, schedule.end
    starts[counts != 1] = ends[counts != 1] = _NEVER
    return starts, ends


def _comm(instance: Instance, sender: int, receiver: int) -> Times:
    """Return the communication time between the devices of two stages, for each microbatch."""
    return np.array(
        [
            instance.comm(instance.device(sender, m), instance.device(receiver, m))
            for m in range(instance.microbatches)
        ]
    )


def _late(
    later: tuple[OpKind, int], starts: Times, earlier: tuple[OpKind, int], ends: Times, lag: Times | int
) -> Iterator[str]:
    """Report the microbatches whose later operation starts before the earlier one ends and has arrived."""
    early = (starts != _NEVER) & (ends != _NEVER) & (starts < ends + lag)
    for m in np.flatnonzero(early):
        arrival = ends[m] + (lag if isinstance(lag, int) else lag[m])
        first, second = Operation(*earlier, int(m)), Operation(*later, int(m))
        yield f"{second} starts at {starts[m]}, before {first} arrives at {arrival}"
