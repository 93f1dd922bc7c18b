"""The agenda of propagation, decisions about orders, and the times of messages on busy links, compiled.

The *agenda* holds the items whose rules have to be applied because something that these rules read has
changed. Items leave it in the sequence in which they came, and no item is on it twice.

A decision says that an item follows the front part of another queue of its device, or precedes the rear part.
It concerns a part because queues run in sequence: what precedes the n-th item of a queue also precedes all
items behind that one. The items of the other queue whose windows change, and a neighbour of the item in its
own queue, are put on the agenda; callers of `put_before` and `put_after` put the item itself there.

The messages of a device leave over a link in the sequence of the items that made them, at least `occupancy`
ticks apart. `leaves_from` and `leaves_by` say when an item's message can leave at the earliest and at the
latest, and `due` says when it must leave for its receiver.
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled_inline

from .window_state_kernel import HEAD, LENGTH, HorizonArrays, WindowState, lower_after, raise_before


@compiled_inline
def push(state: WindowState, item: int) -> None:
    """Put an item at the end of the agenda, unless the agenda has this item already."""
    if not state.waiting[item]:
        state.waiting[item] = True
        end = state.counter[HEAD] + state.counter[LENGTH]
        if end >= len(state.agenda):
            end -= len(state.agenda)
        state.agenda[end] = item
        state.counter[LENGTH] += 1


@compiled_inline
def pop(state: WindowState) -> int:
    """Take the item that has waited longest off the agenda, and return it."""
    item: int = state.agenda[state.counter[HEAD]]
    state.counter[HEAD] += 1
    if state.counter[HEAD] == len(state.agenda):
        state.counter[HEAD] = 0
    state.counter[LENGTH] -= 1
    state.waiting[item] = False
    return item


@compiled_inline
def push_all(state: WindowState) -> None:
    """Put every item on the agenda."""
    for item in range(len(state.agenda)):
        push(state, item)


@compiled_inline
def clear(state: WindowState) -> None:
    """Empty the agenda."""
    while state.counter[LENGTH] > 0:
        pop(state)


@compiled_inline
def push_next(arrays: HorizonArrays, state: WindowState, item: int) -> None:
    """Put the next item of the item's queue on the agenda, if there is one."""
    graph = arrays.graph
    if item + 1 < graph.first[graph.queue[item] + 1]:
        push(state, item + 1)


@compiled_inline
def push_previous(arrays: HorizonArrays, state: WindowState, item: int) -> None:
    """Put the previous item of the item's queue on the agenda, if there is one."""
    graph = arrays.graph
    if item > graph.first[graph.queue[item]]:
        push(state, item - 1)


@compiled_inline
def push_device(arrays: HorizonArrays, state: WindowState, device: int) -> None:
    """Put every item of the device on the agenda."""
    graph = arrays.graph
    for k in range(graph.devices[device].queues):
        queue = graph.devices[device].queue + k
        for item in range(graph.first[queue], graph.first[queue + 1]):
            push(state, item)


@compiled_inline
def push_later(arrays: HorizonArrays, state: WindowState, item: int) -> None:
    """Put on the agenda the items that a larger least start of this item can affect.

    These are the item itself, the next item of its queue, the items that wait for it, and, of each other
    queue of the device, the first item that surely follows it.
    """
    graph = arrays.graph
    queue = graph.queue[item]
    device, rank = graph.queues[queue].device, item - graph.first[queue]
    push(state, item)
    push_next(arrays, state, item)
    for e in range(graph.leads[queue], graph.leads[queue + 1]):
        edge = graph.edges[graph.followers[e]]
        if not edge.pooled:
            push(state, graph.first[edge.follower] + rank)
    for k in range(graph.devices[device].queues):
        other = graph.devices[device].queue + k
        nearest = graph.first[other] + state.after[item, k]
        if other != queue and nearest < graph.first[other + 1]:
            push(state, nearest)


@compiled_inline
def push_earlier(arrays: HorizonArrays, state: WindowState, item: int) -> None:
    """Put on the agenda what a smaller largest start of the item can affect: `push_later`, mirrored."""
    graph = arrays.graph
    queue = graph.queue[item]
    device, rank = graph.queues[queue].device, item - graph.first[queue]
    push(state, item)
    push_previous(arrays, state, item)
    if not graph.queues[queue].pool:
        for e in range(graph.queues[queue].begin, graph.queues[queue].end):
            push(state, graph.first[graph.edges[e].leader] + rank)
    for k in range(graph.devices[device].queues):
        other = graph.devices[device].queue + k
        if other != queue and state.before[item, k] > 0:
            push(state, graph.first[other] + state.before[item, k] - 1)


@compiled_inline
def put_before(arrays: HorizonArrays, state: WindowState, item: int, k: int, count: int) -> None:
    """Decide that the first `count` items of the device's k-th queue precede the item."""
    graph = arrays.graph
    queue = graph.queue[item]
    rank, own = item - graph.first[queue], graph.queues[queue].local
    first = graph.first[graph.devices[graph.queues[queue].device].queue + k]
    raise_before(state, item, k, count)
    other = first + count - 1
    while other >= first and state.after[other, own] > rank:
        lower_after(state, other, own, rank)
        push(state, other)
        other -= 1
    push_next(arrays, state, item)


@compiled_inline
def put_after(arrays: HorizonArrays, state: WindowState, item: int, k: int, count: int) -> None:
    """Decide that the items of the device's k-th queue from rank `count` on follow the item."""
    graph = arrays.graph
    queue = graph.queue[item]
    rank, own = item - graph.first[queue], graph.queues[queue].local
    there = graph.devices[graph.queues[queue].device].queue + k
    lower_after(state, item, k, count)
    other = graph.first[there] + count
    while other < graph.first[there + 1] and state.before[other, own] <= rank:
        raise_before(state, other, own, rank + 1)
        push(state, other)
        other += 1
    push_previous(arrays, state, item)


@compiled_inline
def suppose(arrays: HorizonArrays, state: WindowState, item: int, k: int, follows: bool) -> None:
    """Suppose that all open items of the device's k-th queue follow the item, or that all precede it.

    An item of that queue is open here if the windows do not decide whether it precedes or follows `item`.
    """
    if follows:
        put_after(arrays, state, item, k, state.before[item, k])
    else:
        put_before(arrays, state, item, k, state.after[item, k])
    push(state, item)


@compiled_inline
def exclude(arrays: HorizonArrays, state: WindowState, item: int, k: int, follows: bool) -> None:
    """Decide the opposite of what `suppose` supposed, once that has led to a contradiction.

    If not all open items of the k-th queue follow the item, then the first of them precedes it; if not all of
    them precede it, then the last of them follows it.
    """
    if follows:
        put_before(arrays, state, item, k, state.before[item, k] + 1)
    else:
        put_after(arrays, state, item, k, state.after[item, k] - 1)
    push(state, item)


_FAR = 2**60


@compiled_inline
def leaves_from(arrays: HorizonArrays, state: WindowState, item: int) -> int:
    """Return the least time, in ticks, at which the item's message can leave.

    For every set of messages that surely leave before this one, this one leaves no earlier than the least end
    among their items plus `occupancy` ticks for each message of the set.
    """
    graph = arrays.graph
    queue = graph.queue[item]
    device, cursor = graph.queues[queue].device, state.cursor
    for k in range(graph.devices[device].queues):
        cursor[k] = state.before[item, k] if _shares(arrays, queue, k) else 0
    least, bottom = state.earliest[item] + graph.queues[queue].duration, _FAR
    for count in range(1, arrays.deep):
        latest, at = -_FAR, -1
        for k in range(graph.devices[device].queues):
            if cursor[k] > 0:
                other = graph.devices[device].queue + k
                end = state.earliest[graph.first[other] + cursor[k] - 1] + graph.queues[other].duration
                if end > latest:
                    latest, at = end, k
        if at < 0:
            break
        cursor[at] -= 1
        bottom = min(bottom, latest)
        least = max(least, bottom + count * graph.occupancy)
    return int(least)


@compiled_inline
def leaves_by(arrays: HorizonArrays, state: WindowState, item: int) -> int:
    """Return the largest time, in ticks, at which the item's message can leave.

    The message has to be in time for its own receiver. For every set of messages that surely leave after this
    one, this one also leaves no later than the largest `due` among them minus `occupancy` ticks for each of
    them.
    """
    graph = arrays.graph
    queue = graph.queue[item]
    device, cursor = graph.queues[queue].device, state.cursor
    for k in range(graph.devices[device].queues):
        other = graph.devices[device].queue + k
        everything = graph.first[other + 1] - graph.first[other]
        cursor[k] = state.after[item, k] if _shares(arrays, queue, k) else everything
    most, top = due(arrays, state, item), -_FAR
    for count in range(1, arrays.deep):
        soonest, at = _FAR, -1
        for k in range(graph.devices[device].queues):
            other = graph.devices[device].queue + k
            message = graph.first[other] + cursor[k]
            if message < graph.first[other + 1]:
                last = due(arrays, state, message)
                if last < soonest:
                    soonest, at = last, k
        if at < 0:
            break
        cursor[at] += 1
        top = max(top, soonest)
        most = min(most, top - count * graph.occupancy)
    return int(most)


@compiled_inline
def due(arrays: HorizonArrays, state: WindowState, item: int) -> int:
    """Return the tick by which the item's message must leave to arrive by its receiver's largest start."""
    graph = arrays.graph
    queue = graph.queue[item]
    receiver = graph.first[graph.queues[queue].receiver] + item - graph.first[queue]
    return int(state.latest[receiver] - graph.queues[queue].travel)


@compiled_inline
def _shares(arrays: HorizonArrays, queue: int, k: int) -> bool:
    """Return whether the device's k-th queue sends over the same link as the given queue."""
    graph = arrays.graph
    mine = graph.queues[queue]
    return bool(graph.queues[graph.devices[mine.device].queue + k].link == mine.link)
