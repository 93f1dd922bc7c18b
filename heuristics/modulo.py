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

from tightpipe.base.errors import NoScheduleError
from tightpipe.kernels.arrays import Ints
from tightpipe.model.graph_arrays import GraphArrays, arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.params.search import ModuloParams
from tightpipe.params.solve_params import DEFAULTS, SolveParams

from .block_runs import cheapest_run
from .family import refuse_infeasible, within_limits
from .modulo_kernel import Body, placed_within_limits


def modulo_order(instance: Instance, params: SolveParams = DEFAULTS) -> Order:
    """Return an order in which every microbatch runs one period later than the one before it in its class.

    Where fused backwards save time, the sequences of F's and B's run again, as those of `greedy-v` do.

    The period is the shortest one found at which every device keeps within its memory limit. Raise an
    InfeasibleError if the instance has no schedule. Raise a NoScheduleError if no period was found within the
    memory limits.
    """
    refuse_infeasible(instance)
    graph = arrays_of(instance)
    order = within_limits(instance, "modulo", _unrolled(graph, *_shortest(graph, params.modulo)))
    return cheapest_run(instance, [order], params.v_blocks)


def _shortest(graph: GraphArrays, params: ModuloParams) -> tuple[int, Ints]:
    """Return the shortest period found within the memory limits, and the start of each node, all in ticks."""
    work = int(np.bincount(graph.nodes["device"], graph.nodes["duration"]).max())
    alone, body = _alone(graph), _body(graph)
    short, period, step = work, work, params.first_step
    start = _placed(body, period)
    while not len(start):
        if period > alone:
            raise NoScheduleError("modulo found no period within the memory limits")
        short, period, step = period, int(period * (1 + step)) + 1, 2 * step
        start = _placed(body, period)
    for _ in range(params.halvings):
        middle = (short + period) // 2
        found = _placed(body, middle)
        if len(found):
            period, start = middle, found
        else:
            short = middle
    return period, start


def _alone(graph: GraphArrays) -> int:
    """Return a period with which no two microbatches overlap, even one of each class, in ticks."""
    classes = graph.node.shape[1]
    ticks = np.bincount(graph.nodes["mb_class"], graph.nodes["duration"], classes)
    reached = graph.nodes["mb_class"][graph.edges["after"]]
    of_class = ticks + np.bincount(reached, graph.edges["lag"], classes)
    return int(classes * of_class.max())


def _body(graph: GraphArrays) -> Body:
    """Return what repeats: F's along the model, then B's back along it, and then W's; classes take turns."""
    nodes = graph.nodes
    along = np.where(nodes["kind"] == OpKind.F, 1, -1) * nodes["stage"]
    return Body(nodes, graph.edges, graph.devices, np.lexsort((nodes["mb_class"], along, nodes["kind"])))


def _placed(body: Body, period: int) -> Ints:
    """Return starts that repeat after every period, as `placed_within_limits` does.

    The classes begin together. If memory does not suffice for that, they begin evenly spread over the period.
    """
    classes = int(body.nodes["mb_class"].max()) + 1
    start = placed_within_limits(body, np.zeros(classes, np.int64), period)
    if len(start) or classes == 1:
        return start
    return placed_within_limits(body, np.arange(classes) * period // classes, period)


def _unrolled(graph: GraphArrays, period: int, start: Ints) -> Order:
    """Return the order in which the k-th microbatch of each class runs `k * period` ticks after its 0th.

    `start` has the start of one operation of each node in ticks.
    """
    nodes, devices = graph.nodes, np.arange(len(graph.devices) + 1)
    by_kind = np.lexsort((nodes["mb_class"], nodes["stage"], nodes["kind"]))  # how ties are broken
    node = np.repeat(by_kind, nodes["count"][by_kind])
    rank = np.concatenate([np.arange(count) for count in nodes["count"][by_kind]])
    sequence = np.lexsort((start[node] + period * rank, nodes["device"][node]))
    node, rank = node[sequence], rank[sequence]
    microbatch = np.zeros((graph.node.shape[1], len(graph.rank)), np.int64)
    microbatch[graph.mb_class, graph.rank] = np.arange(len(graph.rank))
    operations = nodes["kind"][node], nodes["stage"][node], microbatch[nodes["mb_class"][node], rank]
    return Order(np.stack(operations, axis=1), np.searchsorted(nodes["device"][node], devices))
