"""An order with copies as a graph of its rows: which rows each row waits for.

The rows of a device are its *line*: what it computes and what it copies, in one sequence. Operations compute
one after another, in the sequence of the line. So do copies out, and so do copies back; without `duplex` all
copies of a device are one sequence. What takes memory, an F or a copy back, takes it at its start, and
everything else gives memory at its end. A row that takes memory starts no earlier than every row before it in
the line that gives memory has ended. What a device holds so depends on its line and not on the times, and is
the sum over the rows of the line so far, or less.

Nothing is lost by that, for operations that run one by one at stages with a backward. Take any valid schedule
and sort the rows of each device by the times at which they take or give memory, at equal times those first
that give. The times of the schedule keep all rules of this line, and its sums are what the device holds. A
pair of an F and a backward takes memory at its start and gives it at its end, and so does an F that holds
memory only while it runs: a copy back that follows in the line waits for its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..base.errors import InputError
from ..kernels.arrays import Bools, Ints
from .graph_arrays import arrays_of, deltas_of
from .instance import Instance
from .operation import COPIES, OpKind
from .row_graph_kernel import RowGraph
from .schedule import Order
from .simulate_kernel import new_run


class _Waits(NamedTuple):
    """Rows, and a row that each of them waits for; `lag` and `message` as in `RowGraph`."""

    after: Ints
    before: Ints
    lag: Ints
    message: Bools

    @classmethod
    def of(cls, after: Ints, before: Ints) -> _Waits:
        """Return rows that wait for the ends of others on their device."""
        return cls(after, before, np.zeros_like(after), np.zeros(len(after), np.bool_))


def row_graph_of(instance: Instance, order: Order) -> RowGraph:
    """Return the graph of the rows of an order.

    Raise an InputError if the instance does not have an operation or a copy of the order, or if the order has
    one twice.
    """
    _check_copies(instance, order)
    graph, size = arrays_of(instance), len(order)
    kind, stage, _ = order.operations.T
    computing = np.flatnonzero(order.computes)
    run = new_run(graph, order.without_copies())
    nodes = graph.nodes[run.node]
    row_of = np.full(len(graph.items), size)
    row_of[run.item] = computing
    home = np.repeat(np.arange(order.devices), np.diff(order.offsets))
    head = np.arange(size)
    head[1:] -= order.pairs[:-1]

    ticks, ready, passing = np.zeros((3, size), np.int64)
    copied = np.array([[instance.duration(k, s) for s in range(instance.stages)] for k in COPIES])
    copies = np.flatnonzero(~order.computes)
    ticks[copies] = copied[kind[copies] - OpKind.O, stage[copies]]
    ticks[computing], ready[computing], passing[computing] = run.ticks, nodes["ready"], nodes["passing"]

    count = nodes["end"] - nodes["begin"]
    each = np.repeat(np.arange(len(computing)), count)
    edges = graph.edges[nodes["begin"][each] + _places(count)]
    data = row_of[run.item[each] + edges["shift"]]
    waits = [
        _Waits(computing[each], data, edges["lag"], edges["message"] == 1),
        _in_turn(order, head, home, instance.offload is not None and instance.offload.duplex),
        *_memory_waits(order, deltas_of(instance, order), passing),
        *_copy_waits(instance, order, row_of),
    ]
    after, before, lag, message = (np.concatenate(part) for part in zip(*waits, strict=True))
    by_after, by_before = np.argsort(head[after], kind="stable"), np.argsort(before, kind="stable")
    bounds = np.arange(size + 1)
    receiver = np.full(size, -1)
    receiver[computing] = nodes["receiver"]
    return RowGraph(
        begin=np.searchsorted(head[after][by_after], bounds),
        before=before[by_after],
        lag=lag[by_after],
        message=message[by_after],
        follow=head[after][by_before],
        leads=np.searchsorted(before[by_before], bounds),
        head=head,
        joined=order.pairs,
        home=home,
        ticks=ticks,
        ready=ready,
        link=_before_on_link(home, receiver, order.devices),
        occupancy=graph.occupancy,
        first=np.array([computing[home[computing] == d].min(initial=size) for d in range(order.devices)]),
        last=np.array([computing[home[computing] == d].max(initial=-1) for d in range(order.devices)]),
    )


def blocking(graph: RowGraph, row: int, start: Ints) -> int | None:
    """Return the first row of a slot that has not run and that `row` waits for; None if there is none.

    The second row of a pair waits for the first. `start` is negative for rows that have not run.
    """
    if graph.head[row] != row:
        return int(graph.head[row])
    rows = graph.before[graph.begin[row] : graph.begin[row + 1]]
    rows = rows[rows < len(start)]
    blocked = rows[start[rows] < 0]
    return int(graph.head[blocked[0]]) if len(blocked) else None


def _check_copies(instance: Instance, order: Order) -> None:
    """Raise an InputError if a copy of the order is none of the instance, or if the order has it twice."""
    seen = set()
    for copy in order.operations[~order.computes].tolist():
        _, stage, unit = copy
        if not (0 <= stage < instance.stages and 0 <= unit < instance.units and instance.offloads(stage)):
            raise InputError("the instance has no such operation", value=copy)
        if tuple(copy) in seen:
            name = instance.name(order.operation_at(order.operations.tolist().index(copy)))
            raise InputError("the order has this operation twice", value=name)
        seen.add(tuple(copy))


def _places(count: Ints) -> Ints:
    """Return the numbers from 0 to count - 1 of each entry, one after another."""
    return np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)


def _in_turn(order: Order, head: Ints, home: Ints, duplex: bool) -> _Waits:
    """Return what waits for the row before it on the same engine of its device."""
    kind = order.operations[:, 0]
    engine = np.where(kind == OpKind.O, 1, np.where(kind == OpKind.L, 1 + duplex, 0))
    place = 3 * home + engine
    rows = np.argsort(place, kind="stable")
    before, after = rows[:-1], rows[1:]
    follows = (place[before] == place[after]) & (head[after] == after)
    return _Waits.of(after[follows], before[follows])


def _memory_waits(order: Order, delta: Ints, passing: Ints) -> Iterator[_Waits]:
    """Yield what waits for memory that rows before it in the line give.

    Of the rows that compute, and of the copies out, the last one before a row ends last. An F waits for
    everything that computes before it anyway.
    """
    kind, computes = order.operations[:, 0], order.computes
    takes = (delta > 0) | (passing > 0)
    gives = (delta < 0) | (passing > 0)
    for taking, giving in ((takes, kind == OpKind.O), (kind == OpKind.L, gives & computes)):
        last = np.maximum.accumulate(np.append(-1, np.where(giving, np.arange(len(kind)), -1)))[:-1]
        there = taking & (last >= np.repeat(order.offsets[:-1], np.diff(order.offsets)))
        yield _Waits.of(np.flatnonzero(there), last[there])


def _copy_waits(instance: Instance, order: Order, row_of: Ints) -> Iterator[_Waits]:
    """Yield a copy out after its F, a copy back after its copy out, and the backward after its copy back.

    `row_of` has the row of each item, and the number of rows where there is none.
    """
    graph, size = arrays_of(instance), len(order)
    kind, stage, unit = order.operations.T
    out, back = np.flatnonzero(kind == OpKind.O), np.flatnonzero(kind == OpKind.L)

    def computing(kinds: tuple[OpKind, ...], rows: Ints) -> Ints:
        mb_class = graph.mb_class[unit[rows]]
        node = graph.node[kinds[0], mb_class, stage[rows]]
        for other in kinds[1:]:
            node = np.where(node < 0, graph.node[other, mb_class, stage[rows]], node)
        return np.asarray(row_of[graph.nodes["first"][node] + graph.rank[unit[rows]]])

    yield _Waits.of(out, computing((OpKind.F,), out))
    left = np.full((instance.stages, instance.units), size)
    left[stage[out], unit[out]] = out
    yield _Waits.of(back, left[stage[back], unit[back]])
    backward = computing((OpKind.B, OpKind.W), back)
    yield _Waits.of(backward[backward < size], back[backward < size])


def _before_on_link(home: Ints, receiver: Ints, devices: int) -> Ints:
    """Return the row whose message leaves over the same link before that of each row; -1 for none."""
    found = np.full(len(home), -1)
    place = home * devices + receiver
    rows = np.argsort(place, kind="stable")
    rows = rows[receiver[rows] >= 0]
    before, after = rows[:-1], rows[1:]
    same = place[before] == place[after]
    found[after[same]] = before[same]
    return found
