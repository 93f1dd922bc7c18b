"""Which later operation of a device could have run in one of its gaps, and what kept it out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.instance_arrays import arrays_of
from ..core.schedule import Schedule
from ..core.simulate import memory_trace
from ..kernels.arrays import Ints
from .arrivals import Arrivals
from .fillers_kernel import search_gaps


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
    t = arrays_of(instance)
    device = np.searchsorted(order.offsets, heads, side="right") - 1
    iteration = np.array([instance.iteration(m) for m in range(instance.microbatches)])
    kind, stage, microbatch = order.operations.T
    found = search_gaps(
        *(heads, opens, order.offsets[device + 1], t.limit[device]),
        *(schedule.start, schedule.end, order.pairs, inputs.arrived),
        *(t.delta[kind, stage], memory_trace(instance, order), iteration[microbatch]),
        instance.flush,
    )
    return Fillers(*found)
