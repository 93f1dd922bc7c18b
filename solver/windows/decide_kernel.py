"""What decides the order of two items, compiled: both of them and their neighbours hear of it.

A decision is about an item and a whole part of another queue of its device, as queues are in sequence: what
precedes the n-th element of a queue precedes all those behind it.
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled_inline

from .agenda_kernel import push, push_next, push_previous
from .queue_arrays import QueueArrays
from .window_state_kernel import WindowState, lower_after, raise_before


@compiled_inline
def put_before(arrays: QueueArrays, state: WindowState, item: int, k: int, count: int) -> None:
    """Put the first `count` elements of the device's k-th queue before the item."""
    queue = arrays.queue[item]
    rank, own = item - arrays.first[queue], arrays.local[queue]
    first = arrays.first[arrays.on[arrays.device[queue], k]]
    raise_before(state, item, k, count)
    other = first + count - 1
    while other >= first and state.after[other, own] > rank:
        lower_after(state, other, own, rank)
        push(state, other)
        other -= 1
    push_next(arrays, state, item)


@compiled_inline
def put_after(arrays: QueueArrays, state: WindowState, item: int, k: int, count: int) -> None:
    """Put the elements of the device's k-th queue from `count` on after the item."""
    queue = arrays.queue[item]
    rank, own = item - arrays.first[queue], arrays.local[queue]
    there = arrays.on[arrays.device[queue], k]
    lower_after(state, item, k, count)
    other = arrays.first[there] + count
    while other < arrays.first[there + 1] and state.before[other, own] <= rank:
        raise_before(state, other, own, rank + 1)
        push(state, other)
        other += 1
    push_previous(arrays, state, item)


@compiled_inline
def suppose(arrays: QueueArrays, state: WindowState, item: int, k: int, follows: bool) -> None:
    """Put all elements of the device's k-th queue whose order with the item is open on one side of it.

    Parameters
    ----------
    follows
        True: they follow the item; False: they precede it.
    """
    if follows:
        put_after(arrays, state, item, k, state.before[item, k])
    else:
        put_before(arrays, state, item, k, state.after[item, k])
    push(state, item)


@compiled_inline
def exclude(arrays: QueueArrays, state: WindowState, item: int, k: int, follows: bool) -> None:
    """Take what `suppose` supposed as impossible: the element nearest to it is on the other side."""
    if follows:
        put_before(arrays, state, item, k, state.before[item, k] + 1)
    else:
        put_after(arrays, state, item, k, state.after[item, k] - 1)
    push(state, item)
