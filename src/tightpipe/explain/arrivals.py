"""The input that each operation of a schedule needs, and the time at which this input arrives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.inputs import NOTHING, inputs_of
from ..core.schedule import Schedule
from ..kernels.arrays import Ints
from .arrivals_kernel import departures


@dataclass(frozen=True, eq=False, slots=True)
class Arrivals:
    """The input of every operation of an order; all arrays have the shape (N,), with an entry per row.

    A row is the index of an operation in the order, counted over all devices.

    Parameters
    ----------
    source
        Row of the operation whose result the operation needs; `NOTHING` for the first F of a microbatch.
    ended
        Time in ticks at which the source ends; 0 where there is no source, as in the next two arrays.
    left
        Time in ticks at which the result leaves the source's device: when the source ends or, if the link is
        still busy then, when the link is free.
    arrived
        Time in ticks at which the result arrives, after the communication time.
    """

    source: Ints
    ended: Ints
    left: Ints
    arrived: Ints


def arrivals(schedule: Schedule) -> Arrivals:
    """Return the source and the arrival time of the input of each operation of a valid schedule."""
    inputs = inputs_of(schedule.instance, schedule.order)
    occupancy = schedule.instance.costs.link_occupancy
    sent = departures(schedule.end, schedule.order.offsets, inputs.receiver, occupancy)
    ended = np.where(inputs.source == NOTHING, 0, schedule.end[inputs.source])
    left = np.where(inputs.message, sent[inputs.source], ended)
    return Arrivals(inputs.source, ended, left, left + inputs.lag)
