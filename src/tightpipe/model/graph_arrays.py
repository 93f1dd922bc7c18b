"""The graph of a step as one record of arrays, which all compiled loops read.

Items are operations. They are numbered from 0, node after node, and thus queue after queue, because the nodes
of a queue are neighbours. In a node, the k-th item is the operation of the k-th unit of the class. In a pool,
which is a queue of several W nodes, searches number the items by the sequence in which they run.

Memory limits follow one convention: `NO_LIMIT` where there is none, which no sum of memory ever reaches. -1
stands for no node, no queue, no item, no device, no link, no kind of credit. Times are in ticks.

The elements of an array are records with named fields, which loops read as attributes. Numba passes an array
to a loop faster than the many arrays that would hold one field each.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from ..kernels.arrays import Bools, Ints, Records, record
from .graph import NO_LIMIT, Edge, Node, StepGraph, graph_of
from .instance import Instance
from .operation import OpKind
from .schedule import Order

__all__ = [
    "NO_LIMIT",
    "GraphArrays",
    "arrays_of",
    "beside",
    "deltas_of",
    "input_of",
    "nodes_of",
    "passing_of",
    "ranks",
    "units_of",
]


_NONE = -1
_COSTS = ("duration", "delta", "fused", "passing", "ready", "reduce")  # of a node and of a queue


NODE = record(
    "kind",  # F, B or W
    "stage",
    "mb_class",
    "device",
    "queue",
    "first",  # its first item
    "count",  # number of its items
    "duration",
    "delta",  # memory that each item adds; negative where it frees memory at its end
    "fused",  # ticks of a B with its W; 0 at an F or W, and where B has no W
    "passing",  # memory that each item takes at its start and frees at its end
    "ready",  # tick before which no item starts
    "reduce",  # ticks of reduction after the last item, if that ends the stage
    "receiver",  # device to which each item sends its result
    "begin",  # the edges `begin` to `end` - 1 lead to the node
    "end",
)
EDGE = record(
    "before",  # node
    "after",  # node
    "leader",  # queue of `before`
    "follower",  # queue of `after`
    "shift",  # what to add to the number of an item of `after` for the item of `before` that it waits for
    "lag",  # ticks from an item's end to the start of the item that waits for it
    "message",  # 1 if the edge leads to another device, else 0
    "pooled",  # 1 if the follower is a pool, so that not the k-th item of a queue waits for the k-th
    "number",  # its index in `StepGraph.edges`
)
QUEUE = np.dtype(
    [
        *((name, np.int64) for name in ("device", "local", "kind", "duration", "delta", "fused")),
        *((name, np.int64) for name in ("passing", "ready", "reduce", "ends")),
        ("begin", np.int64),  # the edges `begin` to `end` - 1 lead to the queue
        ("end", np.int64),
        ("pool", np.int64),  # 1 if it has several nodes, else 0
        ("link", np.int64),  # link on which its messages may have to wait
        ("receiver", np.int64),  # queue that these messages go to
        ("travel", np.int64),  # ticks from when such a message leaves until it arrives
        ("takes", np.int64, (2,)),  # kinds of credit that each item takes
        ("gives", np.int64, (3,)),  # kinds of credit that each item gives
    ]
)
"""A queue; `local` is its number among those of its device. Other names are as in `NODE`.

Where the last operation of a stage is followed by a reduction, `ends` is this stage at the queues one of
which has that operation, one queue for each class of microbatches; it is -1 at others. Only the first of them
has the ticks of the reduction.

The kind of a queue of W's without B is that of B, because such W's wait for a result and for no B of theirs.
"""
ITEM = record(
    "home",  # its device
    "source",  # item of another device that it waits for
    "target",  # item of another device that waits for it
    "lag",  # ticks from when the source's message leaves until the item may start
)
DEVICE = record(
    "limit",  # memory limit, or `NO_LIMIT`
    "queue",  # its queues are queue, queue + 1, ...
    "queues",  # number of its queues
    "item",  # its items are item, item + 1, ...
    "items",  # number of its items
    "work",  # least ticks that its items take
    "paired",  # 1 if an F and a BW of it have times of their own when they run together, else 0
    "optimizer",  # ticks from the last operation and reduction to the end of the step
)


class GraphArrays(NamedTuple):
    """The graph of an instance, with V nodes, E edges, Q queues, N items, p devices and n units.

    A *link* leads from one device to another. Only links on which a message may have to wait have a number.

    Precedences within a device can be kept by counting *credits*. An item of one queue gives a credit that an
    item of another queue takes, and an item that takes a credit cannot run before one is there. Each edge
    within a device has a kind of credit; only the edges that lead to a pool share one. An F takes up to two
    kinds: of the F of the stage before, if that is on the same device, and of the F of the slice before. So
    does a B, of the stage and of the slice after it, or of the F of its stage. A B gives up to three kinds:
    to its W, and to the B's of the stage and of the slice before it.
    """

    nodes: Records  # (V,) of NODE
    edges: Records  # (E,) of EDGE, sorted by `after`
    followers: Ints  # (E,) the edges sorted by `leader`, and then by `number`
    leads: Ints  # (Q + 1,) the edges followers[leads[q]] to followers[leads[q + 1] - 1] leave queue q
    queues: Records  # (Q,) of QUEUE
    first: Ints  # (Q + 1,) queue q has the items first[q] to first[q + 1] - 1
    queue: Ints  # (N,) queue of each item
    items: Records  # (N,) of ITEM
    devices: Records  # (p,) of DEVICE
    mb_class: Ints  # (n,) class of each unit
    rank: Ints  # (n,) number of each unit in its class
    node: Ints  # (3, classes, stages) node of each kind, class and stage, -1 if there is none
    together: Ints  # (p, M, M) ticks of a pair, by the local numbers of the queues of its F and its B
    occupancy: int  # least ticks from one message on a link to the next
    links: int  # number of links on which a message may have to wait
    credits: int  # number of kinds of credit
    slices: int  # number of slices of a microbatch; 0 where microbatches are whole


@lru_cache(maxsize=64)
def arrays_of(instance: Instance) -> GraphArrays:
    """Return the arrays of `instance`; they are read-only, because a cache shares them between callers."""
    return _arrays(instance, graph_of(instance))


@lru_cache(maxsize=4)
def arrays_without_pools(instance: Instance) -> GraphArrays:
    """Return the arrays of `instance` in which each node has a queue of its own."""
    graph = graph_of(instance)
    return _arrays(instance, replace(graph, queues=tuple((v,) for v in range(len(graph.nodes)))))


def _arrays(instance: Instance, graph: StepGraph) -> GraphArrays:
    nodes = _nodes(graph)
    queues = _queues(graph, nodes)
    nodes["first"] = np.cumsum(nodes["count"]) - nodes["count"]
    nodes["queue"] = np.repeat(np.arange(len(queues)), [len(members) for members in graph.queues])
    count = np.bincount(nodes["queue"], nodes["count"], len(queues)).astype(np.int64)
    queue = np.repeat(np.arange(len(queues)), count)
    edges = _edges(graph, nodes, queues)
    for targets, after in ((nodes, "after"), (queues, "follower")):
        each = np.arange(len(targets))
        targets["begin"] = np.searchsorted(edges[after], each)
        targets["end"] = np.searchsorted(edges[after], each, side="right")
    crossing = edges[edges["message"] == 1]
    nodes["receiver"][crossing["before"]] = nodes["device"][crossing["after"]]
    followers = np.lexsort((edges["number"], edges["leader"]))
    mb_class = np.array(graph.classes)
    result = GraphArrays(
        nodes=nodes,
        edges=edges,
        followers=followers,
        leads=np.searchsorted(edges["leader"][followers], np.arange(len(queues) + 1)),
        queues=queues,
        first=np.cumsum([0, *count]),
        queue=queue,
        items=_items(nodes, queues, crossing, queue),
        devices=_devices(instance, graph, queues, count),
        mb_class=mb_class,
        rank=ranks(mb_class),
        node=_node_table(instance, nodes),
        together=_together(graph, nodes, queues),
        occupancy=instance.costs.link_occupancy,
        links=_set_links(graph, nodes, queues),
        credits=_set_credits(queues, edges),
        slices=len(instance.slices),
    )
    for array in result:
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):  # plain Python needs other records
        named = {
            f: array
            for f, array in result._asdict().items()
            if getattr(array, "dtype", None) and array.dtype.names
        }
        return result._replace(**{field: array.view(np.recarray) for field, array in named.items()})
    return result


def nodes_of(instance: Instance, order: Order) -> Ints:
    """Return the node of each operation of an order: of a BW that of its B, of a copy that of its F."""
    arrays = arrays_of(instance)
    kind, stage, microbatch = order.operations.T
    kind = np.where(kind == OpKind.BW, OpKind.B, kind)
    if instance.offload is not None:
        kind = np.where(kind > OpKind.BW, OpKind.F, kind)
    return np.asarray(arrays.node[kind, arrays.mb_class[microbatch], stage])


def units_of(graph: GraphArrays) -> Ints:
    """Return the units of each class in sequence, shape (classes, most units of a class)."""
    found = np.zeros((graph.node.shape[1], int(graph.rank.max()) + 1), np.int64)
    found[graph.mb_class, graph.rank] = np.arange(len(graph.rank))
    return found


def input_of(graph: GraphArrays, nodes: Records) -> tuple[Bools, Records]:
    """Return what the items of some nodes, records of `NODE` in an array of any shape, wait for.

    Items that wait for another slice besides run after it on their device, in any order. The result says
    whether the items of each node wait for those of another one, and has the first edge to each node, as
    records of `EDGE`, of no meaning where the items wait for nothing.
    """
    waits = nodes["begin"] < nodes["end"]
    if not len(graph.edges):  # forwards alone, at a single stage
        return waits, np.zeros(nodes.shape, graph.edges.dtype)
    return waits, graph.edges[np.where(waits, nodes["begin"], 0)]


def beside(graph: GraphArrays) -> Ints:
    """Return the queues of each item's device, shape (N, M); M is the most of a device, and -1 fills up."""
    each = np.arange(graph.devices["queues"].max())
    mine = graph.devices[graph.items["home"]]
    return np.where(each < mine["queues"][:, None], mine["queue"][:, None] + each, _NONE)


def deltas_of(instance: Instance, order: Order) -> Ints:
    """Return the memory that each operation of an order adds, shape (N,); negative where it frees memory."""
    arrays, nodes = arrays_of(instance), nodes_of(instance, order)
    delta = arrays.nodes["delta"][nodes]
    (fused,) = np.nonzero(order.operations[:, 0] == OpKind.BW)
    there = arrays.nodes[nodes[fused]]
    delta[fused] += arrays.nodes["delta"][arrays.node[OpKind.W, there["mb_class"], there["stage"]]]
    if instance.offload is not None:
        kind, stage, _ = order.operations.T
        leaves = np.array(instance.offload.memory)[stage]
        delta = np.select([kind == OpKind.O, kind == OpKind.L], [-leaves, leaves], delta)
    return np.asarray(delta)


def passing_of(instance: Instance, order: Order) -> Ints:
    """Return the memory that each operation of an order takes while it runs, shape (N,)."""
    return np.asarray(arrays_of(instance).nodes["passing"][nodes_of(instance, order)])


def _nodes(graph: StepGraph) -> Records:
    nodes = np.zeros(len(graph.nodes), NODE)
    _fill(nodes, Node._fields, graph.nodes)
    nodes["receiver"] = _NONE
    return nodes


def _fill(records: Records, fields: tuple[str, ...], rows: Sequence[tuple[int, ...]]) -> None:
    """Set these fields of the records to the columns of the rows."""
    table = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(fields))
    for name, values in zip(fields, table.reshape(-1, len(fields)).T, strict=True):
        records[name] = values


def _queues(graph: StepGraph, nodes: Records) -> Records:
    queues = np.zeros(len(graph.queues), QUEUE)
    members = nodes[[one[0] for one in graph.queues]]
    for name in ("device", "kind", *_COSTS):
        queues[name] = members[name]
    ends = np.where(members["reduce"] > 0, members["stage"], _NONE)
    places = np.where(ends >= 0, ends + len(graph.nodes) * queues["device"], _NONE)
    queues["ends"] = ends
    queues["reduce"][np.setdiff1d(np.arange(len(queues)), np.unique(places, return_index=True)[1])] = 0
    own = nodes[nodes["kind"] == OpKind.B]
    place = members["mb_class"] * len(graph.nodes) + members["stage"]
    has_b = np.isin(place, own["mb_class"] * len(graph.nodes) + own["stage"])
    queues["kind"][(members["kind"] == OpKind.W) & ~has_b] = OpKind.B
    queues["pool"] = [len(one) > 1 for one in graph.queues]
    queues["local"] = np.arange(len(queues)) - np.searchsorted(queues["device"], queues["device"])
    for name in ("link", "receiver", "takes", "gives"):
        queues[name] = _NONE
    return queues


def _edges(graph: StepGraph, nodes: Records, queues: Records) -> Records:
    edges = np.zeros(len(graph.edges), EDGE)
    _fill(edges, Edge._fields, graph.edges)
    edges["shift"] = nodes["first"][edges["before"]] - nodes["first"][edges["after"]]
    edges["leader"], edges["follower"] = nodes["queue"][edges["before"]], nodes["queue"][edges["after"]]
    edges["message"] = nodes["device"][edges["before"]] != nodes["device"][edges["after"]]
    edges["pooled"], edges["number"] = queues["pool"][edges["follower"]], np.arange(len(edges))
    return edges[np.argsort(edges["after"], kind="stable")]


def _set_links(graph: StepGraph, nodes: Records, queues: Records) -> int:
    """Set link, receiver and travel of each queue whose messages may wait, and return the number of links."""
    for number, link in enumerate(graph.links):
        before, after, lags = zip(*link, strict=True)
        senders = nodes["queue"][list(before)]
        queues["link"][senders], queues["travel"][senders] = number, lags
        queues["receiver"][senders] = nodes["queue"][list(after)]
    return len(graph.links)


def _items(nodes: Records, queues: Records, crossing: Records, queue: Ints) -> Records:
    items = np.zeros(len(queue), ITEM)
    items["home"] = queues["device"][queue]
    items["source"] = items["target"] = _NONE
    count = nodes["count"][crossing["before"]]
    rank = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    senders = np.repeat(nodes["first"][crossing["before"]], count) + rank
    receivers = np.repeat(nodes["first"][crossing["after"]], count) + rank
    items["source"][receivers], items["target"][senders] = senders, receivers
    items["lag"][receivers] = np.repeat(crossing["lag"], count)
    return items


def _devices(instance: Instance, graph: StepGraph, queues: Records, count: Ints) -> Records:
    devices, each = np.zeros(len(graph.limits), DEVICE), np.arange(len(graph.limits))
    devices["limit"] = graph.limits
    devices["queue"] = np.searchsorted(queues["device"], each)
    devices["queues"] = np.searchsorted(queues["device"], each, "right") - devices["queue"]
    devices["items"] = np.bincount(queues["device"], count, len(each))
    devices["item"] = np.cumsum(devices["items"]) - devices["items"]
    devices["work"] = [instance.work(device) for device in each.tolist()]
    devices["optimizer"] = graph.optimizer
    devices["paired"][[graph.nodes[f].device for f, _ in graph.pairs]] = 1
    return devices


def _together(graph: StepGraph, nodes: Records, queues: Records) -> Ints:
    """Return the ticks of each pair; of no meaning where there is none, and empty if there are no pairs."""
    size = int(queues["local"].max()) + 1 if graph.pairs else 0
    found = np.zeros((len(graph.limits), size, size), np.int64)
    for (f, b), ticks in graph.pairs.items():
        local = (int(queues["local"][nodes["queue"][v]]) for v in (f, b))
        found[(nodes["device"][f], *local)] = ticks
    return found


def _set_credits(queues: Records, edges: Records) -> int:
    """Set the kind of credit that each queue takes and the kinds that it gives; return how many there are."""
    inner = edges[edges["message"] == 0]
    # the edges to a pool share a kind, every other edge has its own
    group = np.where(inner["pooled"], inner["follower"], len(queues) + np.arange(len(inner)))
    _, first, kind = np.unique(group, return_index=True, return_inverse=True)
    first, number = (
        np.sort(first),
        np.argsort(np.argsort(first)),
    )  # kinds are numbered in the sequence of the edges
    taker, giver = inner["follower"][first], inner["leader"]
    queues["takes"][taker, ranks(taker)] = np.arange(len(first))
    queues["gives"][giver, ranks(giver)] = number[kind]
    return len(first)


def ranks(numbers: Ints) -> Ints:
    """Return for each entry how many equal entries stand before it."""
    count = np.bincount(numbers)
    rank = np.zeros(len(numbers), np.int64)
    before = np.repeat(np.cumsum(count) - count, count)
    rank[np.argsort(numbers, kind="stable")] = np.arange(len(numbers)) - before
    return rank


def _node_table(instance: Instance, nodes: Records) -> Ints:
    table = np.full((3, int(nodes["mb_class"].max()) + 1, instance.stages), _NONE)
    table[nodes["kind"], nodes["mb_class"], nodes["stage"]] = np.arange(len(nodes))
    return table


NOTHING = -1
"""Stands in place of a row where an operation waits for nothing."""


class Inputs(NamedTuple):
    """The input of each operation of an order from another stage, as arrays of shape (N,).

    Every operation has one at most. What waits for another slice besides is on the device of that slice, and
    the order has the two in sequence.
    """

    source: Ints  # row of the operation whose result it needs, or `NOTHING`
    lag: Ints  # ticks from when that result leaves its device until it has arrived
    message: Bools  # whether the result comes from another device
    receiver: Ints  # device to which the operation sends its own result; -1 if no other device needs it


def inputs_of(instance: Instance, order: Order) -> Inputs:
    """Return what each operation waits for, in an order without copies that has every operation once."""
    graph, node = arrays_of(instance), nodes_of(instance, order)
    nodes = graph.nodes[node]
    rank = graph.rank[order.operations[:, 2]]
    waits, edges = input_of(graph, nodes)
    row = np.full(len(graph.items), NOTHING)
    row[nodes["first"] + rank] = np.arange(len(order))  # of a fused B, the row of its BW
    source = np.where(waits, row[graph.nodes["first"][edges["before"]] + rank], NOTHING)
    return Inputs(
        source, np.where(waits, edges["lag"], 0), waits & (edges["message"] == 1), nodes["receiver"]
    )
