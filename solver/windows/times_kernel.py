"""The rules that narrow the start of an item and the start of its device's frame, compiled.

Here `early` and `late` are the least and the largest start of an item, in ticks, as far as the rules applied
so far have narrowed them.
"""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled_inline

from .agenda_kernel import leaves_by, leaves_from, push, push_device, push_earlier, push_later
from .window_state_kernel import HorizonArrays, WindowState, lower_latest, narrow_frame, raise_earliest

_FAR = 2**60


@compiled_inline
def narrow_times(arrays: HorizonArrays, state: WindowState, item: int) -> bool:
    """Narrow the start of an item and the start of its device's frame; return False on a contradiction."""
    graph = arrays.graph
    early = _after_leaders(arrays, state, item)
    late = _before_followers(arrays, state, item)
    if graph.queues[graph.queue[item]].link >= 0:
        late = min(late, _sent_in_time(arrays, state, item))
    early = _busy_until(arrays, state, item, early)
    late = _busy_from(arrays, state, item, late)
    least, most = _work_before(arrays, state, item)
    return _fit_frame(arrays, state, item, early, late, least, most) and _keep(
        arrays,
        state,
        item,
        _in_frame_from(arrays, state, item, early, least),
        _in_frame_until(arrays, state, item, late, most),
    )


@compiled_inline
def _after_leaders(arrays: HorizonArrays, state: WindowState, item: int) -> int:
    """Return an item's least start, in ticks, given the previous item of its queue and all it waits for."""
    graph = arrays.graph
    queue = graph.queue[item]
    rank, early = item - graph.first[queue], state.earliest[item]
    if rank > 0:
        early = max(early, state.earliest[item - 1] + graph.queues[queue].duration)
    if graph.queues[queue].pool:
        return int(early)
    for e in range(graph.queues[queue].begin, graph.queues[queue].end):
        edge = graph.edges[e]
        leader, sender = graph.queues[edge.leader], graph.first[edge.leader] + rank
        early = max(early, state.earliest[sender] + leader.duration + edge.lag)
        if leader.link >= 0 and leader.receiver == queue:
            early = max(early, leaves_from(arrays, state, sender) + leader.travel)
    return int(early)


@compiled_inline
def _before_followers(arrays: HorizonArrays, state: WindowState, item: int) -> int:
    """Return an item's largest start, in ticks, given the next item of its queue and all that wait for it."""
    graph = arrays.graph
    queue = graph.queue[item]
    rank, late = item - graph.first[queue], state.latest[item]
    if item + 1 < graph.first[queue + 1]:
        late = min(late, state.latest[item + 1] - graph.queues[queue].duration)
    for e in range(graph.leads[queue], graph.leads[queue + 1]):
        edge = graph.edges[graph.followers[e]]
        if not edge.pooled:
            due = state.latest[graph.first[edge.follower] + rank]
            late = min(late, due - edge.lag - graph.queues[queue].duration)
    return int(late)


@compiled_inline
def _sent_in_time(arrays: HorizonArrays, state: WindowState, item: int) -> int:
    """Return the largest start, in ticks, with which the item's message can leave over its link in time.

    If the message cannot arrive by the receiver's least start, the receiver is put on the agenda.
    """
    graph = arrays.graph
    queue = graph.queue[item]
    receiver = graph.first[graph.queues[queue].receiver] + item - graph.first[queue]
    late = leaves_by(arrays, state, item) - graph.queues[queue].duration
    if leaves_from(arrays, state, item) + graph.queues[queue].travel > state.earliest[receiver]:
        push(state, receiver)
    return int(late)


@compiled_inline
def _work_before(arrays: HorizonArrays, state: WindowState, item: int) -> tuple[int, int]:
    """Return the least and the most ticks that the device works before the item."""
    graph = arrays.graph
    queue = graph.queue[item]
    device = graph.queues[queue].device
    least, most = 0, -graph.queues[queue].duration  # `after` counts the item itself
    for k in range(graph.devices[device].queues):
        duration = graph.queues[graph.devices[device].queue + k].duration
        least += duration * state.before[item, k]
        most += duration * state.after[item, k]
    return least, most


@compiled_inline
def _fit_frame(
    arrays: HorizonArrays, state: WindowState, item: int, early: int, late: int, least: int, most: int
) -> bool:
    """Narrow the start of the device's frame by the window of an item; return False on a contradiction.

    Between the start of the frame and the start of the item lies at least the work that surely precedes the
    item, and at most the work that may precede it plus all idle time of the device. If the item opens the
    device, the frame starts with it.

    - `arrays`, `state`, `item`: the queues, the windows, and the item.
    - `early`, `late`: the least and the largest start of the item, in ticks.
    - `least`, `most`: the least and the most ticks that the device works before the item.
    """
    graph = arrays.graph
    device = graph.queues[graph.queue[item]].device
    earliest = early if arrays.opening[device] == item else early - arrays.idle[device] - most
    earliest = max(earliest, state.frame_earliest[device])
    latest = min(late - least, state.frame_latest[device])
    if earliest > latest:
        return False
    if earliest > state.frame_earliest[device] or latest < state.frame_latest[device]:
        narrow_frame(state, device, earliest, latest)
        push_device(arrays, state, device)
    return True


@compiled_inline
def _in_frame_from(arrays: HorizonArrays, state: WindowState, item: int, early: int, least: int) -> int:
    """Return the larger of `early` and the frame's least start plus `least`, the work before the item."""
    graph = arrays.graph
    return int(max(early, state.frame_earliest[graph.queues[graph.queue[item]].device] + least))


@compiled_inline
def _in_frame_until(arrays: HorizonArrays, state: WindowState, item: int, late: int, most: int) -> int:
    """Return the smaller of `late` and the largest start at which the item fits into its device's frame.

    The latter is the frame's largest start plus the device's idle time and all work that may precede the
    item; for the item that opens the device, it is the frame's largest start alone.
    """
    graph = arrays.graph
    device = graph.queues[graph.queue[item]].device
    if arrays.opening[device] == item:
        return int(min(late, state.frame_latest[device]))
    return int(min(late, state.frame_latest[device] + arrays.idle[device] + most))


@compiled_inline
def _busy_until(arrays: HorizonArrays, state: WindowState, item: int, enough: int) -> int:
    """Return the item's least start, in ticks, given the work of the items that surely precede the item.

    For every set of predecessors, the item starts no earlier than the least start among them plus their work.
    The function looks at the sets of the one, two, and so on up to `deep` predecessors with the largest
    least starts. It returns `enough`, the least start known so far, if these sets give nothing larger.
    """
    graph = arrays.graph
    device, cursor = graph.queues[graph.queue[item]].device, state.cursor
    work, left, bottom = 0, 0, _FAR
    for k in range(graph.devices[device].queues):
        cursor[k] = state.before[item, k]
        left += graph.queues[graph.devices[device].queue + k].duration * cursor[k]
    for _ in range(arrays.deep):
        if left == 0:
            break
        latest, at = -_FAR, -1
        for k in range(graph.devices[device].queues):
            if cursor[k] > 0:
                start = state.earliest[graph.first[graph.devices[device].queue + k] + cursor[k] - 1]
                if start > latest:
                    latest, at = start, k
        bottom = min(bottom, latest)  # least starts may fall along a queue until all rules are applied
        if bottom + work + left <= enough:
            break
        cursor[at] -= 1
        duration = graph.queues[graph.devices[device].queue + at].duration
        work += duration
        left -= duration
        enough = max(enough, bottom + work)
    return enough


@compiled_inline
def _busy_from(arrays: HorizonArrays, state: WindowState, item: int, enough: int) -> int:
    """Return the item's largest start, in ticks, given the work of the items that surely follow the item.

    This is the mirror image of `_busy_until`: the function looks at the up to `deep` followers with the
    smallest latest ends, and returns `enough`, the largest start known so far, if they give nothing smaller.
    """
    graph = arrays.graph
    device, cursor = graph.queues[graph.queue[item]].device, state.cursor
    work, left, top = graph.queues[graph.queue[item]].duration, 0, -_FAR
    for k in range(graph.devices[device].queues):
        other = graph.devices[device].queue + k
        cursor[k] = graph.first[other] + state.after[item, k]
        left += graph.queues[other].duration * (graph.first[other + 1] - cursor[k])
    for _ in range(arrays.deep):
        if left == 0:
            break
        soonest, at = _FAR, -1
        for k in range(graph.devices[device].queues):
            other = graph.devices[device].queue + k
            if cursor[k] < graph.first[other + 1]:
                end = state.latest[cursor[k]] + graph.queues[other].duration
                if end < soonest:
                    soonest, at = end, k
        top = max(top, soonest)
        if top - work - left >= enough:
            break
        cursor[at] += 1
        duration = graph.queues[graph.devices[device].queue + at].duration
        work += duration
        left -= duration
        enough = min(enough, top - work)
    return enough


@compiled_inline
def _keep(arrays: HorizonArrays, state: WindowState, item: int, early: int, late: int) -> bool:
    """Write the least and the largest start of the item into the windows; return False if they cross."""
    if early > late:
        return False
    if early > state.earliest[item]:
        raise_earliest(state, item, early)
        push_later(arrays, state, item)
    if late < state.latest[item]:
        lower_latest(state, item, late)
        push_earlier(arrays, state, item)
    return True
