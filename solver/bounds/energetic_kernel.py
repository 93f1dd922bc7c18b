"""*Energetic* reasoning: by how much a device's work between two times exceeds the time between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints, Records
from tightpipe.kernels.compiled import compiled
from tightpipe.model.graph_arrays import GraphArrays
from tightpipe.model.operation import OpKind

from ..windows import Windows

_NEVER = 2**61  # more than any work or time
_KINDS = OpKind.F, OpKind.B, OpKind.W
_F, _B, _W = (int(kind) for kind in _KINDS)
_NONE = -1  # in place of the queue of the operation that runs, if none runs


class DeviceQueues(NamedTuple):
    """The queues of one device in the graph, and what counts for a whole kind of operations."""

    queues: Records  # (Q,) of `QUEUE`
    first: Ints  # (Q + 1,) queue q has the device's items first[q] to first[q + 1] - 1, counted from 0
    shortest: Ints  # (3,) least duration of F, B and W
    longest: Ints  # (3,) largest duration of each kind
    least_delta: Ints  # (3,) least memory that an item of each kind adds
    limit: int  # memory limit of the device, `NO_LIMIT` for none


class Counts(NamedTuple):
    """How many items of each queue have ended by a time t, and have begun before t; shape (Q,) each."""

    ended: Ints  # items that have surely ended
    may_end: Ints  # items that can have ended
    begun: Ints  # items that have surely begun
    may_begin: Ints  # items that can have begun


class Ranges(NamedTuple):
    """The least and the most operations of each kind that can have ended by a time, given what runs then.

    `work` and `memory` are sums over the operations that surely have ended.
    """

    least_f: int
    most_f: int
    least_b: int
    most_b: int
    least_w: int
    most_w: int
    work: int  # ticks
    memory: int  # the memory of an F that runs counts too


def overload_of(windows: Windows, device: int) -> int:
    """Return by how many ticks the work of a device between two times exceeds the time between them.

    Parameters
    ----------
    windows
        Feasible windows.
    device
        The device.

    Returns
    -------
    int
        The largest excess, in ticks, between any two times. An excess of more than 0 proves that no schedule
        lies in the windows. The result is `_NEVER` if at some time no counts meet the conditions below.

    Notes
    -----
    At a time t every operation of a device has ended by t, has not begun before t, or runs; at most one runs.
    The windows say how many items of each queue surely have ended and begun, and how many can have ended and
    begun. F's that have begun hold their memory, only B's and W's that have ended have freed theirs, and the
    sum is within the limit. Each W that has begun follows a B that has ended. Over all counts of ended and
    begun items that satisfy these conditions, let least(t) and most(t) be the smallest and the largest work
    of the device until t, where an operation that runs at t counts in least(t) not at all and in most(t) in
    full. As the device works on one operation at a time, least(t2) - most(t1) <= work between t1 and t2 <=
    t2 - t1 in every schedule within the windows.

    This is energetic reasoning (Baptiste, Le Pape and Nuijten, Constraint-Based Scheduling, chapter 3) in
    which the memory limit decides the least and the most work. Items that surely have ended count with their
    own duration and memory delta. The other items of all queues of a kind are counted together, each with the
    least memory delta among these queues, and with the least duration in least(t) and the largest one in
    most(t). So least(t) is never too large and most(t) never too small.
    """
    graph = windows.arrays.graph
    mine = _queues_of(graph, device)
    items = slice(*(graph.devices["item"][device] + np.array([0, mine.first[-1]])).tolist())
    earliest, latest = windows.earliest[items], windows.latest[items]
    duration = np.repeat(mine.queues["duration"], np.diff(mine.first))
    # most(t) - t is smallest at the last t by which an item cannot have begun, or cannot have ended, and
    # least(t) - t is largest at the first t by which an item surely has begun, or surely has ended.
    events = earliest, earliest + duration - 1, latest + 1, latest + duration
    times = np.unique(np.concatenate(events))
    counts = Counts(*np.zeros((len(Counts._fields), len(mine.queues)), np.int64))
    return int(_overload(mine, times, earliest, latest, counts))


def _queues_of(graph: GraphArrays, device: int) -> DeviceQueues:
    me = graph.devices[device]
    first = graph.first[me["queue"] : me["queue"] + me["queues"] + 1]
    queues = graph.queues[me["queue"] : me["queue"] + me["queues"]]
    kinds = [queues[queues["kind"] == kind] for kind in _KINDS]  # a device may have no B's or no W's
    return DeviceQueues(
        queues,
        first - first[0],
        np.array([min(kind["duration"], default=0) for kind in kinds]),
        np.array([max(kind["duration"], default=0) for kind in kinds]),
        np.array([min(kind["delta"], default=0) for kind in kinds]),
        int(me["limit"]),
    )


@compiled
def _overload(arrays: DeviceQueues, times: Ints, earliest: Ints, latest: Ints, counts: Counts) -> int:
    excess, least_ahead = -_NEVER, _NEVER
    for t in times:
        _advance(arrays, counts, t, earliest, latest)
        least, most = _NEVER, -1
        for running in range(_NONE, len(arrays.queues)):
            ranges = _ranges(arrays, counts, running)
            if ranges.work >= 0:
                least = min(least, _least_work(arrays, ranges, running))
                most = max(most, _most_work(arrays, ranges, running))
        if most < 0:  # no counts satisfy the conditions, so no schedule lies in the windows
            return _NEVER
        excess = max(excess, least - t - least_ahead)
        least_ahead = min(least_ahead, most - t)
    return excess


@compiled
def _advance(arrays: DeviceQueues, counts: Counts, t: int, earliest: Ints, latest: Ints) -> None:
    """Set `counts`, which are those of an earlier time or all 0, to the counts at time t."""
    for q in range(len(arrays.queues)):
        duration = arrays.queues[q].duration
        counts.ended[q] = _passed(arrays, q, counts.ended[q], latest, t - duration)
        counts.may_end[q] = _passed(arrays, q, counts.may_end[q], earliest, t - duration)
        counts.begun[q] = _passed(arrays, q, counts.begun[q], latest, t - 1)
        counts.may_begin[q] = _passed(arrays, q, counts.may_begin[q], earliest, t - 1)


@compiled
def _passed(arrays: DeviceQueues, q: int, count: int, start: Ints, t: int) -> int:
    """Return how many items at the head of a queue start at t or earlier, given that the first `count` do."""
    first, end = arrays.first[q], arrays.first[q + 1]
    while first + count < end and start[first + count] <= t:
        count += 1
    return count


@compiled
def _ranges(arrays: DeviceQueues, counts: Counts, running: int) -> Ranges:
    """Return the ranges while queue `running` (`_NONE`: none) runs an item; `work` is -1 if none are left."""
    least_f = most_f = least_b = most_b = least_w = most_w = work = 0
    memory = arrays.queues[running].delta if running >= 0 and arrays.queues[running].kind == _F else 0
    for q in range(len(arrays.queues)):
        least, most = max(counts.ended[q], counts.begun[q]), counts.may_end[q]
        if q == running:
            least, most = max(counts.ended[q], counts.begun[q] - 1), min(most, counts.may_begin[q] - 1)
        if least > most:
            return Ranges(0, 0, 0, 0, 0, 0, -1, 0)
        work += least * arrays.queues[q].duration
        memory += least * arrays.queues[q].delta
        if arrays.queues[q].kind == _F:
            least_f, most_f = least_f + least, most_f + most
        elif arrays.queues[q].kind == _B:
            least_b, most_b = least_b + least, most_b + most
        else:
            least_w, most_w = least_w + least, most_w + most
    return Ranges(least_f, most_f, least_b, most_b, least_w, most_w, work, memory)


@compiled
def _least_work(arrays: DeviceQueues, ranges: Ranges, running: int) -> int:
    """Return least(t) in ticks, or `_NEVER` if no counts in the ranges meet the conditions of `overload_of`.

    The least work is the work of the items that surely have ended, plus as little work of further B's and W's
    as frees enough memory.
    """
    least = _NEVER
    waiting = 1 if running >= 0 and arrays.queues[running].kind == _W else 0
    for b in range(ranges.most_b - ranges.least_b + 1):
        above, w = ranges.memory + b * arrays.least_delta[_B] - arrays.limit, 0
        if above > 0:
            if arrays.least_delta[_W] == 0:
                continue
            w = -(above // arrays.least_delta[_W])
        w_fits = w <= ranges.most_w - ranges.least_w
        if w_fits and ranges.least_w + w + waiting <= ranges.least_b + b:
            least = min(least, ranges.work + b * arrays.shortest[_B] + w * arrays.shortest[_W])
    return least


@compiled
def _most_work(arrays: DeviceQueues, ranges: Ranges, running: int) -> int:
    """Return most(t) in ticks, or -1 if no counts in the ranges meet the conditions of `overload_of`.

    For each number of B's that have ended, the most work contains all W's that can have ended, as many F's as
    then fit into memory, and the operation that runs.
    """
    most = -1
    waiting = 1 if running >= 0 and arrays.queues[running].kind == _W else 0
    full = ranges.work + (arrays.queues[running].duration if running >= 0 else 0)
    for b in range(ranges.most_b - ranges.least_b + 1):
        w = min(ranges.most_w, ranges.least_b + b - waiting) - ranges.least_w
        room = arrays.limit - ranges.memory - b * arrays.least_delta[_B] - w * arrays.least_delta[_W]
        if w >= 0 and room >= 0:
            f = ranges.most_f - ranges.least_f
            if arrays.least_delta[_F] > 0:
                f = min(f, room // arrays.least_delta[_F])
            work = full + b * arrays.longest[_B] + w * arrays.longest[_W] + f * arrays.longest[_F]
            most = max(most, work)
    return most
