"""Which later operation of a device could have run in one of its gaps, and what kept it out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..compiled import compiled_with_arrays
from ..schedule import Ints, Schedule
from ..simulate import memory_trace
from ..tables import tables
from .arrivals import NOTHING, Arrivals


class Fillers(NamedTuple):
    """For each gap what else the device could have done; arrays of shape (gaps,), rows or `NOTHING`."""

    fits: Ints  #: row of the first operation that only the device's order keeps out
    fits_from: Ints  #: from when on it could run and end before the gap does, in ticks
    allowed_from: Ints  #: when the first operation is ready that the limit allows, whether it fits or not
    blocked: Ints  #: row of the first F that is ready and that the memory limit keeps out
    blocked_from: Ints  #: when it is ready
    frees: Ints  #: row of the operation after whose end there is memory for it


def fillers(schedule: Schedule, inputs: Arrivals, heads: Ints, opens: Ints) -> Fillers:
    """Look for operations that could run in the gaps before the rows `heads`.

    While a device is idle nothing frees its memory, so the next operation of its order never waits for
    memory. What the limit keeps out is a later F: run in the gap, it adds to all that the device holds
    from there to its own place in the order.

    Parameters
    ----------
    schedule
        A valid schedule.
    inputs
        Its arrivals.
    heads
        Rows of the operations before which their device is idle, shape (gaps,).
    opens
        When the gaps begin, in ticks, shape (gaps,); they end with the starts of `heads`.
    """
    instance, order = schedule.instance, schedule.order
    t = tables(instance)
    device = np.searchsorted(order.offsets, heads, side="right") - 1
    iteration = np.array([instance.iteration(m) for m in range(instance.microbatches)])
    kind, stage, microbatch = order.operations.T
    found = _search(
        *(heads, opens, order.offsets[device + 1], t.limit[device]),
        *(schedule.start, schedule.end, order.pairs, inputs.arrived),
        *(t.delta[kind, stage], memory_trace(instance, order), iteration[microbatch]),
        instance.flush,
    )
    return Fillers(*found)


@compiled_with_arrays
def _search(
    heads: Any,
    opens: Any,
    stops: Any,
    limits: Any,
    start: Any,
    end: Any,
    joined: Any,
    arrived: Any,
    delta: Any,
    during: Any,
    iteration: Any,
    flush: bool,
) -> Any:
    fits, blocked, frees = np.full((3, len(heads)), NOTHING, np.int64)
    fits_from, allowed_from, blocked_from = start[heads], start[heads], start[heads]
    for g in range(len(heads)):
        head, closes = heads[g], start[heads[g]]
        peak = during[head]  # of what runs between the gap and row j
        for j in range(head + 1, stops[g]):
            if flush and iteration[j] != iteration[head]:
                break
            ready = max(opens[g], arrived[j])
            if ready < closes and joined[j] == 0 and joined[j - 1] == 0:
                if delta[j] > 0 and limits[g] >= 0 and peak + delta[j] > limits[g]:
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
def _last_above(during: Any, first: int, stop: int, room: int) -> int:
    """Return the last row before `stop` while which the memory is above `room`."""
    for row in range(stop - 1, first - 1, -1):
        if during[row] > room:
            return row
    return first
