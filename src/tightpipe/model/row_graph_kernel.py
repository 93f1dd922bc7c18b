"""An order as a graph of its rows, of which each waits for others: to time orders with copies, and noise.

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

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ..base.errors import InputError
from ..kernels.arrays import Bools, Ints
from ..kernels.compiled import compiled, compiled_inline, compiled_with_arrays
from .graph_arrays import arrays_of, deltas_of, units_of
from .instance import Instance
from .operation import COPIES, Operation, OpKind
from .schedule import Order
from .simulate_kernel import ABSENT, NO_PATH, new_run


class RowGraph(NamedTuple):
    """The M rows of an order, with K pairs of rows of which one waits for the other, and p devices.

    What the second row of a pair of operations waits for stands with the first row.
    """

    begin: Ints  # (M + 1,) row i waits for the rows before[begin[i]] to before[begin[i + 1] - 1]
    before: Ints  # (K,) where no device runs it, M + the item that is waited for, or -1 for a copy out
    after: Ints  # (K,) the row that waits, which may be the second one of its slot
    lag: Ints  # (K,) ticks from the end of the other row, or from when its message leaves
    message: Bools  # (K,) whether the row waits for the other one's message
    follow: Ints  # (K,) first rows of slots that wait, sorted by the row that they wait for
    leads: Ints  # (M + 1,) the rows follow[leads[i]] to follow[leads[i + 1] - 1] wait for row i
    head: Ints  # (M,) first row of the slot
    joined: Ints  # (M,) as in `Order`
    home: Ints  # (M,) device
    ticks: Ints  # (M,) of both operations of a pair, those of the pair
    ready: Ints  # (M,) tick before which it does not start
    link: Ints  # (M,) row whose message leaves over the same link before that of this row; -1 for none
    occupancy: int  # least ticks from one message on a link to the next
    first: Ints  # (p,) first row that computes
    last: Ints  # (p,) last row that computes


class Waits(NamedTuple):
    """Rows, and a row that each of them waits for; `lag` and `message` as in `RowGraph`."""

    after: Ints
    before: Ints
    lag: Ints
    message: Bools

    @classmethod
    def of(cls, after: Ints, before: Ints) -> Waits:
        """Return rows that wait for the ends of others on their device."""
        return cls(after, before, np.zeros_like(after), np.zeros(len(after), np.bool_))


def row_graph_of(instance: Instance, order: Order, more: Iterable[Waits] = ()) -> RowGraph:
    """Return the graph of the rows of an order, with `more` waits than those of the instance.

    Raise an InputError if the instance does not have an operation or a copy of the order, or if the order has
    one twice.
    """
    _check_copies(instance, order)
    graph, size = arrays_of(instance), len(order)
    kind, stage, _ = order.operations.T
    computing = np.flatnonzero(order.computes)
    run = new_run(graph, order.without_copies())
    nodes = graph.nodes[run.node]
    row_of = size + np.arange(len(graph.items))
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
    place = np.arange(len(each)) - np.repeat(np.cumsum(count) - count, count)
    edges = graph.edges[nodes["begin"][each] + place]
    data = row_of[run.item[each] + edges["shift"]]
    waits = [
        Waits(computing[each], data, edges["lag"], edges["message"] == 1),
        _in_turn(order, head, home, instance.offload is not None and instance.offload.duplex),
        *_memory_waits(order, deltas_of(instance, order), passing),
        *_copy_waits(instance, order, row_of),
        *more,
    ]
    after, before, lag, message = (np.concatenate(part) for part in zip(*waits, strict=True))
    by_after, by_before = np.argsort(head[after], kind="stable"), np.argsort(before, kind="stable")
    bounds = np.arange(size + 1)
    receiver = np.full(size, -1)
    receiver[computing] = nodes["receiver"]
    return RowGraph(
        begin=np.searchsorted(head[after][by_after], bounds),
        before=before[by_after],
        after=after[by_after],
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


def blocking(graph: RowGraph, row: int, start: Ints) -> int:
    """Return the first wait of the slot that begins at a row for a row that has not run.

    A wait for the row above it comes before others. `start` is negative for rows that have not run.
    """
    waits = np.arange(graph.begin[row], graph.begin[row + 1])
    before = graph.before[waits]
    there = (before >= 0) & (before < len(start))
    blocked = waits[~there | (start[np.where(there, before, 0)] < 0)]
    above = blocked[graph.before[blocked] == row - 1]
    return int(above[0] if len(above) else blocked[0])


def lacking_operation(instance: Instance, order: Order, before: int, after: int) -> Operation:
    """Return what the row `after` waits for if no device runs it; `before` is that entry of `RowGraph`."""
    graph = arrays_of(instance)
    if before < 0:
        _, stage, unit = order.operation_at(after)
        return Operation(OpKind.O, stage, unit)
    item = before - len(order)
    node = graph.nodes[np.searchsorted(graph.nodes["first"], item, "right") - 1]
    unit = units_of(graph)[node["mb_class"], item - node["first"]]
    return Operation(OpKind(int(node["kind"])), int(node["stage"]), int(unit))


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


def _in_turn(order: Order, head: Ints, home: Ints, duplex: bool) -> Waits:
    """Return what waits for the row before it on the same engine of its device."""
    kind = order.operations[:, 0]
    engine = np.where(kind == OpKind.O, 1, np.where(kind == OpKind.L, 1 + duplex, 0))
    place = 3 * home + engine
    rows = np.argsort(place, kind="stable")
    before, after = rows[:-1], rows[1:]
    follows = (place[before] == place[after]) & (head[after] == after)
    return Waits.of(after[follows], before[follows])


def _memory_waits(order: Order, delta: Ints, passing: Ints) -> Iterator[Waits]:
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
        yield Waits.of(np.flatnonzero(there), last[there])


def _copy_waits(instance: Instance, order: Order, row_of: Ints) -> Iterator[Waits]:
    """Yield a copy out after its F, a copy back after its copy out, and the backward after its copy back.

    `row_of` has the row of each item, or a larger number where there is none.
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

    yield Waits.of(out, computing((OpKind.F,), out))
    left = np.full((instance.stages, instance.units), -1)
    left[stage[out], unit[out]] = out
    yield Waits.of(back, left[stage[back], unit[back]])
    backward = computing((OpKind.B, OpKind.W), back)
    yield Waits.of(backward[backward < size], back[backward < size])


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


class RowTimes(NamedTuple):
    """The times of the M rows of an order, in ticks."""

    start: Ints  # (M,) start, or `ABSENT`
    end: Ints  # (M,) end, or `ABSENT`
    sent: Ints  # (M,) when the message of the row leaves
    missing: Ints  # (M,) how many of the rows that a row waits for have not run
    sequence: Ints  # (M,) the first row of each slot that has run; each slot after those it waits for


@compiled_inline
def _sent(graph: RowGraph, row: int, end: int, sent: Ints) -> int:
    """Return when the message of a row leaves, in ticks: at its `end`, or later if its link is busy."""
    before = graph.link[row]
    return int(max(end, sent[before] + graph.occupancy)) if before >= 0 and graph.occupancy > 0 else end


@compiled
def earliest_row_times(graph: RowGraph, release: Ints, times: RowTimes) -> tuple[int, int]:
    """Compute the earliest start and end of each row; return the numbers of rows and of slots that can run.

    `release` has the earliest start of each device in ticks, shape (p,); `times` receives the times.
    """
    slots, done, found = 0, 0, 0
    for i in range(len(graph.ticks)):
        times.start[i] = times.end[i] = ABSENT
        times.missing[i] = graph.begin[i + 1] - graph.begin[i]
        if graph.head[i] == i and times.missing[i] == 0:
            times.sequence[found] = i
            found += 1
    while slots < found:
        i = times.sequence[slots]
        slots += 1
        begin = max(graph.ready[i], release[graph.home[i]])
        for e in range(graph.begin[i], graph.begin[i + 1]):
            before = graph.before[e]
            left = times.sent[before] if graph.message[e] else times.end[before]
            begin = max(begin, left + graph.lag[e])
        for j in range(i, i + 1 + graph.joined[i]):
            begin = max(begin, graph.ready[j])
        for j in range(i, i + 1 + graph.joined[i]):
            done += 1
            times.start[j], times.end[j] = begin, begin + graph.ticks[i]
            times.sent[j] = _sent(graph, j, times.end[j], times.sent)
            for k in range(graph.leads[j], graph.leads[j + 1]):
                after = graph.follow[k]
                times.missing[after] -= 1
                if times.missing[after] == 0:
                    times.sequence[found] = after
                    found += 1
    return done, slots


@compiled_with_arrays
def row_paths_from(source: int, graph: RowGraph, sequence: Ints) -> tuple[Ints, Ints]:
    """Return the longest paths, in ticks, from the first start of a device to all firsts and lasts.

    The results are ticks to the start of the first and to the end of the last operation that each device
    computes, each of shape (devices,); a negative number where there is no path. The slots of `sequence` come
    after those that they wait for.
    """
    devices, size = len(graph.first), len(graph.ticks)
    start, end, sent = np.full(size, NO_PATH), np.full(size, NO_PATH), np.full(size, NO_PATH)
    for i in sequence:
        begin = 0 if i == graph.first[source] else NO_PATH
        for e in range(graph.begin[i], graph.begin[i + 1]):
            before = graph.before[e]
            left = sent[before] if graph.message[e] else end[before]
            begin = max(begin, left + graph.lag[e])
        for j in range(i, i + 1 + graph.joined[i]):
            start[j], end[j] = begin, begin + graph.ticks[i]
            sent[j] = _sent(graph, j, end[j], sent)
    to_first, to_last = np.empty(devices, np.int64), np.empty(devices, np.int64)
    for device in range(devices):
        to_first[device], to_last[device] = start[graph.first[device]], end[graph.last[device]]
    return to_first, to_last
