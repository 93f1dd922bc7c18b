"""Compiled loops that find start times that can repeat after every period, of one microbatch of each class.

All times are in ticks. An operation that starts at s starts again at s plus each multiple of the period. So
whether two operations of a device collide depends only on their durations and on the remainders of their
starts on division by the period. An array `placed` has a row for each operation of one device whose start has
been found, in the sequence in which the starts were found. The columns are `START`, a start that may lie in
any period, and `TICKS`, the duration.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints, Records
from tightpipe.kernels.compiled import compiled, compiled_with_arrays

START, TICKS = range(2)
_F = 0
_NEVER = -1


class Body(NamedTuple):
    """What repeats after every period: one operation of each node of a body.

    It has the parts of the graph that the loops of this module read, because passing all of the graph to a
    loop takes longer than the loop itself on small instances.
    """

    nodes: Records  # of the graph
    edges: Records
    devices: Records
    sequence: Ints  # all nodes, in the sequence in which they are placed: each after those that it waits for


@compiled_with_arrays
def placed_within_limits(body: Body, release: Ints, period: int) -> Ints:
    """Return starts in ticks that can repeat after each period, of one microbatch of each class.

    Every operation is placed as early as possible. The result has the start of one operation of each node. It
    is empty if some operation has no free place in the period, or if the memory of a device does not suffice.

    - `body`: what is placed.
    - `release`: tick from which the first operation of each class can start.
    - `period`: the period in ticks.
    """
    start = np.zeros(len(body.nodes), np.int64)
    placed = np.zeros((len(body.devices), len(body.sequence), 2), np.int64)
    count = np.zeros(len(body.devices), np.int64)
    for i in range(len(body.sequence)):
        node = body.sequence[i]
        device, ticks = body.nodes[node].device, body.nodes[node].duration
        arrival = _arrival(body, node, release, start)
        still = _still_to_come(body, i)
        time = _free_place(placed[device, : count[device]], period, arrival, ticks, still)
        if time == _NEVER:
            return start[:0]
        start[node] = time
        placed[device, count[device], START] = time
        placed[device, count[device], TICKS] = ticks
        count[device] += 1
    return start if _keeps_within_limits(body, period, start) else start[:0]


@compiled_with_arrays
def _arrival(body: Body, node: int, release: Ints, start: Ints) -> int:
    """Return the tick from which an operation can start, given the starts of those that it waits for."""
    mine = body.nodes[node]
    arrival = release[mine.mb_class] if mine.begin == mine.end else 0
    for e in range(mine.begin, mine.end):
        edge = body.edges[e]
        arrival = max(arrival, start[edge.before] + body.nodes[edge.before].duration + edge.lag)
    return int(arrival)


@compiled_with_arrays
def _still_to_come(body: Body, i: int) -> Ints:
    """Return the durations of what the device of number `i` is still to be given, the shortest first."""
    device, ticks, count = body.nodes[body.sequence[i]].device, np.zeros(len(body.sequence), np.int64), 0
    for later in body.sequence[i + 1 :]:
        if body.nodes[later].device == device:
            _insert(ticks, count, body.nodes[later].duration)
            count += 1
    return ticks[:count]


@compiled
def _insert(values: Ints, count: int, value: int) -> int:
    """Insert a value among the first `count` of some values, which ascend, and return its place.

    A device has few operations in a period, and Numba's functions for sorting take seconds to compile.
    """
    place = count
    while place > 0 and values[place - 1] > value:
        values[place] = values[place - 1]
        place -= 1
    values[place] = value
    return place


@compiled_with_arrays
def _free_place(placed: Ints, period: int, arrival: int, ticks: int, still: Ints) -> int:
    """Return the first free start from `arrival` on for an operation of `ticks`, `_NEVER` if there is none.

    A start counts as free only if the operations still to be placed, of the durations `still`, then fit into
    the gaps. Only starts at the arrival, or directly before or after a placed operation, are tried.
    """
    times = np.empty(2 * len(placed) + 1, np.int64)
    times[0] = arrival
    for k in range(len(placed)):
        after, before = placed[k, START] + placed[k, TICKS], placed[k, START] - ticks
        _insert(times, 2 * k + 1, arrival + (after - arrival) % period)
        _insert(times, 2 * k + 2, arrival + (before - arrival) % period)
    for k in range(len(times)):
        time = int(times[k])
        if _is_free(placed, period, time, ticks) and _leaves_room(placed, period, time, ticks, still):
            return time
    return _NEVER


@compiled_with_arrays
def _is_free(placed: Ints, period: int, time: int, ticks: int) -> bool:
    for k in range(len(placed)):
        after = (placed[k, START] - time) % period
        if after < ticks or after + placed[k, TICKS] > period:
            return False
    return ticks <= period


@compiled_with_arrays
def _leaves_room(placed: Ints, period: int, time: int, ticks: int, still: Ints) -> bool:
    """Return whether the durations `still` fit into the gaps that an operation at `time` leaves.

    The operation takes `ticks`. Each duration in turn, the longest first, goes into the smallest gap that
    holds it.
    """
    count = len(placed)
    begin, length = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    begin[0], length[0] = time % period, ticks
    for k in range(count):
        place = _insert(begin, k + 1, placed[k, START] % period)
        for later in range(k + 1, place, -1):
            length[later] = length[later - 1]
        length[place] = placed[k, TICKS]
    gaps = np.empty(count + 1, np.int64)
    for k in range(count + 1):
        gaps[k] = (begin[(k + 1) % (count + 1)] - begin[k] - 1) % period + 1 - length[k]
    for i in range(len(still) - 1, -1, -1):
        needed = still[i]
        smallest = _NEVER
        for k in range(count + 1):
            if gaps[k] >= needed and (smallest == _NEVER or gaps[k] < gaps[smallest]):
                smallest = k
        if smallest == _NEVER:
            return False
        gaps[smallest] -= needed
    return True


@compiled_with_arrays
def _keeps_within_limits(body: Body, period: int, start: Ints) -> bool:
    """Return whether no device ever holds more than its limit when the starts repeat after every period.

    The memory of a device is largest when an F starts, so the memory is computed at the start of the F's of
    microbatch 0 of each class. The microbatches of each class repeat without end, so there are some before
    microbatch 0. They have the numbers -1, -2 and so on.

    An operation of microbatch 0 changes the memory at the tick `since`: an F at its start, a B or W at its
    end. By the tick `now`, the same operation has changed the memory for all microbatches of its class up to
    number k = (now - since) // period. A microbatch before 0 that has run everything holds nothing, because
    the deltas of a stage add up to 0. So the delta of the operation counts k + 1 times: once for each
    microbatch from 0 to k, or, if k is below -1, once negatively for each microbatch from k + 1 to -1.
    """
    for first in range(len(body.nodes)):
        device, now, held = body.nodes[first].device, start[first], 0
        if body.nodes[first].kind == _F:
            for node in range(len(body.nodes)):
                other = body.nodes[node]
                if other.device == device:
                    since = start[node] + (0 if other.kind == _F else other.duration)
                    held += other.delta * ((now - since) // period + 1)
            if held > body.devices[device].limit:
                return False
    return True
