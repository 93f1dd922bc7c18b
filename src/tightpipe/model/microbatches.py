"""The microbatches of an instance by class: who they are, their times, and other numbers for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from .costs import Memory, MicrobatchClass, PerStage
from .instance import Instance
from .operation import OpKind
from .schedule import Order, Schedule

ClassTimes = tuple[PerStage, PerStage, PerStage, PerStage]
"""Ticks of F, B, W and BW of a class, with one entry per stage."""


def times_of(instance: Instance, mb_class: int) -> ClassTimes:
    """Return how long the operations of a class take."""
    f, b, w, fused = (
        tuple(instance.duration(kind, stage, mb_class) for stage in range(instance.stages)) for kind in OpKind
    )
    return f, b, w, fused


def total_time(instance: Instance, mb_class: int) -> int:
    """Return the ticks of all operations of a microbatch of a class, with fused backwards if that is less."""
    stages = range(instance.stages)
    return sum(
        instance.duration(OpKind.F, s, mb_class) + instance.least_backward(s, mb_class) for s in stages
    )


def lengths(instance: Instance) -> list[list[int]]:
    """Return the microbatches that cost the same, group after group, from the shortest to the longest.

    Microbatches that differ in their direction alone are in one group. Of two groups that take equally long,
    that with the smaller number comes first.
    """
    costs = [(times_of(instance, c), _memory_of(instance, c)) for c in range(len(instance.class_counts))]
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for m in range(instance.units):
        groups[costs[instance.mb_class(m)]].append(m)
    return sorted(groups.values(), key=lambda group: total_time(instance, instance.mb_class(group[0])))


def listed(microbatches: Sequence[int]) -> str:
    """Return a text such as ``0-3, 7`` for microbatches in ascending order."""
    runs = [[m for _, m in run] for _, run in groupby(enumerate(microbatches), lambda at: at[1] - at[0])]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def with_times(instance: Instance, times: Callable[[int], ClassTimes]) -> Instance:
    """Return the instance in which the microbatches of each class take the times that a function says.

    Where all microbatches are alike, those of class 0 count.
    """
    forward, backward, weight, fused = times(0)
    costs = replace(instance.costs, forward=forward, backward=backward, weight=weight, fused=fused)
    if instance.alike:
        return replace(instance, costs=costs, classes=())
    classes = [
        MicrobatchClass(count, *times(c), _memory_of(instance, c))
        for c, count in _runs(instance, range(instance.units))
    ]
    return replace(instance, costs=costs, classes=classes)


def sequence_at_the_end(schedule: Schedule) -> list[int]:
    """Return the microbatches in the sequence in which the last stage runs their F's.

    With two directions there are two last stages, and the sequence is that of the numbers.
    """
    kind, stage, microbatch = schedule.order.operations.T
    if len(schedule.instance.placement.routes) > 1:
        return list(range(schedule.instance.microbatches))
    found: list[int] = microbatch[(kind == OpKind.F) & (stage == schedule.instance.stages - 1)].tolist()
    return found


def renumbered(schedule: Schedule, sequence: Sequence[int]) -> Schedule:
    """Return the schedule with other numbers for its microbatches, in a placement with one direction.

    Parameters
    ----------
    schedule
        The schedule.
    sequence
        The microbatches of the schedule, each once; the one at place k gets the number k.
    """
    if list(sequence) == list(range(len(sequence))):
        return schedule
    instance, order = schedule.instance, schedule.order
    if not instance.alike:
        classes = [
            MicrobatchClass(count, *times_of(instance, c), _memory_of(instance, c))
            for c, count in _runs(instance, sequence)
        ]
        instance = replace(instance, classes=classes)
    number = np.argsort(sequence)
    operations = order.operations.copy()
    operations[:, 2] = number[operations[:, 2]]
    return Schedule(instance, Order(operations, order.offsets, order.pairs), schedule.start, schedule.end)


def _runs(instance: Instance, sequence: Sequence[int]) -> list[tuple[int, int]]:
    """Return class and number of the neighbours of one class in a sequence of microbatches."""
    return [(c, len(list(run))) for c, run in groupby(map(instance.mb_class, sequence))]


def _memory_of(instance: Instance, mb_class: int) -> Memory | None:
    """Return what the operations of a class take and free."""
    if instance.memory is None:
        return None
    stages = range(instance.stages)
    taken = (
        instance.memory_delta(OpKind.F, s, mb_class) + instance.memory_while_running(s, mb_class)
        for s in stages
    )
    freed = (tuple(instance.memory_delta(kind, s, mb_class) for s in stages) for kind in (OpKind.B, OpKind.W))
    return Memory(tuple(taken), *freed)
