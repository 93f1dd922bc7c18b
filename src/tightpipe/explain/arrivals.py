"""What each operation of a schedule needs, and when it is there."""

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
    """The input of every operation, by row of the order; all arrays of shape (N,), times in ticks.

    Parameters
    ----------
    source
        Row of the operation whose result it needs, `NOTHING` for the first F of a microbatch.
    ended
        When that operation ends; 0 where there is none, as for the other two.
    left
        When the result leaves: at once, or when the link from its device is free.
    arrived
        When it is there: that and the communication time.
    """

    source: Ints
    ended: Ints
    left: Ints
    arrived: Ints


def arrivals(schedule: Schedule) -> Arrivals:
    """Return when the inputs of a valid schedule's operations arrive, at the times that it has."""
    t = arrays_of(schedule.instance)
    kind, stage, microbatch = schedule.order.operations.T
    route = t.route[microbatch]
    sent = departures(
        schedule.end,
        schedule.order.offsets,
        t.peer[kind, route, stage],
        schedule.instance.costs.link_occupancy,
    )
    source = _sources(schedule)
    needs = source != NOTHING
    ended = np.where(needs, schedule.end[source], 0)
    crosses = needs & (kind != OpKind.W)  # W and the turning point stay on their device
    left = np.where(crosses, sent[source], ended)
    return Arrivals(source, ended, left, left + t.lag[kind, route, stage])


def _sources(schedule: Schedule) -> Ints:
    """Return the row of the operation that each one needs."""
    instance = schedule.instance
    kind, stage, microbatch = schedule.order.operations.T
    # one stage more on both sides, where nothing runs
    rows = np.full((len(OpKind), instance.stages + 2, instance.microbatches), NOTHING)
    rows[kind, stage + 1, microbatch] = np.arange(len(kind))
    f, b, _, fused = rows
    previous, own = f[stage, microbatch], f[stage + 1, microbatch]
    following = np.maximum(b[stage + 2, microbatch], fused[stage + 2, microbatch])  # one of them is there
    backward = np.where(stage == instance.stages - 1, own, following)
    return np.select([kind == OpKind.F, kind == OpKind.W], [previous, b[stage + 1, microbatch]], backward)
