"""The validator checks every rule of the model, independently of the simulator and of all solvers.

Each rule is one function, which takes a schedule and yields a message for each place where the schedule
breaks the rule; its docstring states the rule. The functions share only data with the rest of the package:
the numbers of the instance and the times of the schedule. The rules on dependencies look only at operations
that occur exactly once, because the rule `complete` reports all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice, product

import numpy as np
from numpy.typing import NDArray

from .instance import Instance
from .operation import OpKind
from .schedule import Schedule

MOST_PER_RULE = 20  # a schedule can break a rule thousands of times; the first ones show what is wrong

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a schedule breaks a rule: the name of the rule, and a message that says where."""

    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


def validate(instance: Instance, schedule: Schedule) -> list[Violation]:
    """Check a schedule against every rule of the model.

    Parameters
    ----------
    instance
        The problem that the schedule is to solve. Its rules count, even if the schedule names another
        instance.
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
        return shape  # the other rules use stages and microbatches as indices, which must be in range
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
    upper = (len(OpKind), instance.stages, _units(instance))
    unknown = ((order.operations < 0) | (order.operations >= upper)).any(axis=1)
    for operation in order.operations[unknown].tolist():
        yield f"{_text(instance, *operation)} is no operation of the instance"


def complete(schedule: Schedule) -> Iterator[str]:
    """Every microbatch or slice runs F, and either B and W or BW, exactly once at a stage that has them.

    Where its activation may leave, it may be copied out and back once: both, or neither.
    """
    instance = schedule.instance
    counts = np.zeros((len(OpKind), instance.stages, _units(instance)), np.int64)
    np.add.at(counts, tuple(schedule.order.operations.T), 1)
    f, b, w, bw, out, back = counts
    for kind, stage, m in np.argwhere(counts > 1):
        yield f"{_text(instance, kind, stage, m)} runs {counts[kind, stage, m]} times"
    for stage, m in np.argwhere(f == 0):
        yield f"{_text(instance, OpKind.F, stage, m)} is missing"
    for stage, m in np.argwhere((bw > 0) & (b + w > 0)):
        yield f"{_text(instance, OpKind.BW, stage, m)} runs besides B or W of the same microbatch"
    for kind, count in ((OpKind.B, b), (OpKind.W, w)):
        there = _per_microbatch(instance, Instance.has, kind).astype(bool)
        for stage, m in np.argwhere((count == 0) & (bw == 0) & there):
            yield f"{_text(instance, kind, stage, m)} is missing"
        for stage, m in np.argwhere((count + bw > 0) & ~there):
            yield f"{_text(instance, kind, stage, m)} runs at a stage that has no {kind.name}"
    offload = instance.offload
    leaves = np.zeros(instance.stages, np.int64) if offload is None else np.array(offload.memory)
    for kind, count, needs, other in ((OpKind.O, out, OpKind.L, back), (OpKind.L, back, OpKind.O, out)):
        for stage, m in np.argwhere((count > 0) & (other == 0)):
            yield f"{_text(instance, kind, stage, m)} runs without {_text(instance, needs, stage, m)}"
        for stage, m in np.argwhere((count > 0) & (leaves[:, None] == 0)):
            yield f"{_text(instance, kind, stage, m)} runs at a stage where nothing may leave"


def placement(schedule: Schedule) -> Iterator[str]:
    """Every operation runs on the device of its stage."""
    order = schedule.order
    home = _homes(schedule.instance)[order.operations[:, 1], order.operations[:, 2]]
    runs_on = np.repeat(np.arange(order.devices), np.diff(order.offsets))
    for i in np.flatnonzero(home != runs_on):
        yield f"{_name(schedule, i)} runs on device {runs_on[i]}, its stage is on device {home[i]}"


def overlap(schedule: Schedule) -> Iterator[str]:
    """Operations that share a slot are an F and a B or BW of one device, and have the same start and end."""
    together = schedule.order.pairs
    borders = set(schedule.order.offsets.tolist())
    for i in np.flatnonzero(together):
        j = i + 1
        if int(j) in borders or together[i - 1 : i].any():
            yield f"{_name(schedule, i)} runs together with no operation of its device, or with two"
            continue
        first, second = (OpKind(int(schedule.order.operations[row, 0])) for row in (i, j))
        if first is not OpKind.F or second not in (OpKind.B, OpKind.BW):
            yield f"{_name(schedule, i)} and {_name(schedule, j)} cannot run together"
        elif schedule.start[i] != schedule.start[j] or schedule.end[i] != schedule.end[j]:
            yield f"{_name(schedule, i)} and {_name(schedule, j)} run together at different times"


def duration(schedule: Schedule) -> Iterator[str]:
    """Every operation takes exactly its duration; two that share a slot take the duration of the pair."""
    took = schedule.end - schedule.start
    due = _due(schedule)
    for i in np.flatnonzero(took != due):
        yield f"{_name(schedule, i)} takes {took[i]} ticks, must take {due[i]}"


def not_before_zero(schedule: Schedule) -> Iterator[str]:
    """No operation starts before time 0."""
    for i in np.flatnonzero(schedule.start < 0):
        yield f"{_name(schedule, i)} starts at {schedule.start[i]}"


def one_at_a_time(schedule: Schedule) -> Iterator[str]:
    """A device computes one operation after another, in the sequence of its order."""
    kind = schedule.order.operations[:, 0]
    rows = np.flatnonzero((kind != OpKind.O) & (kind != OpKind.L))
    runs_on = np.repeat(np.arange(schedule.order.devices), np.diff(schedule.order.offsets))[rows]
    before, after = rows[:-1], rows[1:]
    follows = (runs_on[:-1] == runs_on[1:]) & (schedule.order.pairs[before] == 0)
    yield from _overlapping(schedule, before[follows], after[follows])


def copy_engines(schedule: Schedule) -> Iterator[str]:
    """A device runs one copy out and one copy back at a time; one copy of either kind without `duplex`."""
    order, offload = schedule.order, schedule.instance.offload
    if offload is None:
        return
    kind = order.operations[:, 0]
    engines = ((OpKind.O,), (OpKind.L,)) if offload.duplex else ((OpKind.O, OpKind.L),)
    for device, kinds in product(range(order.devices), engines):
        mine = np.arange(len(order))[order.rows(device)]
        mine = mine[np.isin(kind[mine], kinds)]
        mine = mine[np.lexsort((schedule.end[mine], schedule.start[mine]))]
        yield from _overlapping(schedule, mine[:-1], mine[1:])


def _overlapping(schedule: Schedule, before: Times, after: Times) -> Iterator[str]:
    """Yield a text for each row of `after` that starts before the row of `before` has ended."""
    overlaps = schedule.start[after] < schedule.end[before]
    for i, j in zip(before[overlaps], after[overlaps], strict=True):
        yield (
            f"{_name(schedule, j)} starts at {schedule.start[j]}, "
            f"before {_name(schedule, i)} on the same device ends at {schedule.end[i]}"
        )


def flush(schedule: Schedule) -> Iterator[str]:
    """With a flush, a device ends all operations of an iteration before it starts the next."""
    instance, order = schedule.instance, schedule.order
    if not instance.flush or instance.iterations == 1:
        return
    iteration = np.array([instance.iteration(m) for m in range(_units(instance))])
    for device in range(order.devices):
        rows = order.rows(device)
        running = iteration[order.operations[rows, 2]]
        for k in range(1, instance.iterations):
            before, after = schedule.end[rows][running < k], schedule.start[rows][running == k]
            if before.size and after.size and after.min() < before.max():
                yield (
                    f"device {device} starts iteration {k} at {after.min()}, "
                    f"before it ends the previous at {before.max()}"
                )


def forward_dependency(schedule: Schedule) -> Iterator[str]:
    """F of a stage starts after F of the previous stage has ended and communication is over."""
    starts, ends = _by_operation(schedule)
    comm, homes = np.array(schedule.instance.costs.comm), _homes(schedule.instance)
    for stage in range(1, schedule.instance.stages):
        lag = comm[homes[stage - 1], homes[stage]]
        f, previous = (OpKind.F, stage), (OpKind.F, stage - 1)
        yield from _late(schedule.instance, f, starts[f], previous, ends[previous], lag)


def ready(schedule: Schedule) -> Iterator[str]:
    """For the objective `step`, no F of a stage starts before the stage is ready."""
    instance, step = schedule.instance, schedule.instance.step
    if instance.objective != "step" or step is None:
        return
    kind, stage, _ = schedule.order.operations.T
    since = np.array(step.ready)[stage]
    for i in np.flatnonzero((kind == OpKind.F) & (schedule.start < since)):
        yield f"{_name(schedule, i)} starts at {schedule.start[i]}, before its stage is ready at {since[i]}"


def turning_point(schedule: Schedule) -> Iterator[str]:
    """B of the last stage starts after F of that stage has ended; where there is no B, its W does.

    Of a microbatch in slices, the B of the last slice waits for the F of the last slice. The rule `slices`
    puts all other F's of the microbatch before that F, and all its other B's after that B.
    """
    starts, ends = _by_operation(schedule)
    instance, last = schedule.instance, schedule.instance.stages - 1
    f, k = (OpKind.F, last), max(1, len(instance.slices))
    is_last = np.arange(_units(instance)) % k == k - 1
    for kind, waits in _gradients(instance):
        start = np.where(waits[last] & is_last, starts[kind, last], _NEVER)
        yield from _late(instance, (kind, last), start, f, ends[f], 0)


def backward_dependency(schedule: Schedule) -> Iterator[str]:
    """B of a stage starts after B of the next stage has ended and communication is over; BW counts as B.

    So does W at a stage without B.
    """
    starts, ends = _by_operation(schedule)
    comm, homes = np.array(schedule.instance.costs.comm), _homes(schedule.instance)
    gradients = _gradients(schedule.instance)
    for stage in range(schedule.instance.stages - 1):
        lag = comm[homes[stage + 1], homes[stage]]
        for kind, waits in gradients:
            start = np.where(waits[stage], starts[kind, stage], _NEVER)
            for following in ((OpKind.B, stage + 1), (OpKind.BW, stage + 1)):
                yield from _late(schedule.instance, (kind, stage), start, following, ends[following], lag)


def slices(schedule: Schedule) -> Iterator[str]:
    """At each stage, F of a slice starts after F of the slice before, B after B of the slice after it.

    BW counts as B, and so does W at a stage without B. All slices have a B at a stage, or none has.
    """
    instance, k = schedule.instance, len(schedule.instance.slices)
    if k == 0:
        return
    starts, ends = _by_operation(schedule)
    place, gradients = np.arange(_units(instance)) % k, _gradients(instance)
    for stage in range(instance.stages):
        f = (OpKind.F, stage)
        yield from _late(instance, f, np.where(place > 0, starts[f], _NEVER), f, ends[f], 0, -1)
        for (kind, waits), (following, counts) in product(gradients, repeat=2):
            if (kind is OpKind.W) == (following is OpKind.W):
                start = np.where(waits[stage] & (place < k - 1), starts[kind, stage], _NEVER)
                end = np.where(counts[stage], ends[following, stage], _NEVER)
                yield from _late(instance, (kind, stage), start, (following, stage), end, 0, 1)


def weight_dependency(schedule: Schedule) -> Iterator[str]:
    """W starts after B of the same stage and microbatch has ended."""
    starts, ends = _by_operation(schedule)
    for stage in range(schedule.instance.stages):
        w, b = (OpKind.W, stage), (OpKind.B, stage)
        yield from _late(schedule.instance, w, starts[w], b, ends[b], 0)


def copy_dependency(schedule: Schedule) -> Iterator[str]:
    """O starts after its F has ended, L after its O, and the backward of the microbatch there after its L.

    The backward is B or BW, and W at a stage without B.
    """
    starts, ends = _by_operation(schedule)
    instance, gradients = schedule.instance, _gradients(schedule.instance)
    for stage in range(instance.stages if instance.offload is not None else 0):
        f, out, back = (OpKind.F, stage), (OpKind.O, stage), (OpKind.L, stage)
        yield from _late(instance, out, starts[out], f, ends[f], 0)
        yield from _late(instance, back, starts[back], out, ends[out], 0)
        for kind, waits in gradients:
            start = np.where(waits[stage], starts[kind, stage], _NEVER)
            yield from _late(instance, (kind, stage), start, back, ends[back], 0)


def link_capacity(schedule: Schedule) -> Iterator[str]:
    """No operation starts before its message arrives over a link that may be busy with earlier messages.

    The messages of a directed link leave in the sequence of the operations that send them, each at least
    `link_occupancy` ticks after the one before.
    """
    instance = schedule.instance
    busy = instance.costs.link_occupancy
    if busy == 0:
        return
    starts, _ = _by_operation(schedule)
    kind, stage, m = schedule.order.operations.T
    following = np.where(kind == OpKind.F, stage + 1, stage - 1)
    sends = np.isin(kind, (OpKind.F, OpKind.B, OpKind.BW)) & (following >= 0) & (following < instance.stages)
    waits = _per_microbatch(instance, Instance.has_backward)
    sends &= (kind == OpKind.F) | waits[np.clip(following, 0, instance.stages - 1), m]
    sender = np.repeat(np.arange(schedule.order.devices), np.diff(schedule.order.offsets))
    receiver = np.full_like(sender, -1)
    receiver[sends] = _homes(instance)[following[sends], m[sends]]
    rows = np.flatnonzero(sends & (receiver != sender))
    arrival = np.zeros_like(schedule.end)
    for link in set(zip(sender[rows].tolist(), receiver[rows].tolist(), strict=True)):
        mine = rows[(sender[rows] == link[0]) & (receiver[rows] == link[1])]
        # message i leaves at the largest of end[j] + (i - j) * busy over all j up to i
        turns = busy * np.arange(len(mine))
        left = np.maximum.accumulate(schedule.end[mine] - turns) + turns
        arrival[mine] = left + instance.comm(*link)
    is_forward = kind[rows] == OpKind.F
    has_b = _per_microbatch(instance, Instance.has, OpKind.B)
    for late in (OpKind.F, OpKind.B, OpKind.BW, OpKind.W):
        waiting = rows[is_forward == (late is OpKind.F)]
        start = starts[late, following[waiting], m[waiting]]
        if late is OpKind.W:
            start = np.where(has_b[following[waiting], m[waiting]], _NEVER, start)
        early = (start != _NEVER) & (start < arrival[waiting])
        for i, time in zip(waiting[early], start[early], strict=True):
            yield (
                f"{_text(instance, late, following[i], m[i])} starts at {time}, "
                f"before {_name(schedule, i)} arrives at {arrival[i]} over a busy link"
            )


def memory_limit(schedule: Schedule) -> Iterator[str]:
    """No device exceeds its memory limit; F takes memory at its start, B and W free it at their end.

    At a stage without B and W, F frees at its end what it has taken. O frees memory at its end, and L takes
    it again at its start.
    """
    instance, order = schedule.instance, schedule.order
    kind, stage, m = order.operations.T
    passing = _per_microbatch(instance, Instance.memory_while_running)[stage, m]
    passing = np.where(kind == OpKind.F, passing, 0)
    deltas = _by_kind(instance, Instance.memory_delta)[kind, stage, m]
    times = np.where(deltas > 0, schedule.start, schedule.end)
    for device in range(instance.devices):
        limit = instance.memory_limit(device)
        if limit is None:
            continue
        rows = order.rows(device)
        change = np.concatenate([deltas[rows], passing[rows], -passing[rows]])
        at = np.concatenate([times[rows], schedule.start[rows], schedule.end[rows]])
        events = np.lexsort((change, at))  # at equal times what is freed comes first
        used = np.cumsum(change[events])
        for k in np.flatnonzero((used > limit) & (change[events] > 0)):
            yield f"device {device} holds {used[k]} at time {at[events[k]]}, its limit is {limit}"


RULES: dict[str, Callable[[Schedule], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        complete,
        placement,
        overlap,
        duration,
        not_before_zero,
        one_at_a_time,
        copy_engines,
        ready,
        flush,
        forward_dependency,
        turning_point,
        backward_dependency,
        slices,
        weight_dependency,
        copy_dependency,
        link_capacity,
        memory_limit,
    )
}
"""The rules by name, in the sequence in which they are checked."""


def _name(schedule: Schedule, row: int | np.int64) -> str:
    return _text(schedule.instance, *schedule.order.operations[row].tolist())


def _text(instance: Instance, kind: int, stage: int, m: int | np.int64) -> str:
    """Return the name of an operation; that of a slice ends with the number of the slice."""
    name = OpKind(kind).name if 0 <= kind < len(OpKind) else f"kind {kind}"
    k = len(instance.slices)
    return f"{name}{stage}.{m // k}.{m % k}" if k else f"{name}{stage}.{m}"


def _units(instance: Instance) -> int:
    """Return the number of slices of all microbatches, or of microbatches if they are whole."""
    return instance.microbatches * max(1, len(instance.slices))


def _due(schedule: Schedule) -> Times:
    """Return how long the operation of each row has to take, in ticks."""
    instance, order = schedule.instance, schedule.order
    due = _by_kind(instance, Instance.duration)[tuple(order.operations.T)]
    for device in range(order.devices):
        for i in np.flatnonzero(order.pairs[order.rows(device)]) + order.offsets[device]:
            if i + 1 < len(order):
                (_, forward, _), (kind, backward, _) = order.operations[i : i + 2].tolist()
                together = instance.together(device, forward, backward) if kind == OpKind.BW else None
                due[i : i + 2] = due[i : i + 2].sum() if together is None else together
    return np.asarray(due)


_NEVER = -(2**62)


@lru_cache(maxsize=32)  # a search has many schedules of one instance checked
def _per_microbatch(instance: Instance, method: Callable[..., int], *kind: OpKind) -> Times:
    """Return what a method of instances says of each stage and unit, shape (stages, units)."""
    value, classes = partial(method, instance, *kind), range(len(instance.class_counts))
    table = np.array([[value(stage, c) for c in classes] for stage in range(instance.stages)])
    values = np.asarray(table[:, [instance.mb_class(m) for m in range(_units(instance))]])
    values.setflags(write=False)  # every later call gets the same array
    return values


def _by_kind(instance: Instance, method: Callable[..., int]) -> Times:
    """Return what a method says of each kind, stage and unit, shape (kinds, stages, units)."""
    return np.array([_per_microbatch(instance, method, kind) for kind in OpKind])


def _gradients(instance: Instance) -> list[tuple[OpKind, Times]]:
    """Return the kinds of operations that wait for the gradient of a stage: B and BW, or W without B.

    Each comes with an array that says at which stages and for which microbatches it does.
    """
    has_b = _per_microbatch(instance, Instance.has, OpKind.B)
    return [(OpKind.B, has_b), (OpKind.BW, has_b), (OpKind.W, ~has_b)]


def _by_operation(schedule: Schedule) -> tuple[Times, Times]:
    """Return start and end in ticks by kind, stage and microbatch; `_NEVER` unless it runs exactly once."""
    instance = schedule.instance
    index = tuple(schedule.order.operations.T)
    shape = (len(OpKind), instance.stages, _units(instance))
    counts = np.zeros(shape, np.int64)
    np.add.at(counts, index, 1)
    starts, ends = np.full(shape, _NEVER), np.full(shape, _NEVER)
    starts[index], ends[index] = schedule.start, schedule.end
    starts[counts != 1] = ends[counts != 1] = _NEVER
    return starts, ends


def _homes(instance: Instance) -> Times:
    """Return the device of each stage for each microbatch, shape (stages, microbatches)."""
    microbatches = range(_units(instance))
    return np.array([[instance.device(s, m) for m in microbatches] for s in range(instance.stages)])


def _late(
    instance: Instance,
    later: tuple[OpKind, int],
    starts: Times,
    earlier: tuple[OpKind, int],
    ends: Times,
    lag: Times | int,
    shift: int = 0,
) -> Iterator[str]:
    """Yield a text for each unit whose later operation starts before the earlier one's result arrives.

    `starts` has the start of the later operation, and `ends` the end of the earlier one, for each unit; `lag`
    is the communication time between the two. All are in ticks. The later operation of unit m waits for the
    earlier one of unit m + `shift`, which is another slice of the same microbatch.
    """
    awaited = np.roll(ends, -shift)
    arrival, arrives = awaited + lag, "ends" if shift else "arrives"
    for m in np.flatnonzero((starts != _NEVER) & (awaited != _NEVER) & (starts < arrival)):
        first, second = _text(instance, *earlier, m + shift), _text(instance, *later, m)
        yield f"{second} starts at {starts[m]}, before {first} {arrives} at {arrival[m]}"
