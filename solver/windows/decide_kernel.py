"""Decisions about the order of items, compiled, and the agenda entries that follow from them.

A decision says that an item follows the front part of another queue of its device, or precedes the rear part.
It concerns a part because queues run in sequence: what precedes the n-th item of a queue also precedes all
items behind that one. The items of the other queue whose windows change, and a neighbour of the item in its
own queue, are put on the agenda; callers of `put_before` and `put_after` put the item itself there.
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled_inline

from .agenda_kernel import push, push_next, push_previous
from .horizon_arrays import HorizonArrays
from .window_state_kernel import WindowState, lower_after, raise_before


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
    """Suppose that all open items of the device's k-th queue precede the item, or that all follow it.

    An item of that queue is open here if the windows do not decide whether it precedes or follows `item`.

    Parameters
    ----------
    arrays, state
        The queues, and the windows, in which the supposition is recorded.
    item
        The item.
    k
        The number of the other queue among those of the item's device.
    follows
        True to suppose that all open items follow the item, False to suppose that all of them precede it.
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
