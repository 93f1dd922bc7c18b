"""Modulo scheduling: the operations of one microbatch get start times, which repeat after every period.

The method comes from compilers, where the instructions of a loop's body are placed so that a new iteration
begins every few cycles: Rau, "Iterative Modulo Scheduling", MICRO 1994. Here a microbatch of each class takes
the part of a loop iteration, and the memory of a device takes the part of the registers. After its inputs
have arrived, an operation starts at the first time that is free in every period, so activations are held for
a short time.

The heuristic searches for the smallest period at which every device keeps within its memory limit, which
takes milliseconds. The method `block` searches with CP-SAT for the least period of several microbatches
together, and takes seconds to minutes. In up to a thousand tries, letting random operations skip one or two
free places did not give shorter periods.
"""

from __future__ import annotations

import numpy as np

from tightpipe.core.errors import InfeasibleError, NoScheduleError
from tightpipe.core.graph_arrays import GraphArrays, arrays_of
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order
from tightpipe.kernels.arrays import Ints

from .family import within_limits
from .modulo_kernel import placed_within_limits

_FIRST_STEP = 0.01  # share by which the second period tried is longer than the first; doubles each time
_HALVINGS = 5  # bisections between the last period that was too short and the first that was not


def modulo_order(instance: Instance) -> Order:
    """Return an order in which every microbatch runs one period later than the one before it in its class.

    The period is the shortest one found at which every device keeps within its memory limit.

    Raises
    ------
    InfeasibleError
        If the instance has no schedule.
    NoScheduleError
        If no period was found within the memory limits.
    """
    reason = instance.infeasibility()
    if reason:
        raise InfeasibleError(reason)
    graph = arrays_of(instance)
    return within_limits(instance, "modulo", _unrolled(graph, *_shortest(graph)))


def _shortest(graph: GraphArrays) -> tuple[int, Ints]:
    """Return the shortest period found, and the starts of one operation of each node, all in ticks.

    Raises
    ------
    NoScheduleError
        If no period was found within the memory limits.
    """
    work = int(np.bincount(graph.nodes["device"], graph.nodes["duration"]).max())
    alone = _alone(graph)
    short, period, step = work, work, _FIRST_STEP
    start = _placed(graph, period)
    while not len(start):
        if period > alone:
            raise NoScheduleError("modulo found no period within the memory limits")
        short, period, step = period, int(period * (1 + step)) + 1, 2 * step
        start = _placed(graph, period)
    for _ in range(_HALVINGS):
        middle = (short + period) // 2
        found = _placed(graph, middle)
        if len(found):
            period, start = middle, found
        else:
            short = middle
    return period, start


def _alone(graph: GraphArrays) -> int:
    """Return a period with which no two microbatches overlap, in ticks."""
    of_class, reached = graph.nodes["mb_class"], graph.nodes["mb_class"][graph.edges["after"]]
    return int(
        max(
            graph.nodes["duration"][of_class == c].sum() + graph.edges["lag"][reached == c].sum()
            for c in range(_classes(graph))
        )
        * _classes(graph)
    )

import os
VARIANT = int(os.environ.get("VARIANT", "0"))

def _placed(graph: GraphArrays, period: int) -> Ints:
    nodes, c = graph.nodes, _classes(graph)
    kind, stage, cl = nodes["kind"], nodes["stage"], nodes["mb_class"]
    along = np.where(kind == OpKind.F, stage, -stage)
    seq = np.lexsort((cl, along, kind)) if VARIANT % 2 == 0 else np.lexsort((along, kind, cl, kind == OpKind.W))
    release = np.arange(c) * period // c if VARIANT >= 2 else np.zeros(c, np.int64)
    return placed_within_limits(graph, seq, release, period)


def _classes(graph: GraphArrays) -> int:
    return graph.node.shape[1]


def _unrolled(graph: GraphArrays, period: int, start: Ints) -> Order:
    """Return the order in which the k-th microbatch of each class runs `k * period` ticks later than its 0th.

    `start` has the start of the first operation of each node.
    """
    nodes = graph.nodes[np.repeat(np.arange(len(graph.nodes)), graph.nodes["count"])]
    rank = np.arange(len(nodes)) - nodes["first"]
    time = np.repeat(start, graph.nodes["count"]) + period * rank
    of_class = np.argsort(graph.mb_class, kind="stable")
    before = np.searchsorted(graph.mb_class[of_class], nodes["mb_class"])
    microbatch = of_class[before + rank]
    rows = np.stack((nodes["kind"], nodes["stage"], microbatch), axis=1)
    sequence = np.lexsort((*rows.T[::-1], time, nodes["device"]))
    return Order(rows[sequence], np.searchsorted(nodes["device"][sequence], np.arange(len(graph.devices) + 1)))
