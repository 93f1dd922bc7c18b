"""Links on which messages wait for each other, compiled: when the message of an item can leave.

The messages of a device leave over a link in the sequence of the items that made them, at least `occupancy`
ticks apart.
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled_inline

from .horizon_arrays import HorizonArrays
from .window_state_kernel import WindowState

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
        cursor[k] = graph.first[other + 1] - graph.first[other]
        if _shares(arrays, queue, k):
            cursor[k] = state.after[item, k]
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
    return bool(
        graph.queues[graph.devices[graph.queues[queue].device].queue + k].link == graph.queues[queue].link
    )
