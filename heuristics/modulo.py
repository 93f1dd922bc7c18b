"""Modulo scheduling: the operations of one microbatch get start times, which repeat after every period.

The method comes from compilers, where the instructions of a loop's body are placed so that a new iteration
begins every few cycles: Rau, "Iterative Modulo Scheduling", MICRO 1994. Here a microbatch takes the part of a
loop iteration, and the memory of a device takes the part of the registers. After its inputs have arrived, an
operation starts at the first time that is free in every period, so activations are held for a short time.

The heuristic searches for the smallest period at which every device keeps within its memory limit, which
takes milliseconds. The method `block` searches with CP-SAT for the least period of several microbatches
together, and takes seconds to minutes. In up to a thousand tries, letting random operations skip one or two
free places did not give shorter periods.
"""

from __future__ import annotations

import numpy as np

from tightpipe.core.errors import InfeasibleError, NoScheduleError
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Ints

from .family import within_limits
from .modulo_kernel import placed_within_limits
from .stage_costs import StageCosts, stage_costs

_FBW = [OpKind.F, OpKind.B, OpKind.W]
_FIRST_STEP = 0.01  # share by which the second period tried is longer than the first; doubles each time
_HALVINGS = 5  # bisections between the last period that was too short and the first that was not


def modulo_order(instance: Instance) -> Order:
    """Return an order in which every microbatch runs one period later than the microbatch before.

    The period is the shortest one found at which every device keeps within its memory limit.

    Raises
    ------
    InfeasibleError
        If the instance has no schedule.
    NoScheduleError
        If the placement has several routes, or no period was found within the memory limits.
    """
    reason = instance.infeasibility()
    if reason:
        raise InfeasibleError(reason)
    if len(instance.placement.routes) > 1:
        raise NoScheduleError("modulo is for placements on which all microbatches take one route")
    route = stage_costs(instance)
    period, start = _shortest(route)
    return within_limits(instance, "modulo", _unrolled(instance, route, period, start))


def _shortest(route: StageCosts) -> tuple[int, Ints]:
    """Return the shortest period found, and one microbatch's starts with this period, all in ticks.

    The starts have the shape (3, stages), for F, B and W.

    Raises
    ------
    NoScheduleError
        If no period was found within the memory limits.
    """
    ticks = route.duration.sum(0)
    work = int(np.bincount(route.device, ticks).max())
    alone = int(ticks.sum() + route.lag.sum())  # with this period, microbatches do not overlap
    short, period, step = work, work, _FIRST_STEP
    start = placed_within_limits(route, period)
    while not len(start):
        if period > alone:
            raise NoScheduleError("modulo found no period within the memory limits")
        short, period, step = period, int(period * (1 + step)) + 1, 2 * step
        start = placed_within_limits(route, period)
    for _ in range(_HALVINGS):
        middle = (short + period) // 2
        found = placed_within_limits(route, middle)
        if len(found):
            period, start = middle, found
        else:
            short = middle
    return period, start


def _unrolled(instance: Instance, route: StageCosts, period: int, start: Ints) -> Order:
    """Return the order in which microbatch m runs `m * period` ticks later than microbatch 0.

    `start` has the starts of microbatch 0, in ticks and of shape (3, stages), for F, B and W.
    """
    n, stages = instance.microbatches, instance.stages
    kind, stage, microbatch = (axis.ravel() for axis in np.indices((3, stages, n)))
    device = route.device[stage]
    sequence = np.lexsort((start[kind, stage] + period * microbatch, device))
    operations = np.stack((np.array(_FBW)[kind], stage, microbatch), axis=1)[sequence]
    return Order(operations, np.searchsorted(device[sequence], np.arange(instance.devices + 1)))
