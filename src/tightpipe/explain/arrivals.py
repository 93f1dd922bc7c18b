"""The input that each operation of a schedule needs, and the time at which this input arrives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.instance_arrays import arrays_of
from ..core.operation import OpKind
from ..core.schedule import Schedule
from ..kernels.arrays import Ints
from .arrivals_kernel import NOTHING, departures


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
    numbers = arrays_of(schedule.instance)
    kind, stage, microbatch = schedule.order.operations.T
    route = numbers.route[microbatch]
    sent = departures(
        schedule.end,
        schedule.order.offsets,
        numbers.peer[kind, route, stage],
        schedule.instance.costs.link_occupancy,
    )
    source = _sources(schedule)
    needs = source != NOTHING
    ended = np.where(needs, schedule.end[source], 0)
    crosses = needs & (kind != OpKind.W)  # a W never waits for a message
    left = np.where(crosses, sent[source], ended)
    return Arrivals(source, ended, left, left + numbers.lag[kind, route, stage])


def _sources(schedule: Schedule) -> Ints:
    """Return for each operation the row of the operation whose result it needs, or `NOTHING`."""
    instance = schedule.instance
    kind, stage, microbatch = schedule.order.operations.T
    # The table has one more stage at both ends, where nothing runs.
    rows = np.full((len(OpKind), instance.stages + 2, instance.microbatches), NOTHING)
    rows[kind, stage + 1, microbatch] = np.arange(len(kind))
    f, b, _, fused = rows
    previous, own = f[stage, microbatch], f[stage + 1, microbatch]
    following = np.maximum(b[stage + 2, microbatch], fused[stage + 2, microbatch])  # either B or BW runs
    backward = np.where(stage == instance.stages - 1, own, following)
    return np.select([kind == OpKind.F, kind == OpKind.W], [previous, b[stage + 1, microbatch]], backward)
