"""Later operations of a device that could have run in a gap, a time in which the device is idle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..core.graph_arrays import arrays_of, deltas_of
from ..core.schedule import Schedule
from ..core.simulate import memory_trace
from ..kernels.arrays import Ints
from .arrivals import Arrivals
from .fillers_kernel import search_gaps


class Fillers(NamedTuple):
    """The operations that could have run in each gap, as arrays of shape (gaps,).

    Rows are indices of operations in the order; where no such operation exists, the row is `NOTHING` and the
    time is the end of the gap. Times are in ticks.
    """

    fits: Ints  #: row of the first operation that could run and end in the gap, if the order had it there
    fits_from: Ints  #: time from which on this operation could run
    allowed_from: Ints  #: time at which the first operation is ready that the memory limit allows to start
    blocked: Ints  #: row of the first F that is ready, but that the memory limit does not allow to start
    blocked_from: Ints  #: time at which this F is ready
    frees: Ints  #: row of the operation after whose end the memory limit would allow this F


def fillers(schedule: Schedule, inputs: Arrivals, heads: Ints, opens: Ints) -> Fillers:
    """Return the operations that could run in the gaps before the rows `heads`.

    While a device is idle, nothing frees its memory, so the next operation of its order never waits for
    memory. A later F may not fit, however: if it ran in the gap, it would add to the memory of all operations
    from there to its own place in the order.

    Parameters
    ----------
    schedule
        A valid schedule.
    inputs
        What `arrivals` returns for the schedule.
    heads
        Rows of the operations that run right after the gaps, shape (gaps,).
    opens
        When the gaps begin, in ticks, shape (gaps,); they end when the rows `heads` start.
    """
    instance, order = schedule.instance, schedule.order
    device = np.searchsorted(order.offsets, heads, side="right") - 1
    iteration = np.array([instance.iteration(m) for m in range(instance.microbatches)])
    microbatch = order.operations[:, 2]
    found = search_gaps(
        *(heads, opens, order.offsets[device + 1], arrays_of(instance).devices["limit"][device]),
        *(schedule.start, schedule.end, order.pairs, inputs.arrived),
        *(deltas_of(instance, order), memory_trace(instance, order), iteration[microbatch]),
        instance.flush,
    )
    return Fillers(*found)
