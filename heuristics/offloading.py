"""Copies beside the order of a heuristic, at the times of its schedule, so that they delay little.

Heuristics know no copies. They schedule the instance with larger memory limits in which nothing leaves. Then
a *rule* says which activations leave, and when each goes out and comes back, so that every device stays
within its own limit. The usual rule (`reversed_copies`) plans copies such that nothing is delayed. Where that
is not enough, those in `RULES` are tried, which are what frameworks do, and can be asked for by name. Where
these fail too, the usual rule lets the rest leave and return as if an engine were free, which delays what
waits for these copies. The last limits that are tried lie where copies begin to delay.

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

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np

from tightpipe.base.errors import InfeasibleError, NoScheduleError
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order, Schedule
from tightpipe.model.simulate import memory_trace, retime
from tightpipe.params.budget import UNLIMITED, Budget

from .reversed_copies import Stay, Trip, events_of, last_needed_first, stays_of

LEVELS = 10
"""Number of limits that are tried."""
_EVEN = 6  # of them from the own limit to the largest one, in equal factors
_MOST = 8  # times its limit that a device holds at most in these orders
_SHARES = 8  # shares are multiples of one over this


def offloaded(
    instance: Instance, make: Callable[[Instance], Order], budget: Budget = UNLIMITED, rule: str = ""
) -> Order:
    """Return the cheapest order, with copies, that follows from those that a function makes without copies.

    Raise an InfeasibleError if the instance has no schedule, and a NoScheduleError if no order was found that
    fits the limits with copies; `make` may raise either. When time is up, no further limit is tried. `rule`
    says which activations leave and when: a name in `RULES`, or empty for the usual rule.
    """
    reason = instance.infeasibility()
    if reason:
        raise InfeasibleError(reason)
    refusal = "what may leave does not leave early enough, or comes back too late, for the memory limits"
    best, least, last = None, inf, instance
    fits, late = {0.0}, {inf}  # the shares so far at which copies delay nothing, and at which they delay
    for k in range(LEVELS):
        share = k / (_EVEN - 1) if k < _EVEN else (max(fits) + min(at for at in late if at > max(fits))) / 2
        if share == inf or (best is not None and budget.left <= 0):
            break
        wider = _wider(instance, share)
        if wider == last:
            continue
        last = wider
        try:
            schedule = retime(wider, make(wider))
            if cost(schedule) < least:  # copies save nothing else
                copied = copied_out(instance, schedule, rule)
                ticks = inf if copied is None else cost(retime(instance, copied))
                (fits if ticks <= cost(schedule) else late).add(share)
                if ticks < least:
                    best, least = copied, ticks
            elif k >= _EVEN:
                fits.add(share)  # a larger limit may still cost less
        except (InfeasibleError, NoScheduleError) as error:
            refusal = str(error)
    if best is None:
        raise NoScheduleError(refusal)
    return best


def _wider(instance: Instance, share: float) -> Instance:
    """Return the instance without copies and with larger limits: its own at a share of 0, the largest at 1.

    A device can hold at most as many times its limit as a microbatch holds more before than after all that
    may leave has left.
    """
    stays = replace(instance, offload=None)
    given = [instance.memory_limit(device) for device in range(instance.devices)]
    if instance.offload is None or instance.memory is None or None in given:
        return stays
    limits = np.array(given, dtype=np.int64)
    held = np.array([instance.held_by_one(device) for device in range(instance.devices)])
    leaves = [instance.leaves(s) * instance.slice_count for s in range(instance.stages)]
    held_on = map(instance.placement.stages_on, range(instance.devices))
    away = np.array([sum(leaves[stage] for stage in stages) for stages in held_on])
    times = np.clip(held / np.maximum(1, held - away), 1, _MOST)
    least = [stays.smallest_limit(device) for device in range(instance.devices)]
    now = np.maximum(least, limits * times**share).astype(np.int64).tolist()
    return replace(stays, memory=replace(instance.memory, limit=now))


_Rule = Callable[[Instance, Schedule, int], list[Trip] | None]


def copied_out(instance: Instance, schedule: Schedule, rule: str = "") -> Order | None:
    """Return the order of a schedule with copies at its times; None if it does not fit the limits with any.

    The schedule is one without copies, of the instance with larger limits. `rule` says which activations
    leave and when: a name in `RULES`, or empty for the usual rule.
    """
    usual: tuple[_Rule, ...] = (last_needed_first, *RULES.values(), partial(last_needed_first, waits=True))
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


_Choice = Callable[[list[Stay], int], list[Stay]]


def _longest(stays: list[Stay], share: int) -> list[Stay]:
    """Return a share, in `_SHARES`, of what may leave: that which stays longest."""
    return sorted(stays, key=lambda stay: stay.begin - stay.until)[: -(-len(stays) * share // _SHARES)]


def _spread(stays: list[Stay], share: int) -> list[Stay]:
    """Return a share, in `_SHARES`, of what may leave: at each stage, evenly spread over the units."""
    return [one for one in stays if (one.unit + 1) * share // _SHARES > one.unit * share // _SHARES]


def _by_share(choose: _Choice, instance: Instance, schedule: Schedule, device: int) -> list[Trip] | None:
    """Return what leaves a device if the least share leaves that is enough; None if no share is."""
    limit = instance.memory_limit(device)
    if limit is None:
        return []
    times, deltas = events_of(schedule, device)
    stays = list(stays_of(instance, schedule, device))
    for share in range(_SHARES + 1):
        trips = _in_sequence(instance, choose(stays, share))
        leaves = [instance.leaves(trip.stay.stage) for trip in trips]
        ends = [trip.out + instance.duration(OpKind.O, trip.stay.stage) for trip in trips]
        at = np.concatenate([times, ends, [trip.back for trip in trips]])
        change = np.concatenate([deltas, np.negative(leaves), leaves])
        if np.cumsum(change[np.lexsort((change, at))]).max(initial=0) <= limit:
            return trips
    return None


def _in_sequence(instance: Instance, stays: list[Stay]) -> list[Trip]:
    """Return the copies of what leaves, in the sequences of F's and of backwards; see the rules.

    What could not be back in time for its backward stays after all.
    """
    ticks = {s: [instance.duration(k, s) for k in (OpKind.O, OpKind.L)] for s in {one.stage for one in stays}}
    both = instance.offload is not None and instance.offload.duplex
    slot = 1 if both or not stays else sum(map(max, zip(*ticks.values(), strict=True)))
    while True:
        out, free, trips = dict[Stay, int](), 0, list[Trip]()
        for stay in sorted(stays, key=lambda one: one.begin):
            out[stay] = -(-max(free, stay.begin) // slot) * slot
            free = out[stay] + ticks[stay.stage][0]
        busy = max((one.until for one in stays), default=0)
        for stay in sorted(stays, key=lambda one: one.until, reverse=True):
            busy = min(busy, stay.until) // slot * slot - ticks[stay.stage][1]
            trips.append(Trip(stay, out[stay], busy))
        kept = [one.stay for one in trips if one.out + ticks[one.stay.stage][0] <= one.back]
        if len(kept) == len(trips):
            return trips
        stays = kept


RULES: Mapping[str, _Rule] = {
    "pipe-offload": partial(_by_share, _longest),
    "fixed-share": partial(_by_share, _spread),
}
"""Rules by name: functions that return what leaves a device and when, or None where that is not enough."""


def _line(
    instance: Instance, schedule: Schedule, device: int, trips: list[Trip]
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
