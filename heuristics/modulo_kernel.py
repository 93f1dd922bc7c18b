"""Compiled loops that find start times that can repeat after every period, of a few microbatches.

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
    """What repeats after every period: one operation of each node.

    A *class* here is what repeats as one microbatch does. It has the parts of the graph that the loops of
    this module read, because passing all of the graph to a loop takes longer than the loop itself on small
    instances.
    """

    nodes: Records  # of the graph
    edges: Records
    devices: Records
    sequence: Ints  # all nodes, in the sequence in which they are placed: each after those that it waits for


@compiled_with_arrays
def placed_within_limits(body: Body, release: Ints, period: int) -> Ints:
    """Return starts in ticks that can repeat after each period, of one operation of each node.

    Every operation is placed as early as possible. The result is empty if some operation has no free place in
    the period, or if the memory of a device does not suffice.

    - `body`: what is placed.
    - `release`: tick from which the first operation of each class can start.
    - `period`: the period in ticks.
    """
    start = np.zeros(len(body.nodes), np.int64)
    count = np.zeros(len(body.devices), np.int64)
    for node in range(len(body.nodes)):
        count[body.nodes[node].device] += 1
    most = count.max()
    own = np.zeros((len(body.devices), most), np.int64)  # nodes of each device, as they are placed
    placed = np.zeros((len(body.devices), most, 2), np.int64)
    still = np.zeros((len(body.devices), most), np.int64)  # durations to be placed, the shortest first
    count[:] = 0
    for node in range(len(body.nodes)):
        device = body.nodes[node].device
        _insert(still[device], count[device], body.nodes[node].duration)
        count[device] += 1
    left = count.copy()
    count[:] = 0
    for node in body.sequence:
        device, ticks = body.nodes[node].device, body.nodes[node].duration
        _remove(still[device], left[device], ticks)
        left[device] -= 1
        arrival = _arrival(body, node, release, start)
        later = still[device, : left[device]]
        time = _free_place(placed[device, : count[device]], period, arrival, ticks, later)
        if time == _NEVER:
            return start[:0]
        start[node] = time
        own[device, count[device]] = node
        placed[device, count[device], START] = time
        placed[device, count[device], TICKS] = ticks
        count[device] += 1
    for device in range(len(body.devices)):
        if not _keeps_within_limit(body, device, own[device, : count[device]], period, start):
            return start[:0]
    return start


@compiled_with_arrays
def _arrival(body: Body, node: int, release: Ints, start: Ints) -> int:
    """Return the tick from which an operation can start, given the starts of those that it waits for."""
    mine = body.nodes[node]
    arrival = release[mine.mb_class] if mine.begin == mine.end else 0
    for e in range(mine.begin, mine.end):
        edge = body.edges[e]
        arrival = max(arrival, start[edge.before] + body.nodes[edge.before].duration + edge.lag)
    return int(arrival)


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


@compiled
def _remove(values: Ints, count: int, value: int) -> None:
    """Remove a value that is among the first `count` of some values, which ascend."""
    place = 0
    while values[place] != value:
        place += 1
    for later in range(place + 1, count):
        values[later - 1] = values[later]


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
def _keeps_within_limit(body: Body, device: int, own: Ints, period: int, start: Ints) -> bool:
    """Return whether a device never holds more than its limit when the starts repeat after every period.

    The memory of a device is largest when an F starts, so the memory is computed at the start of the F's of
    microbatch 0 of each class. The microbatches of each class repeat without end, so there are some before
    microbatch 0. They have the numbers -1, -2 and so on. The nodes of the device are `own`.

    An operation of microbatch 0 changes the memory at the tick `since`: an F at its start, a B or W at its
    end. By the tick `now`, the same operation has changed the memory for all microbatches of its class up to
    number k = (now - since) // period. A microbatch before 0 that has run everything holds nothing, because
    the deltas of a stage add up to 0. So the delta of the operation counts k + 1 times: once for each
    microbatch from 0 to k, or, if k is below -1, once negatively for each microbatch from k + 1 to -1.
    """
    for first in own:
        now, held = start[first], 0
        if body.nodes[first].kind == _F:
            for node in own:
                other = body.nodes[node]
                since = start[node] + (0 if other.kind == _F else other.duration)
                held += other.delta * ((now - since) // period + 1)
            if held > body.devices[device].limit:
                return False
    return True
