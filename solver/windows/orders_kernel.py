"""The rules that narrow the orders of an item, compiled: which items of its device precede or follow it.

The orders of the item are copied into `low` and `high` of the state, narrowed there by one rule after
another, and written back where that has decided something. In each rule, the first ``low[k]`` items of the
device's k-th queue surely precede the item, and those from rank ``high[k]`` on surely follow it.
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled_inline
from tightpipe.model.graph import NO_LIMIT

from .agenda_kernel import due, leaves_by, leaves_from, push, put_after, put_before
from .window_state_kernel import HorizonArrays, WindowState


@compiled_inline
def narrow_orders(arrays: HorizonArrays, state: WindowState, item: int) -> bool:
    """Narrow the orders of an item; return False on a contradiction."""
    _look_up(arrays, state, item)
    _close_transitively(arrays, state, item)
    if not _fix_own(arrays, state, item):
        return False
    _count_pools(arrays, state, item)
    _count_memory(arrays, state, item)
    possible = (
        _fit_in_time(arrays, state, item)
        and _fit_on_link(arrays, state, item)
        and _count_work(arrays, state, item)
    )
    if possible:
        _keep(arrays, state, item)
    return possible


@compiled_inline
def _look_up(arrays: HorizonArrays, state: WindowState, item: int) -> None:
    """Copy into `low` and `high` what is known of the item and of its neighbours in its queue.

    What precedes the previous item of the queue precedes this one as well, and what follows the next item of
    the queue follows this one as well.
    """
    graph = arrays.graph
    queue = graph.queue[item]
    has_previous, has_next = item > graph.first[queue], item + 1 < graph.first[queue + 1]
    for k in range(graph.devices[graph.queues[queue].device].queues):
        state.low[k], state.high[k] = state.before[item, k], state.after[item, k]
        if has_previous:
            state.low[k] = max(state.low[k], state.before[item - 1, k])
        if has_next:
            state.high[k] = min(state.high[k], state.after[item + 1, k])


@compiled_inline
def _close_transitively(arrays: HorizonArrays, state: WindowState, item: int) -> None:
    """Apply transitivity: what precedes a sure predecessor precedes the item, and likewise for followers."""
    graph = arrays.graph
    low, high, own = state.low, state.high, graph.queues[graph.queue[item]].local
    device = graph.queues[graph.queue[item]].device
    for k in range(graph.devices[device].queues):
        if k == own:
            continue
        there = graph.devices[device].queue + k
        first, end = graph.first[there], graph.first[there + 1]
        if low[k] > 0:
            for other in range(graph.devices[device].queues):
                low[other] = max(low[other], state.before[first + low[k] - 1, other])
        if first + high[k] < end:
            for other in range(graph.devices[device].queues):
                high[other] = min(high[other], state.after[first + high[k], other])


@compiled_inline
def _fix_own(arrays: HorizonArrays, state: WindowState, item: int) -> bool:
    """Set the orders within the item's own queue; return False if the item would precede or follow itself."""
    graph = arrays.graph
    queue = graph.queue[item]
    rank, own = item - graph.first[queue], graph.queues[queue].local
    if state.low[own] > rank or state.high[own] < rank + 1:
        return False
    state.low[own], state.high[own] = rank, rank + 1
    return True


@compiled_inline
def _count_pools(arrays: HorizonArrays, state: WindowState, item: int) -> None:
    """Apply the rule of pools: up to any point of a device's word there are no more W's of a pool than B's.

    The B's that count are those whose W's the pool holds.
    """
    graph = arrays.graph
    queue = graph.queue[item]
    device, rank = graph.queues[queue].device, item - graph.first[queue]
    for k in range(graph.devices[device].queues):
        pool = graph.devices[device].queue + k
        if not graph.queues[pool].pool:
            continue
        most = _most_filled(arrays, state, item, pool)
        least = rank + 1 if pool == queue else state.low[k]
        if pool != queue:
            state.high[k] = min(state.high[k], most)
        for e in range(graph.queues[pool].begin, graph.queues[pool].end):
            source = graph.edges[e].leader
            if source != queue:
                own = graph.queues[source].local
                state.low[own] = max(state.low[own], least - (most - state.high[own]))


@compiled_inline
def _most_filled(arrays: HorizonArrays, state: WindowState, item: int, pool: int) -> int:
    """Return the largest number of B's that may precede the item and whose W's belong to a pool.

    A pool has the W's of a device with the same duration and the same memory, whatever their stage.
    """
    graph = arrays.graph
    queue, most = graph.queue[item], 0
    for e in range(graph.queues[pool].begin, graph.queues[pool].end):
        source = graph.edges[e].leader
        if source == queue:
            most += item - graph.first[queue]
        else:
            most += state.high[graph.queues[source].local]
    return most


@compiled_inline
def _count_memory(arrays: HorizonArrays, state: WindowState, item: int) -> None:
    """Apply the memory limit: once the item has started, the device holds no more than its limit.

    Only an item that takes memory can break the limit. If an item must break the limit, `slack`, which is the
    limit less the least memory held, is negative. Then `low` of another queue rises above its `high`, which
    `_fit_in_time` notices.
    """
    graph = arrays.graph
    queue = graph.queue[item]
    device = graph.queues[queue].device
    if graph.queues[queue].delta <= 0 or graph.devices[device].limit >= NO_LIMIT:
        return
    low, high = state.low, state.high
    slack = graph.devices[device].limit - _least_memory(arrays, state, item)
    for k in range(graph.devices[device].queues):
        other = graph.devices[device].queue + k
        delta = graph.queues[other].delta
        if other != queue and delta > 0:
            high[k] = min(high[k], low[k] + slack // delta)
        elif other != queue and delta < 0:
            low[k] = max(low[k], high[k] - slack // -delta)


@compiled_inline
def _least_memory(arrays: HorizonArrays, state: WindowState, item: int) -> int:
    """Return the least memory that the device can hold once the item has started."""
    graph = arrays.graph
    queue = graph.queue[item]
    device = graph.queues[queue].device
    least = (item - graph.first[queue] + 1) * graph.queues[queue].delta
    for k in range(graph.devices[device].queues):
        other = graph.devices[device].queue + k
        if other != queue:
            least += graph.queues[other].delta * (
                state.low[k] if graph.queues[other].delta > 0 else state.high[k]
            )
    return int(least)


@compiled_inline
def _fit_in_time(arrays: HorizonArrays, state: WindowState, item: int) -> bool:
    """Decide the order of items that only have time before, or only after, the item; False if neither."""
    graph = arrays.graph
    low, high, queue = state.low, state.high, graph.queue[item]
    device, end = graph.queues[queue].device, state.earliest[item] + graph.queues[queue].duration
    for k in range(graph.devices[device].queues):
        other = graph.devices[device].queue + k
        if other == queue:
            continue
        first = graph.first[other]
        while low[k] < high[k] and end > state.latest[first + low[k]]:
            low[k] += 1
        latest = state.latest[item] - graph.queues[other].duration
        while low[k] < high[k] and state.earliest[first + high[k] - 1] > latest:
            high[k] -= 1
        if low[k] > high[k]:
            return False
    return True


@compiled_inline
def _fit_on_link(arrays: HorizonArrays, state: WindowState, item: int) -> bool:
    """Decide the order of each other item whose message can leave only before, or only after, the item's.

    Only items that send over the item's link count. Return False if the item's own message cannot leave in
    time.
    """
    graph = arrays.graph
    low, high, queue = state.low, state.high, graph.queue[item]
    if graph.queues[queue].link < 0:
        return True
    device = graph.queues[queue].device
    leaves, must_leave = leaves_from(arrays, state, item), leaves_by(arrays, state, item)
    for k in range(graph.devices[device].queues):
        other = graph.devices[device].queue + k
        if other == queue or graph.queues[other].link != graph.queues[queue].link:
            continue
        first, duration = graph.first[other], graph.queues[other].duration
        while low[k] < high[k] and leaves + graph.occupancy > due(arrays, state, first + low[k]):
            low[k] += 1
        latest = must_leave - graph.occupancy - duration
        while low[k] < high[k] and state.earliest[first + high[k] - 1] > latest:
            high[k] -= 1
    return bool(leaves <= must_leave)


@compiled_inline
def _count_work(arrays: HorizonArrays, state: WindowState, item: int) -> bool:
    """Apply the limit on idle time: before the item, the device idles at most `idle` ticks of its frame.

    So the work before the item, in ticks, is at least ``earliest - largest start of the frame - idle`` and at
    most ``latest - least start of the frame``. Return False if no choice of predecessors achieves that.
    """
    graph = arrays.graph
    low, high, queue = state.low, state.high, graph.queue[item]
    device = graph.queues[queue].device
    least, most = 0, 0
    for k in range(graph.devices[device].queues):
        other = graph.devices[device].queue + k
        least += graph.queues[other].duration * low[k]
        most += graph.queues[other].duration * (high[k] if other != queue else low[k])
    room = state.latest[item] - state.frame_earliest[device] - least
    spare = most - (state.earliest[item] - state.frame_latest[device] - arrays.idle[device])
    if room < 0 or spare < 0:
        return False
    for k in range(graph.devices[device].queues):
        duration = graph.queues[graph.devices[device].queue + k].duration
        if graph.devices[device].queue + k != queue and duration > 0:
            fewest, largest = low[k], high[k]
            high[k] = min(largest, fewest + room // duration)
            low[k] = max(fewest, largest - spare // duration)
    return True


@compiled_inline
def _keep(arrays: HorizonArrays, state: WindowState, item: int) -> None:
    """Write the decided orders into the windows, and put the items that they affect on the agenda."""
    graph = arrays.graph
    queue = graph.queue[item]
    for k in range(graph.devices[graph.queues[queue].device].queues):
        if k == graph.queues[queue].local:
            continue
        if state.low[k] > state.before[item, k]:
            put_before(arrays, state, item, k, state.low[k])
            push(state, item)
        if state.high[k] < state.after[item, k]:
            put_after(arrays, state, item, k, state.high[k])
            push(state, item)
