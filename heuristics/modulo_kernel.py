"""Compiled loops that find start times of one microbatch's operations that can repeat after every period.

All times are in ticks. An operation that starts at s starts again at s plus each multiple of the period. So
whether two operations of a device collide depends only on their durations and on the remainders of their
starts on division by the period. An array `placed` has a row for each operation of one device whose start has
been found, in the sequence in which the starts were found. The columns are `START`, a start that may lie in
any period, and `TICKS`, the duration.
"""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled_with_arrays

from .stage_costs import StageCosts

START, TICKS = range(2)
_F, _B, _W = range(3)
_NEVER = -1


@compiled_with_arrays
def placed_within_limits(route: StageCosts, period: int) -> Ints:
    """Return starts in ticks of one microbatch's operations that can repeat after each period.

    The F's are placed along the route, then the B's back along it, and then every W after its B, each as
    early as possible. The shape is (3, stages). The array is empty if some operation has no free place in the
    period, or if the memory of a device does not suffice.
    """
    stages, devices = len(route.device), len(route.limit)
    start = np.zeros((3, stages), np.int64)
    placed = np.zeros((devices, 3 * stages, 2), np.int64)
    count = np.zeros(devices, np.int64)
    arrival = 0
    for i in range(3 * stages):
        kind, stage = _step(i, stages)
        device, ticks = route.device[stage], route.duration[kind, stage]
        if kind == _W:
            arrival = start[_B, stage] + route.duration[_B, stage]
        else:
            arrival += route.lag[kind, stage]
        still = _still_to_come(route, i, device)
        time = _free_place(placed[device, : count[device]], period, arrival, ticks, still)
        if time == _NEVER:
            return start[:0]
        start[kind, stage] = time
        placed[device, count[device], START] = time
        placed[device, count[device], TICKS] = ticks
        count[device] += 1
        arrival = time + ticks
    return start if _keeps_within_limits(route, period, start) else start[:0]


@compiled_with_arrays
def _step(i: int, stages: int) -> tuple[int, int]:
    """Return kind and stage of the operation that is placed as number `i`, counted from 0."""
    if i < stages:
        return _F, i
    if i < 2 * stages:
        return _B, 2 * stages - 1 - i
    return _W, 3 * stages - 1 - i


@compiled_with_arrays
def _still_to_come(route: StageCosts, i: int, device: int) -> Ints:
    """Return the durations of a device's operations that are placed after number `i`, the longest first."""
    stages = len(route.device)
    ticks = np.zeros(3 * stages, np.int64)
    count = 0
    for later in range(i + 1, 3 * stages):
        kind, stage = _step(later, stages)
        if route.device[stage] == device:
            ticks[count] = route.duration[kind, stage]
            count += 1
    return np.sort(ticks[:count])[::-1]


@compiled_with_arrays
def _free_place(placed: Ints, period: int, arrival: int, ticks: int, still: Ints) -> int:
    """Return the first free start from `arrival` on for an operation of `ticks`, `_NEVER` if there is none.

    A start counts as free only if the operations still to be placed, of the durations `still`, then fit into
    the gaps. Only starts at the arrival, or directly before or after a placed operation, are tried.
    """
    times = np.empty(2 * len(placed) + 1, np.int64)
    times[-1] = arrival
    for k in range(len(placed)):
        times[2 * k] = arrival + (placed[k, START] + placed[k, TICKS] - arrival) % period
        times[2 * k + 1] = arrival + (placed[k, START] - ticks - arrival) % period
    times.sort()
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

    The operation takes `ticks`. Each duration in turn goes into the smallest gap that holds it.
    """
    count = len(placed)
    begin, length = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    begin[count], length[count] = time % period, ticks
    for k in range(count):
        begin[k], length[k] = placed[k, START] % period, placed[k, TICKS]
    order = np.argsort(begin)
    gaps = np.empty(count + 1, np.int64)
    for k in range(count + 1):
        this, following = order[k], order[(k + 1) % (count + 1)]
        gaps[k] = (begin[following] - begin[this] - 1) % period + 1 - length[this]
    for needed in still:
        smallest = _NEVER
        for k in range(count + 1):
            if gaps[k] >= needed and (smallest == _NEVER or gaps[k] < gaps[smallest]):
                smallest = k
        if smallest == _NEVER:
            return False
        gaps[smallest] -= needed
    return True


@compiled_with_arrays
def _keeps_within_limits(route: StageCosts, period: int, start: Ints) -> bool:
    """Return whether no device ever holds more than its limit when the starts repeat after every period.

    The memory of a device is largest when an F starts, so the memory is computed at the start of each F of
    microbatch 0. The microbatches repeat without end, so there are some before microbatch 0. They have the
    numbers -1, -2 and so on.

    An operation of microbatch 0 changes the memory at the tick `since`: an F at its start, a B or W at its
    end. By the tick `now`, the same operation has changed the memory for all microbatches up to number
    k = (now - since) // period. A microbatch before 0 that has run everything holds nothing, because the
    deltas of a stage add up to 0. So the delta of the operation counts k + 1 times: once for each microbatch
    from 0 to k, or, if k is below -1, once negatively for each microbatch from k + 1 to -1.
    """
    stages = len(route.device)
    for first in range(stages):
        limit = route.limit[route.device[first]]
        now, held = start[_F, first], 0
        for stage in range(stages):
            if route.device[stage] == route.device[first]:
                for kind in range(3):
                    since = start[kind, stage] + (0 if kind == _F else route.duration[kind, stage])
                    held += route.delta[kind, stage] * ((now - since) // period + 1)
        if held > limit:
            return False
    return True
