"""The agenda of propagation, compiled: what a change puts on it, and what is taken off next.

The *agenda* holds the items whose rules have to be applied because something that these rules read has
changed. Items leave it in the sequence in which they came, and no item is on it twice.
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled_inline

from .horizon_arrays import HorizonArrays
from .window_state_kernel import HEAD, LENGTH, WindowState


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
    """Put on the agenda the items that a smaller largest start of this item can affect.

    These are the item itself, the previous item of its queue, the items that it waits for, and, of each other
    queue of the device, the last item that surely precedes it.
    """
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
