"""Compiled loops of explanations: when messages leave, what could have run in a gap, and what it is for."""

from __future__ import annotations

import numpy as np

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled, compiled_with_arrays
from ..model.graph_arrays import NOTHING
from ..model.simulate_kernel import departure

DEPENDENCY, LINK, COMMUNICATION, MEMORY, ORDER, COPY, STAGE, LATE, FINISHED = range(9)
"""The places of the members of `idle.Reason`."""


@compiled_with_arrays
def departures(end: Ints, offsets: Ints, receiver: Ints, occupancy: int) -> Ints:
    """Return when the result of each operation leaves its device, in ticks, shape (N,).

    `end` holds the end of each operation in ticks, and `receiver` the device that it sends its result to, or
    a negative number if no other device needs the result. The rows of device d begin at `offsets[d]`;
    `occupancy` is the link occupancy in ticks.
    """
    devices = len(offsets) - 1
    left = end.copy()
    for device in range(devices):
        last = np.full(devices, -occupancy, np.int64)
        for i in range(offsets[device], offsets[device + 1]):
            left[i] = departure(end[i], receiver[i], last, occupancy)
    return left


@compiled_with_arrays
def search_gaps(
    heads: Ints,
    opens: Ints,
    stops: Ints,
    limits: Ints,
    start: Ints,
    end: Ints,
    joined: Ints,
    arrived: Ints,
    delta: Ints,
    passing: Ints,
    before: Ints,
    during: Ints,
    iteration: Ints,
    flush: bool,
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
    """Return the arrays of `Fillers`, in the same sequence.

    For each gap, `heads` holds the row after it, `opens` its begin, `stops` the end of its device's rows, and
    `limits` the memory limit. For each row of the order, `start` and `end` hold its times,
    `joined` whether it runs together with the next row, `arrived` when its input has arrived and its stage is
    ready, `delta` its memory delta, `passing` the memory that it takes besides while it runs, `before` and
    `during` the memory of its device before it and while it runs, and `iteration` its iteration. Times are in
    ticks. Rows that run together with another one are left out, and with `flush` also the rows of later
    iterations.
    """
    fits, blocked, frees = np.full((3, len(heads)), NOTHING, np.int64)
    fits_from, allowed_from, blocked_from = start[heads], start[heads], start[heads]
    for g in range(len(heads)):
        head, closes = heads[g], start[heads[g]]
        peak = during[head]  # largest memory from row `head` to row j - 1
        for j in range(head + 1, stops[g]):
            if flush and iteration[j] != iteration[head]:
                break
            ready = max(opens[g], arrived[j])
            if ready < closes and joined[j] == 0 and joined[j - 1] == 0:
                # what later rows leave for it, and what there is as long as it runs itself
                room, own = limits[g] - delta[j], limits[g] - delta[j] - passing[j]
                if delta[j] + passing[j] > 0 and (peak > room or before[head] > own):
                    if ready < blocked_from[g]:
                        blocked[g], blocked_from[g] = j, ready
                        frees[g] = _last_full(before, during, head, j, room, own)
                else:
                    allowed_from[g] = min(allowed_from[g], ready)
                    if ready + end[j] - start[j] <= closes and ready < fits_from[g]:
                        fits[g], fits_from[g] = j, ready
            peak = max(peak, during[j])
    return fits, fits_from, allowed_from, blocked, blocked_from, frees


@compiled_with_arrays
def _last_full(before: Ints, during: Ints, first: int, stop: int, room: int, own: int) -> int:
    """Return the last row before `stop` right before which row `stop` would not fit; `first` if none is.

    It fits right before a row if at most `own` is held then, and at most `room` from there to its place.
    """
    for row in range(stop - 1, first - 1, -1):
        if during[row] > room or before[row + 1] > own:
            return row
    return first


@compiled_with_arrays
def cut_gaps(heads: Ints, opens: Ints, closes: Ints, times: Ints) -> tuple[Ints, Ints, Ints]:
    """Cut each gap into pieces where its reason changes: return the gap, begin and reason of each piece.

    Gaps lie from `opens` to `closes` before the rows `heads`. A row of `times` has the ticks that cut the
    gap: those of `Arrivals` without `source` and `copy`, then those of `Fillers`.
    """
    pieces, count = np.empty((len(heads) * (times.shape[1] + 1), 3), np.int64), 0
    for g in range(len(heads)):
        time, before = opens[g], -1
        while time < closes[g]:
            reason = FINISHED if heads[g] == NOTHING else _reason(times[g], time)
            if reason != before:
                pieces[count, 0], pieces[count, 1], pieces[count, 2] = g, time, reason
                count += 1
            before, time = reason, _next_change(times[g], time, closes[g])
    return pieces[:count, 0], pieces[:count, 1], pieces[:count, 2]


@compiled
def _next_change(times: Ints, time: int, end: int) -> int:
    """Return the first of the times after `time`, at most `end`."""
    found = end
    for change in times:
        if time < change < found:
            found = change
    return int(found)


@compiled
def _reason(times: Ints, time: int) -> int:
    """Return the place of the reason for which a device is idle at this time, before its next operation."""
    ended, left, arrived, copied, ready = times[0], times[1], times[2], times[3], times[4]
    fits_from, allowed_from, blocked_from = times[5], times[6], times[7]
    if time >= max(arrived, copied, ready):
        return LATE
    if time >= fits_from:
        return ORDER
    if blocked_from <= time < allowed_from:
        return MEMORY
    if time < ended:
        return DEPENDENCY
    if time < left:
        return LINK
    if time < arrived:
        return COMMUNICATION
    return COPY if time < copied else STAGE
