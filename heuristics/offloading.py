"""Copies beside the order of a heuristic, at the times of its schedule, so that they delay little.

Heuristics know no copies. They schedule the instance with larger memory limits in which nothing leaves. Then
a *rule* says which activations leave, and when each goes out and comes back, so that every device stays
within its own limit. The usual rule lets the activation with the longest time between its F and its backward
leave first, one after another until the limit holds; each goes out as soon, and comes back as late, as an
engine is free, so that nothing is delayed. Where that is not enough, it tries those in `RULES`, which are
what frameworks do, and can be asked for by name. Where these fail too, it lets the rest leave and return as
if an engine were free, which delays what waits for these copies.

In `RULES`, the copies out run in the sequence of the F's, and those back in that of the backwards. Where one
engine makes both, time is cut into slots of a copy out and a copy back, as PipeOffload's code has them. Each
device takes the least share with which it stays within its limit.

- ``pipe-offload``: a share of all activations of a device leaves, those that stay longest, as PipeOffload
  lets the stages leave whose activations do. Its margins against late copies are left out.
- ``fixed-share``: a share of the microbatches at each stage leaves, evenly spread, as a fixed fraction of
  each microbatch's activations leaves under Megatron-Core's ``--activation-offload-fraction``.

References
----------
X. Wan, P. Qi, G. Huang, M. Lin and J. Li, "PipeOffload: Improving Scalability of Pipeline Parallelism with
Memory Optimization", arXiv:2503.01328: the activations that live longest leave first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product
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
_MOST = 8  # times its limit that a device holds at most in these orders
_SHARES = 8  # shares are multiples of one over this


def offloaded(
    instance: Instance, make: Callable[[Instance], Order], budget: Budget = UNLIMITED, rule: str = ""
) -> Order:
    """Return the cheapest order, with copies, that follows from those that a function makes without copies.

    Raise an InfeasibleError if the instance has no schedule, and a NoScheduleError if no order was found that
    fits the memory limits with copies.

    - `make`: returns an order of an instance in which nothing leaves; it may raise either error.
    - `budget`: when its time is up, no further limit is tried.
    - `rule`: which activations leave and when: a name in `RULES`, or empty for the usual rule.
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
        copied = copied_out(instance, retime(wider, order), rule)
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
    times = np.clip(held / np.maximum(1, held - away), 1, _MOST)
    least = [stays.smallest_limit(device) for device in range(instance.devices)]
    last: list[int] = []
    for level in np.linspace(0, 1, LEVELS):
        now = np.maximum(least, limits * times**level).astype(np.int64).tolist()
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


_Rule = Callable[[Instance, Schedule, int], list[_Trip] | None]


def copied_out(instance: Instance, schedule: Schedule, rule: str = "") -> Order | None:
    """Return the order of a schedule with copies at its times; None if it does not fit the limits with any.

    - `instance`: the instance with its own limits, and with what may leave.
    - `schedule`: a schedule without copies, of the instance with larger limits.
    - `rule`: which activations leave and when: a name in `RULES`, or empty for the usual rule.
    """
    usual: tuple[_Rule, ...] = (_longest_first, *RULES.values(), partial(_longest_first, waits=True))
    rows: list[tuple[int, int, int]] = []
    joined: list[int] = []
    offsets = [0]
    for device in range(instance.devices):
        tried = (one(instance, schedule, device) for one in ((RULES[rule],) if rule else usual))
        trips = next((found for found in tried if found is not None), None)
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


def _longest_first(
    instance: Instance, schedule: Schedule, device: int, waits: bool = False
) -> list[_Trip] | None:
    """Return what leaves a device and when, so that it stays within its limit; None if it cannot.

    If copies may come late (`waits`), what is still too much leaves and comes back as if engines were free.
    """
    limit, offload, made = instance.memory_limit(device), instance.offload, list[_Trip]()
    if limit is None or offload is None:
        return made
    times, deltas = _events(schedule, device)
    out: list[tuple[int, int]] = []
    back: list[tuple[int, int]] = [] if offload.duplex else out
    stays = sorted(_stays(instance, schedule, device), key=lambda one: one.begin - one.until)
    for stay, free in product(stays, (False,)) if not waits else _twice(stays, made):
        over = (np.cumsum(deltas)[:-1] > limit) & (times[:-1] < times[1:])
        if not over.any():
            break
        ticks, ticks_back = (instance.duration(kind, stay.stage) for kind in (OpKind.O, OpKind.L))
        leaves = _earliest([] if free else out, stay.begin, ticks)
        with_this = back if offload.duplex else sorted([*back, (leaves, leaves + ticks)])
        returns = _latest([] if free else with_this, stay.until, ticks_back)
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


def _twice(stays: list[_Stay], made: list[_Trip]) -> Iterator[tuple[_Stay, bool]]:
    """Yield all that may leave, and then, with `True`, what has not left in the meantime."""
    yield from product(stays, (False,))
    yield from product([stay for stay in stays if stay not in {trip.stay for trip in made}], (True,))


_Choice = Callable[[list[_Stay], int], list[_Stay]]


def _longest(stays: list[_Stay], share: int) -> list[_Stay]:
    """Return a share, in `_SHARES`, of what may leave: that which stays longest."""
    return sorted(stays, key=lambda stay: stay.begin - stay.until)[: -(-len(stays) * share // _SHARES)]


def _spread(stays: list[_Stay], share: int) -> list[_Stay]:
    """Return a share, in `_SHARES`, of what may leave: at each stage, evenly spread over the units."""
    return [one for one in stays if (one.unit + 1) * share // _SHARES > one.unit * share // _SHARES]


def _by_share(choose: _Choice, instance: Instance, schedule: Schedule, device: int) -> list[_Trip] | None:
    """Return what leaves a device if the least share leaves that is enough; None if no share is."""
    limit = instance.memory_limit(device)
    if limit is None:
        return []
    times, deltas = _events(schedule, device)
    stays = list(_stays(instance, schedule, device))
    for share in range(_SHARES + 1):
        trips = _in_sequence(instance, choose(stays, share))
        leaves = [instance.leaves(trip.stay.stage) for trip in trips]
        ends = [trip.out + instance.duration(OpKind.O, trip.stay.stage) for trip in trips]
        at = np.concatenate([times, ends, [trip.back for trip in trips]])
        change = np.concatenate([deltas, np.negative(leaves), leaves])
        if np.cumsum(change[np.lexsort((change, at))]).max(initial=0) <= limit:
            return trips
    return None


def _in_sequence(instance: Instance, stays: list[_Stay]) -> list[_Trip]:
    """Return the copies of what leaves, in the sequences of F's and of backwards; see the rules.

    What could not be back in time for its backward stays after all.
    """
    ticks = {s: [instance.duration(k, s) for k in (OpKind.O, OpKind.L)] for s in {one.stage for one in stays}}
    both = instance.offload is not None and instance.offload.duplex
    slot = 1 if both or not stays else sum(map(max, zip(*ticks.values(), strict=True)))
    while True:
        out, free, trips = dict[_Stay, int](), 0, list[_Trip]()
        for stay in sorted(stays, key=lambda one: one.begin):
            out[stay] = -(-max(free, stay.begin) // slot) * slot
            free = out[stay] + ticks[stay.stage][0]
        busy = max((one.until for one in stays), default=0)
        for stay in sorted(stays, key=lambda one: one.until, reverse=True):
            busy = min(busy, stay.until) // slot * slot - ticks[stay.stage][1]
            trips.append(_Trip(stay, out[stay], busy))
        kept = [one.stay for one in trips if one.out + ticks[one.stay.stage][0] <= one.back]
        if len(kept) == len(trips):
            return trips
        stays = kept


RULES: Mapping[str, _Rule] = {
    "pipe-offload": partial(_by_share, _longest),
    "fixed-share": partial(_by_share, _spread),
}
"""Rules by name: functions that return what leaves a device and when, or None where that is not enough."""


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
