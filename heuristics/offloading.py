"""Copies beside the order of a heuristic: what would stay longest leaves first, and delays nothing.

Heuristics know no copies. They schedule the instance with larger memory limits in which nothing leaves. Then
activations leave, one after another and the one with the longest time between its F and its backward first,
until every device stays within its own limit. Each goes out as soon, and comes back as late, as the engines
are free at the times of that schedule, so the copies need no time of their own.

References
----------
X. Wan, P. Qi, G. Huang, M. Lin and J. Li, "PipeOffload: Improving Scalability of Pipeline Parallelism with
Memory Optimization", arXiv:2503.01328: the activations that live longest leave first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tightpipe.base.errors import InfeasibleError, NoScheduleError
from tightpipe.kernels.arrays import Ints
from tightpipe.model.graph_arrays import arrays_of, deltas_of, nodes_of
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order, Schedule
from tightpipe.model.simulate import memory_trace, retime
from tightpipe.params.budget import UNLIMITED, Budget

LEVELS = 6
"""Number of larger limits that are tried."""
_MOST = 4  # times its limit that a device holds at most in these orders


def offloaded(instance: Instance, make: Callable[[Instance], Order], budget: Budget = UNLIMITED) -> Order:
    """Return the cheapest order, with copies, that follows from those that a function makes without copies.

    Raise an InfeasibleError if the instance has no schedule, and a NoScheduleError if no order was found that
    fits the memory limits with copies.

    - `make`: returns an order of an instance in which nothing leaves; it may raise either error.
    - `budget`: when its time is up, no further limit is tried.
    """
    reason = instance.infeasibility()
    if reason:
        raise InfeasibleError(reason)
    found: list[Order] = []
    refusal = "what may leave does not leave early enough, or comes back too late, for the memory limits"
    for wider in _wider(instance):
        if found and budget.left <= 0:
            break
        try:
            order = make(wider)
        except (InfeasibleError, NoScheduleError) as error:
            refusal = str(error)
            continue
        copied = copied_out(instance, retime(wider, order))
        if copied is not None:
            found.append(copied)
    if not found:
        raise NoScheduleError(refusal)
    return min(found, key=lambda order: cost(retime(instance, order)))


def _wider(instance: Instance) -> Iterator[Instance]:
    """Yield the instance without copies: with its own limits, and then with ever larger ones.

    A device can hold at most as many times its limit as a microbatch holds more before than after all that
    may leave has left.
    """
    stays = replace(instance, offload=None)
    given = [instance.memory_limit(device) for device in range(instance.devices)]
    if instance.offload is None or instance.memory is None or None in given:
        yield stays
        return
    limits = np.array(given, dtype=np.int64)
    held = np.array([instance.held_by_one(device) for device in range(instance.devices)])
    leaves = [instance.leaves(s) * instance.slice_count for s in range(instance.stages)]
    held_on = map(instance.placement.stages_on, range(instance.devices))
    away = np.array([sum(leaves[stage] for stage in stages) for stages in held_on])
    most = limits * np.minimum(_MOST, held / np.maximum(1, held - away))
    least = [stays.smallest_limit(device) for device in range(instance.devices)]
    last: list[int] = []
    for level in np.linspace(0, 1, LEVELS):
        now = np.maximum(least, limits + level * (most - limits)).astype(np.int64).tolist()
        if now != last:
            yield replace(stays, memory=replace(instance.memory, limit=now))
        last = now


class _Stay(NamedTuple):
    """What lies between an F and its backward: kind of the unit, and two ticks."""

    stage: int
    unit: int
    begin: int  # end of the F
    until: int  # start of the backward


class _Trip(NamedTuple):
    """A copy out and a copy back of what leaves, with their starts in ticks."""

    stay: _Stay
    out: int
    back: int


def copied_out(instance: Instance, schedule: Schedule) -> Order | None:
    """Return the order of a schedule with copies at its times; None if it does not fit the limits with any.

    - `instance`: the instance with its own limits, and with what may leave.
    - `schedule`: a schedule without copies, of the instance with larger limits.
    """
    rows: list[tuple[int, int, int]] = []
    joined: list[int] = []
    offsets = [0]
    for device in range(instance.devices):
        trips = _trips(instance, schedule, device)
        if trips is None:
            return None
        for operation, joins in _line(instance, schedule, device, trips):
            rows.append(operation)
            joined.append(joins)
        offsets.append(len(rows))
    order = Order(np.array(rows), np.array(offsets), np.array(joined))
    held = memory_trace(instance, order)
    for device in range(instance.devices):
        limit = instance.memory_limit(device)
        if limit is not None and held[order.rows(device)].max(initial=0) > limit:
            return None
    return order


def _trips(instance: Instance, schedule: Schedule, device: int) -> list[_Trip] | None:
    """Return what leaves a device and when, so that it stays within its limit; None if it cannot."""
    limit, offload, made = instance.memory_limit(device), instance.offload, list[_Trip]()
    if limit is None or offload is None:
        return made
    times, deltas = _events(schedule, device)
    out: list[tuple[int, int]] = []
    back: list[tuple[int, int]] = [] if offload.duplex else out
    for stay in sorted(_stays(instance, schedule, device), key=lambda one: one.begin - one.until):
        over = (np.cumsum(deltas)[:-1] > limit) & (times[:-1] < times[1:])
        if not over.any():
            break
        ticks, ticks_back = (instance.duration(kind, stay.stage) for kind in (OpKind.O, OpKind.L))
        leaves = _earliest(out, stay.begin, ticks)
        with_this = back if offload.duplex else sorted([*back, (leaves, leaves + ticks)])
        returns = _latest(with_this, stay.until, ticks_back)
        gone = leaves + ticks
        if gone > returns or not (over & (times[:-1] < returns) & (times[1:] > gone)).any():
            continue
        made.append(_Trip(stay, leaves, returns))
        for busy, begin, length in ((out, leaves, ticks), (back, returns, ticks_back)):
            busy.append((begin, begin + length))
            busy.sort()
        memory = instance.leaves(stay.stage)
        at = np.searchsorted(times, gone), np.searchsorted(times, returns, "right")
        times, deltas = np.insert(times, at, (gone, returns)), np.insert(deltas, at, (-memory, memory))
    fits = not ((np.cumsum(deltas)[:-1] > limit) & (times[:-1] < times[1:])).any()
    return made if fits else None


def _events(schedule: Schedule, device: int) -> tuple[Ints, Ints]:
    """Return the ticks at which a device takes or frees memory, and how much; at one tick it frees first."""
    instance, order, rows = schedule.instance, schedule.order, schedule.order.rows(device)
    delta = deltas_of(instance, order)[rows]
    passing = arrays_of(instance).nodes["passing"][nodes_of(instance, order)][rows]
    start, end = schedule.start[rows], schedule.end[rows]
    times = np.concatenate([np.where(delta < 0, end, start), start, end])
    deltas = np.concatenate([delta, passing, -passing])
    sequence = np.lexsort((deltas, times))
    return times[sequence], deltas[sequence]


def _stays(instance: Instance, schedule: Schedule, device: int) -> Iterator[_Stay]:
    """Yield what may leave a device."""
    order, rows = schedule.order, schedule.order.rows(device)
    operations, starts = order.operations[rows].tolist(), schedule.start[rows].tolist()
    needed: dict[tuple[int, int], int] = {}
    for (kind, stage, unit), start in zip(operations, starts, strict=True):
        if kind != OpKind.F:
            needed.setdefault((stage, unit), start)  # a W runs after its B
    for (kind, stage, unit), end in zip(operations, schedule.end[rows].tolist(), strict=True):
        if kind == OpKind.F and instance.offloads(stage):
            yield _Stay(stage, unit, end, needed[stage, unit])


def _earliest(busy: list[tuple[int, int]], ready: int, ticks: int) -> int:
    """Return the first tick from `ready` on from which an engine is free for so many ticks."""
    for begin, end in busy:
        if begin >= ready + ticks:
            break
        ready = max(ready, end)
    return ready


def _latest(busy: list[tuple[int, int]], due: int, ticks: int) -> int:
    """Return the last tick from which an engine is free for so many ticks, until `due` or earlier."""
    return -_earliest([(-end, -begin) for begin, end in reversed(busy)], -due, ticks) - ticks


def _line(
    instance: Instance, schedule: Schedule, device: int, trips: list[_Trip]
) -> list[tuple[tuple[int, int, int], int]]:
    """Return what a device runs, with copies, by the ticks at which it takes or frees memory.

    Each operation is kind, stage and unit, with 1 if it runs together with the next one and else 0. The two
    of a pair stand where its F takes memory.
    """
    order, rows = schedule.order, schedule.order.rows(device)
    events: list[tuple[tuple[int, int, int], tuple[int, int, int], int]] = []
    follows = 0
    for row in range(rows.start, rows.stop):
        kind, stage, unit = order.operations[row].tolist()
        takes = kind == OpKind.F or follows
        at = int(schedule.start[row] if takes else schedule.end[row])
        follows = int(order.pairs[row])
        events.append(((at, int(takes), row), (kind, stage, unit), follows))
    for stay, out, back in trips:
        gone = out + instance.duration(OpKind.O, stay.stage)
        events.append(((gone, 0, -1), (int(OpKind.O), stay.stage, stay.unit), 0))
        events.append(((back, 1, -1), (int(OpKind.L), stay.stage, stay.unit), 0))
    return [(operation, joins) for _, operation, joins in sorted(events)]
