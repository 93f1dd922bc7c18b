"""Words, their times and their event graph as arrays for the compiled search; words from and to orders.

`queues` defines queues, items and words. Here a word is the sequence in which a device runs its items. The
words of all devices lie one behind the other in one array, and a *position* is a place in that array.

The events are the ends of the items. An arc leads from an event to another that cannot come before it, and
its weight is the least number of ticks between the two. The arcs between devices, where an item waits for a
message, are the same for all words of the instance: they are the edges of `tightpipe.model.graph` that carry
a message. A word adds an arc from each item to the next item of its device. With the arcs of all words the
graph gives a schedule: every item ends at the length of the longest path to its event. An item that waits for
an operation of its own device needs no further arc, because it follows that operation in the word; the
credits of `GraphArrays` see to that. The messages of a device leave in the sequence of its word.

Joint operations are items at neighbouring positions that run together. A fused backward is a B and behind it
a W; a pair is an F and behind it a fused backward. The first item of a joint operation takes its whole time,
and the others take none. So the later items end when the joint operation ends, which is what all that waits
for them has to know, and the memory that a device holds is the same as one after the other. Only one rule
needs more: an F in a pair also waits for what the B behind it waits for.

Where activations may leave (`copies`), O's and L's are items of the words too, and stand in a word where they
free or take memory. `engines_kernel` says when they may start. All O's and L's have a position: those that a
schedule leaves out stand before the begin of the word (`Words.opens`), where they do nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Bools, Ints
from tightpipe.model.graph import graph_of, is_wide
from tightpipe.model.graph_arrays import GraphArrays
from tightpipe.model.instance import Instance
from tightpipe.model.operation import SINGLE, OpKind
from tightpipe.model.schedule import Order

from ..copies import Copied, Trips, arrays_with_copies, copied_in, trips_of
from ..queues import Queues, Tokens, order_of_tokens, tokens_of


class Visits(NamedTuple):
    """The items of each microbatch where microbatches differ, for V visits, n microbatches and N items.

    A *visit* of a microbatch is one of its F's or B's: F at the first stage, and so on to the last one, then
    B there, and so on back. All arrays are empty if microbatches are alike.
    """

    item: Ints  # (V, n) item at each visit, -1 if there is none
    weight: Ints  # (V, n) the W of a B at a visit, -1 if there is none or it shares a queue with others
    visit: Ints  # (N,) visit of each item, -1 for W's
    microbatch: Ints  # (N,) microbatch of each item, -1 for W's


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
    barrier: bool  # whether a step takes more than its operations: ready, reductions, optimizer
    visits: Visits
    trips: Trips  # the copies that may be made
    # Unless the instance `is_wide`, all three are None: loops are compiled without what follows `if` of them.
    joint: bool | None = (
        None  # whether joint operations may be shorter than their operations one after the other
    )
    differ: bool | None = None  # whether there are visits
    copies: bool | None = None  # whether there are trips


def event_graph_of(instance: Instance) -> EventGraph:
    """Return the event graph of an instance."""
    arrays, trips = arrays_with_copies(instance), trips_of(instance)
    copies = np.bincount(arrays.items["home"][trips.first :], minlength=instance.devices)
    offsets = np.append(0, np.cumsum(arrays.devices["items"] + copies))
    block = np.diff(offsets) // (instance.iterations if instance.flush else 1)
    device = np.repeat(np.arange(instance.devices), np.diff(offsets))
    lowest = _first_of_block(offsets, device, block[device])
    highest, visits = lowest + block[device] - 1, _visits(instance, arrays)
    spans, barrier = not instance.whole, instance.barrier is not None
    graph = EventGraph(arrays, offsets, block, lowest, highest, spans, barrier, visits, trips)
    if not is_wide(instance):
        return graph
    return graph._replace(joint=graph_of(instance).joint, differ=visits.item.size > 0, copies=trips.size > 0)


def _visits(instance: Instance, arrays: GraphArrays) -> Visits:
    if not instance.differ:
        return Visits(*np.zeros((2, 0, 0), np.int64), *np.zeros((2, 0), np.int64))

    forward, backward, weight = (
        arrays.node[kind][arrays.mb_class].T for kind in (OpKind.F, OpKind.B, OpKind.W)
    )

    def items(node: Ints) -> Ints:
        queue = arrays.nodes["queue"][node]
        alone = arrays.first[queue + 1] - arrays.first[queue] == arrays.nodes["count"][node]
        return np.where((node >= 0) & alone, arrays.first[queue] + arrays.rank, -1)

    after = np.where(backward < 0, weight, backward)  # a W without B stands for it
    # loops are compiled for arrays in C order only, and those of nodes, which are transposed, are not
    item = np.ascontiguousarray(np.concatenate([items(forward), items(after)[::-1]]))
    weights = np.concatenate([np.full(forward.shape, -1), items(weight)[::-1]])
    visit, microbatch = np.full((2, len(arrays.queue)), -1)
    there = np.argwhere(item >= 0)
    visit[item[item >= 0]], microbatch[item[item >= 0]] = there.T
    return Visits(item, weights, visit, microbatch)


def with_fixed(graph: EventGraph, first: Ints, end: Ints) -> EventGraph:
    """Return an event graph in which a range of each device's word stays as it is.

    No item may move into the range, out of it, or from one side of it to the other. The graph is without
    flushes. `first` and `end` are the first position of each range and the one behind its last, shape (p,).
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

    Position i becomes N - 1 - i and device d becomes p - 1 - d; the items keep their numbers. What frees
    memory takes it, and a copy back becomes a copy out. The result has no links, and its memory limits,
    credits and ranges for moves are not mirrored.
    """
    before = graph.arrays.items
    items, late = before.copy(), before["target"]
    items["home"] = len(graph.arrays.devices) - 1 - before["home"]
    items["source"], items["target"] = late, before["source"]
    items["lag"] = np.where(late >= 0, before["lag"][late], 0)
    items.flags.writeable = False  # as in the graph itself: Numba compiles a loop for each type of arrays
    queues = graph.arrays.queues.copy()
    queues["ready"] = 0  # what comes before an item's start is no part of the time that is left from there
    queues["delta"] *= -1
    queues.flags.writeable = False
    arrays = graph.arrays._replace(items=items, links=0, queues=queues)
    trips = graph.trips._replace(
        out=graph.trips.back, back=graph.trips.out, forward=graph.trips.backward, backward=graph.trips.forward
    )
    return graph._replace(arrays=arrays, offsets=graph.offsets[-1] - graph.offsets[::-1], trips=trips)


def _first_of_block(offsets: Ints, device: Ints, block: Ints) -> Ints:
    """Return for each position the first position of its block, which has `block` positions, shape (N,)."""
    begin = offsets[device]
    return np.asarray(begin + (np.arange(offsets[-1]) - begin) // block * block)


class Words(NamedTuple):
    """The words of all devices, the earliest ends of all items, and what undoing a move needs.

    There are N items, p devices, S stages and C kinds of credit. Times are in ticks.
    """

    item: Ints  # (N,) item at each position
    joined: Ints  # (N,) how the item at each position runs with the next one: `SINGLE`, `FUSED` or `PAIRED`
    place: Ints  # (N,) position of each item
    ticks: Ints  # (N,) ticks of each item: of the first one of a joint operation those of all, of others 0
    begin: Ints  # (p,) tick before which each device does not begin
    opens: Ints  # (p,) position at which each device's word begins; before it stand copies that are left out
    closes: Ints  # (p,) position behind each device's word; there they stand if the word is read backwards
    engines: Ints  # (p, 4) until when each engine of a device is busy, and when its memory was last freed
    end: Ints  # (N,) earliest end of each item
    sent: Ints  # (N,) when each item's message leaves; `end` itself if no message ever waits
    shift: Ints  # (N,) items at the positions that a move changes, as they were before it
    shift_joined: Ints  # (N,) `joined` at these positions before the move
    undo: Ints  # (N,) items whose times the move has changed, in the sequence of the changes
    end_before: Ints  # (N,) their ends before the move
    sent_before: Ints  # (N,) their `sent` before the move
    kept: Ints  # (3, N) `item`, `end` and `sent` before a move on several devices
    dirty: Bools  # (N,) whether the times of each item's source have changed since its own were computed
    marked: Ints  # (N,) items that were made dirty
    head: Ints  # (p,) next position to look at on each device
    wanted: Ints  # (p,) last position on each device whose item has to be computed for another device
    pending: Ints  # (p,) number of dirty items on each device
    changed: Ints  # (p,) not 0 if changed times before `head` may change those of the items from there on
    last: Ints  # (S,) when the last operation of each stage ends, while a device's reductions are counted
    credit: Ints  # (C,) credits given and not yet taken, while a word is checked


def words_for(graph: EventGraph, mirror_of: Words | None = None) -> Words:
    """Return empty arrays for the words of an instance, which `load` fills.

    The mirror image of other words shares their `ticks`, which belong to items and not to positions.
    """
    items, devices = len(graph.arrays.queue), len(graph.arrays.devices)

    def ints(size: int) -> Ints:
        return np.zeros(size, np.int64)

    end, end_before = ints(items), ints(items)
    sent, sent_before = (ints(items), ints(items)) if graph.arrays.links else (end, end_before)
    return Words(
        item=ints(items),
        joined=ints(items),
        place=ints(items),
        ticks=ints(items) if mirror_of is None else mirror_of.ticks,
        begin=ints(devices),
        opens=graph.offsets[:-1].copy(),
        closes=graph.offsets[1:].copy(),
        engines=np.zeros((devices, 4), np.int64),
        end=end,
        sent=sent,
        shift=ints(items),
        shift_joined=ints(items),
        undo=ints(items),
        end_before=end_before,
        sent_before=sent_before,
        kept=np.zeros((3, items), np.int64),
        dirty=np.zeros(items, np.bool_),
        marked=ints(items),
        head=ints(devices),
        wanted=ints(devices),
        pending=ints(devices),
        changed=ints(devices),
        last=ints(graph.arrays.node.shape[2]),
        credit=ints(graph.arrays.credits),
    )


class Positions(NamedTuple):
    """Words without times: what stands at each position, shape (N,) each."""

    item: Ints
    joined: Ints


def positions_of(queues: Queues, order: Order) -> Positions:
    """Return the words of an order, with its microbatches relabelled first in, first out."""
    word, joined, offsets = tokens_of(queues, order)
    # The items are numbered queue after queue, and within a queue in the sequence in which they run.
    item = np.empty_like(word)
    item[np.argsort(word, kind="stable")] = np.arange(len(word))
    trips = trips_of(queues.instance)
    if not trips.size:
        return Positions(item, joined)
    copied = copied_in(queues.instance, order)
    assert copied is not None, "the order is first in, first out"
    left_out = np.setdiff1d(trips.first + np.arange(2 * trips.size), copied.item)
    trip = (left_out - trips.first) % trips.size
    front = offsets[queues.arrays.items["home"][trips.forward[trip]]]
    place = np.concatenate([front, copied.place])
    item = np.insert(item, place, np.concatenate([left_out, copied.item]))
    return Positions(item, np.insert(joined, place, SINGLE))


def order_of_positions(queues: Queues, graph: EventGraph, found: Positions) -> Order:
    """Return the order that words stand for."""
    computes = found.item < graph.trips.first
    before = np.append(0, np.cumsum(computes))
    offsets, word = before[graph.offsets], graph.arrays.queue[found.item[computes]]
    (copies,) = np.nonzero(~computes)
    place, item = before[copies], found.item[copies]
    made = place > offsets[graph.arrays.items["home"][item]]
    copied = Copied(place[made], item[made])
    return order_of_tokens(queues, Tokens(word, found.joined[computes], offsets), copied)
