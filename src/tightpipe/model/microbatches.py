"""Microbatches that differ: who they are, their times, and the sequences in which they run.

Most heuristics were made for microbatches that are alike. They say which operations run, and not of which
microbatch. Such an order is made for a *representative* instance, whose microbatches all cost what those of
the instance cost on average. Then its microbatches are renamed: the first one becomes the first of a given
sequence, and so on, on all devices. In the theory of flow shops, orders in which all machines have the jobs
in one sequence are called permutation schedules.

References
----------
Longest first, by the sum of squared lengths: verl, `dynamic_bsz` with balanced workloads. Clusters of similar
lengths: Jiang et al., "DynaPipe: Optimizing Multi-task Training through Dynamic Pipelines", arXiv:2311.10418,
section 5.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import numpy as np

from ..kernels.arrays import Ints
from .costs import Alike, Costs, Memory, MicrobatchClass, MicrobatchSlice, Part, PerStage, sums
from .graph_arrays import arrays_of
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


def with_times(
    instance: Instance,
    times: Callable[[int], ClassTimes],
    held: Callable[[int], Memory] | None = None,
    **entries: Any,
) -> Instance:
    """Return the instance in which the units of each class take the times that a function says.

    Where all microbatches are alike, and for slices, those of the first route count. `held` may say what
    the operations of each class take and free. Other `entries` of the instance are replaced at the same time.
    """
    memory: Memory | None = entries.get("memory", instance.memory)
    held_by = held or (lambda c: instance.class_costs[c].memory)

    def part(one: Part, c: int) -> Part:
        timed = _retimed(one, times(c))
        return timed if memory is None else replace(timed, memory=held_by(c))

    entries["costs"] = _retimed(entries.get("costs", instance.costs), times(0))
    if memory is not None:
        entries["memory"] = replace(held_by(0), limit=memory.limit)
    if instance.slices:  # the first units are the slices of microbatch 0
        entries["slices"] = [part(one, instance.mb_class(j)) for j, one in enumerate(instance.slices)]
    else:
        runs = [] if instance.alike else _runs(instance, range(instance.microbatches))
        entries["classes"] = [part(one, c) for c, one in runs]
    return replace(instance, **entries)


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

    `sequence` has the microbatches of the schedule, each once; the one at place k gets the number k.
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


_CLUSTERS = 4


def _cyclic(rising: Ints) -> Ints:
    clusters = np.array_split(rising[::-1], min(_CLUSTERS, len(rising)))
    return np.array([part[k] for k in range(len(clusters[0])) for part in clusters if k < len(part)])


SEQUENCES: dict[str, Callable[[Ints], Ints]] = {
    "arrival": np.sort,
    "longest-first": lambda rising: rising[::-1],
    "shortest-first": lambda rising: rising,
    "short-at-ends": lambda rising: np.concatenate([rising[::2], rising[1::2][::-1]]),
    "cyclic": _cyclic,
}
"""Functions that put microbatches, which are given by rising work, into a sequence.

- `arrival`: by number, as they come.
- `short-at-ends`: every other one by rising work, and then the rest backwards, so that the longest are in the
  middle.
- `cyclic`: four clusters of similar work, from each of which one microbatch runs in turn.
"""


def sequence_of(instance: Instance, name: str) -> Ints:
    """Return the numbers of the microbatches in one of `SEQUENCES`."""
    work = np.array([one.work for one in instance.class_costs])[arrays_of(instance).mb_class]
    return np.asarray(SEQUENCES[name](np.argsort(work, kind="stable")))


def by_route(instance: Instance, sequence: Ints) -> Ints:
    """Return the microbatches of each route in a sequence of all, shape (routes, n / routes)."""
    routes = len(instance.placement.routes)
    route = np.array([instance.route(m) for m in range(instance.microbatches)])[sequence]
    return np.stack([sequence[route == r] for r in range(routes)])


def renamed(instance: Instance, order: Order, sequence: Ints) -> Order:
    """Return an order whose microbatches, in the sequence of their numbers, became those of another sequence.

    Microbatches keep their routes.
    """
    name = np.zeros(instance.microbatches, np.int64)
    name[by_route(instance, np.arange(instance.microbatches)).ravel()] = by_route(instance, sequence).ravel()
    operations = order.operations.copy()
    operations[:, 2] = name[operations[:, 2]]
    return Order(operations, order.offsets, order.pairs)


def representative(instance: Instance, *, largest: bool = False) -> Instance:
    """Return the instance with microbatches that are alike, each of which takes what is usual on average.

    Mean memory is rounded down, so that all of them hold no more than all that they represent.

    If `largest` is set, each takes at every stage the most memory that any of them takes there, both from F
    to B and from B to W. An order of the result then fits into the memory of the instance, whatever the
    sequence, unless a device cannot hold such a microbatch. Its limit is then higher in the result.
    """
    counts, n = np.array(instance.class_counts), instance.microbatches

    def each(read: Callable[[int, int], int]) -> Ints:
        return np.array([[read(s, c) for s in range(instance.stages)] for c in range(len(counts))])

    def mean(kind: OpKind) -> PerStage:
        ticks = each(partial(instance.duration, kind))
        return tuple(np.maximum(ticks.max(axis=0) > 0, np.rint(counts @ ticks / n)).astype(np.int64).tolist())

    costs = Costs(
        mean(OpKind.F),
        mean(OpKind.B),
        mean(OpKind.W),
        instance.costs.comm,
        link_occupancy=instance.costs.link_occupancy,
        fused=mean(OpKind.BW),
    )
    memory = instance.memory
    if memory is not None:
        held, passing, kept = (
            amount.max(axis=0) if largest else counts @ amount // n
            for amount in (
                each(partial(instance.memory_delta, OpKind.F)),
                each(instance.memory_while_running),
                -each(partial(instance.memory_delta, OpKind.W)),
            )
        )
        kept = np.minimum(held, kept)
        memory = Memory((held + passing).tolist(), (kept - held).tolist(), (-kept).tolist())
    free = replace(instance, costs=costs, memory=memory, classes=(), offload=None)
    limits = [instance.memory_limit(device) for device in range(instance.devices)]
    if memory is None or None in limits:
        return free
    enough = [max(limit or 0, free.smallest_limit(device)) for device, limit in enumerate(limits)]
    return replace(free, memory=replace(memory, limit=enough))
