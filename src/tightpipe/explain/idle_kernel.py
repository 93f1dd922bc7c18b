"""Compiled loops of explanations: when messages leave, and which operations could have run in a gap."""

from __future__ import annotations

import numpy as np

from ..kernels.arrays import Ints
from ..kernels.compiled import compiled_with_arrays
from ..model.graph_arrays import NOTHING
from ..model.simulate_kernel import departure


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
    during: Ints,
    iteration: Ints,
    flush: bool,
) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
    """Return the arrays of `Fillers`, in the same sequence.

    For each gap, `heads` holds the row after it, `opens` its begin, `stops` the end of its device's rows, and
    `limits` the memory limit. For each row of the order, `start` and `end` hold its times,
    `joined` whether it runs together with the next row, `arrived` when its input arrives, `delta` its memory
    delta, `during` the memory of its device while it runs, and `iteration` its iteration. Times are in ticks.
    Rows that run together with another one are left out, and with `flush` also the rows of later iterations.
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
                if delta[j] > 0 and peak + delta[j] > limits[g]:
                    if ready < blocked_from[g]:
                        blocked[g], blocked_from[g] = j, ready
                        frees[g] = _last_above(during, head, j, limits[g] - delta[j])
                else:
                    allowed_from[g] = min(allowed_from[g], ready)
                    if ready + end[j] - start[j] <= closes and ready < fits_from[g]:
                        fits[g], fits_from[g] = j, ready
            peak = max(peak, during[j])
    return fits, fits_from, allowed_from, blocked, blocked_from, frees


@compiled_with_arrays
def _last_above(during: Ints, first: int, stop: int, room: int) -> int:
    """Return the last row before `stop` during which more memory than `room` is held; `first` if none is."""
    for row in range(stop - 1, first - 1, -1):
        if during[row] > room:
            return row
    return first
