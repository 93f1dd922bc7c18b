"""Memory-aware list scheduling: an order for every placement, at every limit that has a schedule.

Time is simulated event by event. Whenever a device is free it starts, among its ready operations, the
one that a priority rule puts first: a B, an F, or a W to fill a gap or to free memory. Several rules
are tried and the order of least cost is kept. The microbatches of a stage run first in, first out.

No deadlock. Rank the microbatches in one order for all devices. On a device, let h[j] be the memory
that microbatch j holds until its B's end there, r[j] what its F's still to come there take, and call
the device *safe* if the limit minus the sum of all h covers r of the oldest unfinished microbatch;
with h of the oldest added, r of the next; and so on. (Memory of a pending W does not count: the W's
input is there, so it can run at once.) An empty device is safe exactly when the limit is at least
`Instance.smallest_limit`. An F starts only if the device is safe afterwards (the banker's rule). An F
of the oldest microbatch keeps it safe: h and r change by the same amount; so do B and W, which only
free memory. Now let j be the oldest microbatch that is unfinished anywhere. On each device where it
is unfinished it is the oldest there and first in its queues, so its next operation, once ready, may
start, after the device's pending W's if need be. Hence some operation can always start, until all
have run. Waiting rules do not change this: a device waits only for an arrival that is already known.

Sources: the rule for safe states is Dijkstra's banker's algorithm (EWD 108, 1964); list scheduling is
Graham's (1966). Filling gaps with W's: Qi et al., "Zero Bubble Pipeline Parallelism", arXiv:2401.10241.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import NamedTuple

import numpy as np

from tightpipe.core.errors import InfeasibleError
from tightpipe.core.instance import Instance, Objective
from tightpipe.core.instance_arrays import arrays_of
from tightpipe.core.metrics import cost
from tightpipe.core.operation import OpKind
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Ints, Records

from .list_kernel import DEVICE, QUEUE, Rule, run_list

_FBW = [OpKind.F, OpKind.B, OpKind.W]
_NO_LIMIT = 2**62
_RETIMED = 2  # so many of the best orders by simulated cost are compared by their exact cost

# alternate, deepest forward, deepest backward, reserve, overrun, patience: twelve of 216 combinations
# that together came within 2 % of all of them on instances of all placements and limits
RULES = (
    Rule(True, True, True, 1.0, 0.5, 0.0),
    Rule(True, True, False, 0.0, 0.5, 0.5),
    Rule(False, True, False, 0.5, 0.0, 0.5),
    Rule(True, True, True, 0.5, 0.0, 0.0),
    Rule(False, True, True, 0.0, 0.5, 0.0),
    Rule(False, True, False, 1.0, 0.0, 0.5),
    Rule(False, True, False, 0.5, 0.5, 0.5),
    Rule(True, True, True, 0.0, 0.0, 0.5),
    Rule(False, True, False, 0.5, 0.0, 0.0),
    Rule(False, False, False, 1.0, 0.0, 0.0),
    Rule(False, True, False, 0.0, 1.0, 0.0),
    Rule(True, True, False, 1.0, 0.5, 0.0),
)
"""The priority rules that are tried."""


class _Run(NamedTuple):
    order: Order
    cost: int  # of the simulated times, in ticks


class _Problem(NamedTuple):
    """The instance as records, before any operation is started."""

    queues: Records
    devices: Records
    local: Ints


def list_order(instance: Instance) -> Order:
    """Return the best order that list scheduling finds; there always is one.

    Raises
    ------
    InfeasibleError
        If the instance has no schedule.
    """
    reason = instance.infeasibility()
    if reason:
        raise InfeasibleError(reason)
    problem = _problem(instance)
    best = nsmallest(_RETIMED, (_run(instance, problem, rule) for rule in RULES), key=lambda run: run.cost)
    return min((run.order for run in best), key=lambda order: cost(retime(instance, order)))


def order_by(instance: Instance, rule: Rule) -> Order:
    """Return the order that one rule gives; the instance must have a schedule."""
    return _run(instance, _problem(instance), rule).order


def _run(instance: Instance, problem: _Problem, rule: Rule) -> _Run:
    queues, devices = problem.queues.copy(), problem.devices.copy()
    routes = len(instance.placement.routes)
    rows = run_list(queues, devices, problem.local, instance.microbatches, routes, rule)
    order = Order(rows, np.arange(len(devices) + 1) * rows.shape[1])
    if instance.objective is Objective.MAKESPAN:
        return _Run(order, int(devices["end"].max()))
    return _Run(order, int((devices["end"] - devices["first"]).max()))


def _problem(instance: Instance) -> _Problem:
    numbers, p, routes = arrays_of(instance), instance.devices, len(instance.placement.routes)
    queues, devices = np.zeros(routes * instance.stages, QUEUE), np.zeros(p, DEVICE)
    queues["home"] = numbers.device.ravel()
    queues["stage"] = np.tile(np.arange(instance.stages), routes)
    queues["route"] = np.repeat(np.arange(routes), instance.stages)
    queues["duration"] = np.tile(numbers.duration[_FBW].T, (routes, 1))
    queues["delta"] = np.tile(numbers.delta[_FBW].T, (routes, 1))
    queues["lag"] = numbers.lag[_FBW].transpose(1, 2, 0).reshape(-1, len(_FBW))
    devices["limit"] = np.where(numbers.limit < 0, _NO_LIMIT, numbers.limit)
    by_home = np.lexsort((queues["route"], queues["stage"], queues["home"]))
    return _Problem(queues, devices, by_home.reshape(p, -1))
