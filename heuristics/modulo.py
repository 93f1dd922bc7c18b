"""Modulo scheduling: the operations of a few microbatches get start times, which repeat after every period.

The method comes from compilers, where the instructions of a loop's body are placed so that a new iteration
begins every few cycles: Rau, "Iterative Modulo Scheduling", MICRO 1994. Here a microbatch of each class takes
the part of a loop iteration, and the memory of a device takes the part of the registers. After its inputs
have arrived, an operation starts at the first time that is free in every period, so activations are held for
a short time.

Several microbatches of each class in one period, its *copies*, often take less time each than one. In the V
placement, F's on their way to the last device meet F's on their way back, on one device after the other. Let
an F take f ticks and a message c. Per device, the two come 2 (f + c) ticks closer in time, and on a device
they are at least f apart. So they meet without waiting if they are f to f + 2c apart on some device, and an F
meets all others without waiting only if the times between those are multiples of 2 (f + c), up to 2c ticks.
Waiting holds memory. With one copy, the time in question is the period. With two copies and f = b = 2w, it
can be 8 f and 12 f in turn, at a period of 20 f for both, which is the work of a device. So the copies begin
at several shares of the period, and the best of these is found by trial.

The heuristic searches for the smallest period at which every device keeps within its memory limit, in tenths
of a second on 8 to 32 devices. The method `block` searches with CP-SAT for the least period, and takes
seconds to minutes. In up to a thousand tries with one copy, letting random operations skip one or two free
places did not give shorter periods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from tightpipe.base.errors import NoScheduleError
from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.model.graph_arrays import GraphArrays, arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.params.search import ModuloParams
from tightpipe.params.solve_params import DEFAULTS, SolveParams

from .block_runs import cheapest_run
from .family import refuse_infeasible, within_limits
from .modulo_kernel import Body, placed_within_limits


@dataclass(frozen=True, slots=True)
class _Repeated:
    """Starts that can repeat after every period, in ticks."""

    period: int
    start: Ints  #: shape (copies, nodes): of one operation of each node and copy


def modulo_order(instance: Instance, params: SolveParams = DEFAULTS) -> Order:
    """Return an order in which every few microbatches of a class run one period later than those before them.

    Where fused backwards save time, the sequences of F's and B's run again, as those of `greedy-v` do.

    The period is the shortest one found at which every device keeps within its memory limit. Raise an
    InfeasibleError if the instance has no schedule. Raise a NoScheduleError if no period was found within the
    memory limits.
    """
    refuse_infeasible(instance)
    graph = arrays_of(instance)
    alone = _shortest_alone(graph, params.modulo)
    found = [alone, *_shorter(graph, alone, params.modulo)]
    orders = [_unrolled(graph, one, skipped) for one in found for skipped in range(len(one.start))]
    return cheapest_run(
        instance, [within_limits(instance, "modulo", each) for each in orders], params.v_blocks
    )


def _work(graph: GraphArrays) -> int:
    return int(np.bincount(graph.nodes["device"], graph.nodes["duration"]).max())


def _shortest_alone(graph: GraphArrays, params: ModuloParams) -> _Repeated:
    """Return the shortest period found for one microbatch of each class."""
    work, longest, classes = _work(graph), _alone(graph), graph.node.shape[1]
    # The classes begin together. If memory does not suffice for that, they begin evenly spread.
    shares = np.unique(np.outer((0, 1), np.arange(classes) / classes), axis=0)
    place = partial(_placed, _body(graph, 1), shares=shares)
    short, period, step = work, work, params.first_step
    start = place(period)
    while start is None:
        if period > longest:
            raise NoScheduleError("modulo found no period within the memory limits")
        short, period, step = period, int(period * (1 + step)) + 1, 2 * step
        start = place(period)
    known = _Repeated(period, start[None])
    return _bisected(known, short, params.halvings, place) or known


def _shorter(graph: GraphArrays, alone: _Repeated, params: ModuloParams) -> Iterator[_Repeated]:
    """Yield, for each number of copies, what takes less time for a microbatch than those one by one."""
    for copies in params.copies:
        shares = np.repeat(_shares(copies, params.tries), graph.node.shape[1], axis=1)
        place = partial(_placed, _body(graph, copies), shares=shares)
        known = _Repeated(copies * alone.period, np.tile(alone.start, (copies, 1)))
        found = _bisected(known, copies * _work(graph) - 1, params.halvings, place)
        if found is not None:
            yield found


def _bisected(
    known: _Repeated, short: int, halvings: int, place: Callable[[int], Ints | None]
) -> _Repeated | None:
    """Return starts with the shortest period found between one that is too short and a known one, if any."""
    period, found = known.period, None
    for _ in range(halvings):
        middle = (short + period) // 2
        start = place(middle)
        if start is None:
            short = middle
        else:
            period, found = middle, _Repeated(middle, start.reshape(known.start.shape))
    return found


def _shares(copies: int, tries: int) -> Floats:
    """Return at which shares of the period the copies begin, shape (tries, copies).

    The shares of one copy after the other fill the unit cube evenly, as in a Kronecker sequence.
    """
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / copies)  # tends to the root of x ** copies = x + 1
    steps = np.array([0.0, *(root**-copy for copy in range(1, copies))])
    shares: Floats = np.arange(1, tries + 1)[:, None] * steps % 1.0
    return shares


def _alone(graph: GraphArrays) -> int:
    """Return a period with which no two microbatches overlap, even one of each class, in ticks."""
    classes = graph.node.shape[1]
    ticks = np.bincount(graph.nodes["mb_class"], graph.nodes["duration"], classes)
    reached = graph.nodes["mb_class"][graph.edges["after"]]
    of_class = ticks + np.bincount(reached, graph.edges["lag"], classes)
    return int(classes * of_class.max())


def _body(graph: GraphArrays, copies: int) -> Body:
    """Return what repeats: F's along the model, then B's back along it, and then W's.

    Classes take turns, and copies do. Each copy has classes of its own.
    """
    nodes, edges = np.tile(graph.nodes, copies), np.tile(graph.edges, copies)
    own, copy = np.arange(len(nodes)) % len(graph.nodes), np.arange(len(nodes)) // len(graph.nodes)
    nodes["mb_class"] += copy * graph.node.shape[1]
    nodes["begin"] += copy * len(graph.edges)
    nodes["end"] += copy * len(graph.edges)
    edges["before"] += np.arange(len(edges)) // len(graph.edges) * len(graph.nodes)
    along = np.where(nodes["kind"] == OpKind.F, 1, -1) * nodes["stage"]
    keys = copy, graph.nodes["mb_class"][own], along, nodes["kind"]
    return Body(nodes, edges, graph.devices, np.lexsort(keys))


def _placed(body: Body, period: int, shares: Floats) -> Ints | None:
    """Return starts that repeat after every period, or None; classes begin at one row of these shares."""
    for row in shares:
        start = placed_within_limits(body, (row * period).astype(np.int64), period)
        if len(start):
            return start
    return None


def _unrolled(graph: GraphArrays, found: _Repeated, skipped: int) -> Order:
    """Return the order in which each period runs the next microbatches of each class.

    The first of them is of copy number `skipped`. The operations of a node run first in, first out, which
    holds no more memory, as microbatches of a class are alike.
    """
    nodes, devices, copies = graph.nodes, np.arange(len(graph.devices) + 1), len(found.start)
    begin = found.start + found.period * (np.arange(copies) < skipped)[:, None]
    periods = np.arange(-(-int(nodes["count"].max()) // copies)) * found.period
    times = np.sort((begin.T[:, :, None] + periods).reshape(len(nodes), -1), axis=1)
    by_kind = np.lexsort((nodes["mb_class"], nodes["stage"], nodes["kind"]))  # how ties are broken
    node = np.repeat(by_kind, nodes["count"][by_kind])
    rank = np.concatenate([np.arange(count) for count in nodes["count"][by_kind]])
    sequence = np.lexsort((times[node, rank], nodes["device"][node]))
    node, rank = node[sequence], rank[sequence]
    microbatch = np.zeros((graph.node.shape[1], len(graph.rank)), np.int64)
    microbatch[graph.mb_class, graph.rank] = np.arange(len(graph.rank))
    operations = nodes["kind"][node], nodes["stage"][node], microbatch[nodes["mb_class"][node], rank]
    return Order(np.stack(operations, axis=1), np.searchsorted(nodes["device"][node], devices))
