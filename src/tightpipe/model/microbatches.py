"""The microbatches of an instance by class: who they are, their times, and other numbers for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TypeVar

import numpy as np

from .costs import Alike, Costs, MicrobatchClass, MicrobatchSlice, PerStage, sums
from .instance import Instance
from .operation import OpKind
from .schedule import Order, Schedule

ClassTimes = tuple[PerStage, PerStage, PerStage, PerStage]
"""Ticks of F, B, W and BW of a class, with one entry per stage."""


def changed(times: ClassTimes, change: Callable[[PerStage], PerStage]) -> ClassTimes:
    """Return times after a change of each kind; a BW that takes as long as B and W together goes on to."""
    forward, backward, weight, fused = times
    b, w = change(backward), change(weight)
    return change(forward), b, w, sums(b, w) if fused == sums(backward, weight) else change(fused)


def lengths(instance: Instance) -> list[list[int]]:
    """Return the microbatches that cost the same, group after group, from the shortest to the longest.

    Microbatches that differ in their direction alone are in one group. Of two groups that take equally long,
    that with the smaller number comes first.
    """
    costs = [replace(one, route=0, slice=0) for one in instance.class_costs]
    groups: defaultdict[Alike, list[int]] = defaultdict(list)
    for m in range(instance.units):
        groups[costs[instance.mb_class(m)]].append(m)
    return [groups[one] for one in sorted(groups, key=lambda one: (one.work, groups[one][0]))]


def listed(microbatches: Sequence[int]) -> str:
    """Return a text such as ``0-3, 7`` for microbatches in ascending order."""
    runs = [[m for _, m in run] for _, run in groupby(enumerate(microbatches), lambda at: at[1] - at[0])]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def with_times(instance: Instance, times: Callable[[int], ClassTimes]) -> Instance:
    """Return the instance in which the units of each class take the times that a function says.

    Where all microbatches are alike, and for slices, those of the first route count.
    """
    costs = _retimed(instance.costs, times(0))
    if instance.slices:  # the first units are the slices of microbatch 0
        slices = [_retimed(one, times(instance.mb_class(j))) for j, one in enumerate(instance.slices)]
        return replace(instance, costs=costs, slices=slices)
    if instance.alike:
        return replace(instance, costs=costs, classes=())
    classes = [_retimed(one, times(c)) for c, one in _runs(instance, range(instance.microbatches))]
    return replace(instance, costs=costs, classes=classes)


_Timed = TypeVar("_Timed", Costs, MicrobatchClass, MicrobatchSlice)


def _retimed(costs: _Timed, times: ClassTimes) -> _Timed:
    forward, backward, weight, fused = times
    return replace(costs, forward=forward, backward=backward, weight=weight, fused=fused)


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

    - `schedule`: the schedule.
    - `sequence`: the microbatches of the schedule, each once; the one at place k gets the number k.
    """
    if list(sequence) == list(range(len(sequence))):
        return schedule
    instance, order = schedule.instance, schedule.order
    if not instance.alike:
        instance = replace(instance, classes=[one for _, one in _runs(instance, sequence)])
    number = np.argsort(sequence)
    operations = order.operations.copy()
    operations[:, 2] = number[operations[:, 2]]
    return Schedule(instance, Order(operations, order.offsets, order.pairs), schedule.start, schedule.end)


def _runs(instance: Instance, sequence: Sequence[int]) -> list[tuple[int, MicrobatchClass]]:
    """Return the neighbours of one class in a sequence of microbatches, as classes with their numbers."""
    found = []
    for c, run in groupby(map(instance.mb_class, sequence)):
        one = instance.class_costs[c]
        memory = None if instance.memory is None else one.memory
        found.append((c, MicrobatchClass(len(list(run)), *one.duration, memory)))
    return found
