"""Links on which messages wait for each other, compiled: when the message of an item can leave.

The messages of a device leave over a link in the sequence of the items that made them, at least `occupancy`
ticks apart.
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled_inline

from .queue_arrays import QueueArrays
from .window_state_kernel import WindowState

_FAR = 2**60
_DEEP = 16  # one more than the largest number of other messages that a rule looks at


@compiled_inline
def leaves_from(arrays: QueueArrays, state: WindowState, item: int) -> int:
    """Return the least time, in ticks, at which the item's message can leave.

    For every set of messages that surely leave before this one, this one leaves no earlier than the least end
    among their items plus `occupancy` ticks for each message of the set.
    """
    queue = arrays.queue[item]
    device, cursor = arrays.device[queue], state.cursor
    for k in range(arrays.held[device]):
        cursor[k] = state.before[item, k] if _shares(arrays, queue, k) else 0
    least, bottom = state.earliest[item] + arrays.duration[queue], _FAR
    for count in range(1, _DEEP):
        latest, at = -_FAR, -1
        for k in range(arrays.held[device]):
            if cursor[k] > 0:
                other = arrays.on[device, k]
                end = state.earliest[arrays.first[other] + cursor[k] - 1] + arrays.duration[other]
                if end > latest:
                    latest, at = end, k
        if at < 0:
            break
        cursor[at] -= 1
        bottom = min(bottom, latest)
        least = max(least, bottom + count * arrays.occupancy)
    return int(least)


@compiled_inline
def leaves_by(arrays: QueueArrays, state: WindowState, item: int) -> int:
    """Return the largest time, in ticks, at which the item's message can leave.

    The message has to be in time for its own receiver. For every set of messages that surely leave after this
    one, this one also leaves no later than the largest `due` among them minus `occupancy` ticks for each of
    them.
    """
    queue = arrays.queue[item]
    device, cursor = arrays.device[queue], state.cursor
    for k in range(arrays.held[device]):
        other = arrays.on[device, k]
        cursor[k] = arrays.first[other + 1] - arrays.first[other]
        if _shares(arrays, queue, k):
            cursor[k] = state.after[item, k]
    most, top = due(arrays, state, item), -_FAR
    for count in range(1, _DEEP):
        soonest, at = _FAR, -1
        for k in range(arrays.held[device]):
            other = arrays.on[device, k]
            message = arrays.first[other] + cursor[k]
            if message < arrays.first[other + 1]:
                last = due(arrays, state, message)
                if last < soonest:
                    soonest, at = last, k
        if at < 0:
            break
        cursor[at] += 1
        top = max(top, soonest)
        most = min(most, top - count * arrays.occupancy)
    return int(most)


@compiled_inline
def due(arrays: QueueArrays, state: WindowState, item: int) -> int:
    """Return the tick by which the item's message must leave to arrive by its receiver's largest start."""
    queue = arrays.queue[item]
    receiver = arrays.first[arrays.receiver[queue]] + item - arrays.first[queue]
    return int(state.latest[receiver] - arrays.travel[queue])


@compiled_inline
def _shares(arrays: QueueArrays, queue: int, k: int) -> bool:
    """Return whether the device's k-th queue sends over the same link as the given queue."""
    return bool(arrays.link[arrays.on[arrays.device[queue], k]] == arrays.link[queue])
