"""Copies in words: what may leave its device, where its copies stand, and how they are named.

A *trip* is an O and the L of the same unit at the same stage. An instance allows N items that compute and C
trips, and a schedule makes some of these. Behind the items that compute, item N + c is the O of trip c, and
item N + C + c is its L. The trips of one class at one stage are neighbours, in the sequence of their units.

In all words the copies of one class at one stage stand in the sequence of their units, first in, first out,
as its F's and B's do. This is a restriction, and so nothing that such a search finds says that there is no
cheaper schedule. Once F's and B's stand so, the names of copies cost nothing: let two units a < b leave, and
let their O's, or their L's, run in the other sequence. If they change their names, every O still runs after
its F, every L after its O, and every B after its L.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Bools, Ints
from tightpipe.model.graph import Copy, graph_of
from tightpipe.model.graph_arrays import ITEM, QUEUE, GraphArrays, arrays_of, units_of
from tightpipe.model.instance import Instance
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order


class Trips(NamedTuple):
    """The trips that an instance allows; the arrays are empty where there is none."""

    first: int  # number of items that compute; all others are copies
    size: int  # number of trips
    out: int  # item of the first O
    back: int  # item of the first L
    forward: Ints  # (C,) item of the F of each trip
    backward: Ints  # (C,) item that waits for the L of each trip: a B, or a W without B
    of: Ints  # (N + 2C,) trip to which each item belongs: an F, an O, an L or what waits for it; else -1
    duplex: bool  # whether copies out and copies back run at the same time


class Copied(NamedTuple):
    """The copies in the words of all devices, in the sequence in which they stand there."""

    place: Ints  # (M,) number of items that compute and stand before each copy, on all devices
    item: Ints  # (M,) item of each copy


NO_COPIES = Copied(np.zeros(0, np.int64), np.zeros(0, np.int64))


@lru_cache(maxsize=16)
def trips_of(instance: Instance) -> Trips:
    """Return the trips that an instance allows."""
    graph, arrays = graph_of(instance), arrays_of(instance)
    size = len(arrays.queue)
    forward, backward = (
        np.concatenate([np.zeros(0, np.int64), *(_items(arrays, getattr(c, end)) for c in graph.copies)])
        for end in ("forward", "backward")
    )
    count, of = len(forward), np.zeros(0, np.int64)
    if count:
        of = np.full(size + 2 * count, -1)
        of[forward] = of[backward] = of[size : size + count] = of[size + count :] = np.arange(count)
    for array in (forward, backward, of):
        array.flags.writeable = False
    return Trips(size, count, size, size + count, forward, backward, of, graph.duplex)


def _items(arrays: GraphArrays, node: int) -> Ints:
    """Return the items of a node."""
    return np.asarray(arrays.nodes["first"][node] + np.arange(arrays.nodes["count"][node]))


@lru_cache(maxsize=16)
def arrays_with_copies(instance: Instance) -> GraphArrays:
    """Return the arrays of an instance in which O's and L's are items too, with queues behind all others.

    What is kept for each device, as its number of items, leaves copies out.
    """
    arrays, trips, copies = arrays_of(instance), trips_of(instance), graph_of(instance).copies
    if not copies:
        return arrays
    counts = [int(arrays.nodes["count"][copy.forward]) for copy in copies] * 2
    more = np.zeros(len(counts), QUEUE)
    for name in ("ends", "link", "receiver", "takes", "gives", "local"):
        more[name] = -1
    more["device"] = [copy.device for copy in copies] * 2
    more["kind"] = np.repeat([OpKind.O, OpKind.L], len(copies))
    more["duration"] = [copy.out for copy in copies] + [copy.back for copy in copies]
    more["delta"] = [-copy.memory for copy in copies] + [copy.memory for copy in copies]
    items = np.zeros(2 * trips.size, ITEM)
    items["home"], items["source"], items["target"] = np.repeat(more["device"], counts), -1, -1
    numbers = len(arrays.queues) + np.arange(len(counts))
    longer: dict[str, Any] = {
        "queues": np.concatenate([arrays.queues, more]),
        "first": np.concatenate([arrays.first, arrays.first[-1] + np.cumsum(counts)]),
        "queue": np.concatenate([arrays.queue, np.repeat(numbers, counts)]),
        "items": np.concatenate([arrays.items, items]),
    }
    for name, array in longer.items():
        longer[name] = array.view(type(getattr(arrays, name)))
        longer[name].flags.writeable = False
    return arrays._replace(**longer)


def rows_of(instance: Instance, items: Ints) -> Ints:
    """Return kind, stage and unit of each of some copies, which are given by their items, shape (M, 3)."""
    arrays, trips = arrays_of(instance), trips_of(instance)
    back, trip = np.divmod(items - trips.first, max(1, trips.size))
    forward = trips.forward[trip]
    node = arrays.nodes[np.searchsorted(arrays.nodes["first"], forward, "right") - 1]
    unit = units_of(arrays)[node["mb_class"], forward - node["first"]]
    return np.stack([np.where(back, OpKind.L, OpKind.O), node["stage"], unit], axis=1)


def copied_in(instance: Instance, order: Order) -> Copied | None:
    """Return the copies of an order, whose units are then named in the sequence of their F's and B's.

    The result is None if F's and B's run in sequences so different that no such names fit the copies.
    """
    kind, stage, unit = order.operations.T
    computes = order.computes
    (at,) = np.nonzero(~computes)
    if not len(at):
        return NO_COPIES
    graph, arrays, trips = graph_of(instance), arrays_of(instance), trips_of(instance)
    tokens = np.where(kind == OpKind.BW, 2, computes)
    place, item = np.cumsum(tokens)[at], np.zeros(len(at), np.int64)
    mb_class, begin = arrays.mb_class[unit], trips.first
    for copy in graph.copies:
        here = (stage == copy.stage) & (mb_class == copy.mb_class)
        out, back = (np.flatnonzero(here & (kind == one)) for one in (OpKind.O, OpKind.L))
        if len(out):
            named = _named(order, copy, here, out, back)
            if named is None:
                return None
            item[np.searchsorted(at, out)] = begin + named
            item[np.searchsorted(at, back)] = begin + trips.size + named
        begin += int(arrays.nodes["count"][copy.forward])
    return Copied(place, item)


def _named(order: Order, copy: Copy, here: Bools, out: Ints, back: Ints) -> Ints | None:
    """Return which of the F's each O, and the L in the same place among the L's, belongs to; None if none.

    - `copy`: class and stage; `here` says which rows of the order are theirs.
    - `out`, `back`: the rows of the O's and of the L's, both in ascending sequence.
    """
    kind, _, unit = order.operations.T
    forward = np.flatnonzero(here & (kind == OpKind.F))
    with_b = here & ((kind == OpKind.B) | (kind == OpKind.BW))
    backward = np.flatnonzero(with_b if with_b.any() else here & (kind == OpKind.W))
    place = {m: k for k, m in enumerate(unit[forward].tolist())}
    named = np.array(sorted(place[m] for m in unit[out].tolist()))
    if (forward[named] < out).all() and (back < backward[named]).all():
        return named
    found: list[int] = []
    for left, returned in zip(out.tolist(), back.tolist(), strict=True):
        k = max(int(np.searchsorted(backward, returned)), found[-1] + 1 if found else 0)
        if k == len(backward) or forward[k] > left:
            return None
        found.append(k)
    return np.array(found)
