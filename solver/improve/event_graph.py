"""The event graph of an instance: its arcs between devices, and where the searches may move items.

`queues` defines queues, items and words. Here a word is the sequence in which a device runs its items. The
words of all devices lie one behind the other in one array, and a *position* is a place in that array.

The events are the ends of the items. An arc leads from an event to another that cannot come before it, and
its weight is the least number of ticks between the two. The arcs between devices, where an item waits for a
message, are the same for all words of the instance: they are the edges of `tightpipe.core.graph` that carry a
message. A word adds an arc from each item to the next item of its device. With the arcs of all words the
graph gives a schedule: every item ends at the length of the longest path to its event. An item that waits for
an operation of its own device needs no further arc, because it follows that operation in the word; the
credits of `GraphArrays` see to that. The messages of a device leave in the sequence of its word.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.core.graph import graph_of
from tightpipe.core.graph_arrays import GraphArrays, arrays_of
from tightpipe.core.instance import Instance
from tightpipe.kernels.arrays import Ints


class EventGraph(NamedTuple):
    """The part of the event graph that all words of an instance share, and where items may move.

    There are N items and p devices.
    """

    arrays: GraphArrays
    offsets: Ints  # (p + 1,) device d has the positions offsets[d] to offsets[d + 1] - 1
    block: Ints  # (p,) positions per range that moves stay in: an iteration if there are flushes, else a word
    lowest: Ints  # (N,) of each position, the first position to which its item may move
    highest: Ints  # (N,) of each position, the last position to which its item may move
    spans: bool  # whether the cost is the largest span of a device, and not the makespan
    joint: bool  # whether joint operations may be shorter than their operations one after the other
    barrier: bool  # whether a step takes more than its operations: ready, reductions, optimizer


def event_graph_of(instance: Instance) -> EventGraph:
    """Return the event graph of an instance."""
    arrays = arrays_of(instance)
    offsets = np.append(arrays.devices["item"], len(arrays.items))
    block = np.diff(offsets) // (instance.iterations if instance.flush else 1)
    device = np.repeat(np.arange(instance.devices), np.diff(offsets))
    lowest = _first_of_block(offsets, device, block[device])
    spans, joint = not instance.whole, graph_of(instance).joint
    barrier = instance.barrier is not None
    return EventGraph(arrays, offsets, block, lowest, lowest + block[device] - 1, spans, joint, barrier)


def with_fixed(graph: EventGraph, first: Ints, end: Ints) -> EventGraph:
    """Return an event graph in which a range of each device's word stays as it is.

    No item may move into the range, out of it, or from one side of it to the other.

    Parameters
    ----------
    graph
        The event graph of an instance without flushes.
    first, end
        The first position of the range and the one behind its last, within each device's word, shape (p,).
    """
    lowest, highest = graph.lowest.copy(), graph.highest.copy()
    for device in range(len(first)):
        begin, last = graph.offsets[device : device + 2]
        left, right = begin + first[device], begin + end[device]
        highest[begin:left] = left - 1
        lowest[left:right] = highest[left:right] = np.arange(left, right)
        lowest[right:last] = right
    return graph._replace(lowest=lowest, highest=highest)


def mirrored(graph: EventGraph) -> EventGraph:
    """Return the event graph of the same words read backwards, which serves only to compute times.

    Position i becomes N - 1 - i and device d becomes p - 1 - d; the items keep their numbers. The result has
    no links, and its memory limits, credits and ranges for moves are not mirrored.
    """
    before = graph.arrays.items
    items, late = before.copy(), before["target"]
    items["home"] = len(graph.arrays.devices) - 1 - before["home"]
    items["source"], items["target"] = late, before["source"]
    items["lag"] = np.where(late >= 0, before["lag"][late], 0)
    items.flags.writeable = False  # as in the graph itself: Numba compiles a loop for each type of arrays
    queues = graph.arrays.queues.copy()
    queues["ready"] = 0  # what comes before an item's start is no part of the time that is left from there
    queues.flags.writeable = False
    arrays = graph.arrays._replace(items=items, links=0, queues=queues)
    return graph._replace(arrays=arrays, offsets=graph.offsets[-1] - graph.offsets[::-1])


def _first_of_block(offsets: Ints, device: Ints, block: Ints) -> Ints:
    """Return for each position the first position of its block, which has `block` positions, shape (N,)."""
    begin = offsets[device]
    return np.asarray(begin + (np.arange(offsets[-1]) - begin) // block * block)
