"""Propagation and shaving, compiled: apply the rules until no window narrows; suppose one order.

Each rule follows from the model, so a schedule of cost at most the horizon that lies in the windows before a
rule is applied also lies in them afterwards. The rules for the orders of an item come first, then those for
its times, which stand here: `early` and `late` are the least and the largest start of an item, in ticks, as
far as the rules applied so far have narrowed them. If the work ends while rules could still find something,
the windows are wider than they could be, but they hold.

*Shaving* proves a decision by contradiction. If no schedule lies in the windows once an item is supposed to
precede another one, then it follows that item in every schedule of cost at most the horizon.

*Looking ahead* counts what a supposition leaves open. It is about an item and another queue of its device,
and says that the items of that queue whose order with the item is open all follow it, or all precede it.

References
----------
P. Martin and D. B. Shmoys, "A new approach to computing optimal schedules for the job-shop scheduling
problem", IPCO 1996; J. Carlier and E. Pinson, "Adjustment of heads and tails for the job-shop problem",
European Journal of Operational Research 78 (1994).
"""

from __future__ import annotations

from tightpipe.kernels.arrays import Bools, Ints
from tightpipe.kernels.compiled import compiled, compiled_inline

from .agenda_kernel import (
    clear,
    exclude,
    leaves_by,
    leaves_from,
    pop,
    push,
    push_device,
    push_earlier,
    push_later,
    suppose,
)
from .orders_kernel import narrow_orders
from .window_state_kernel import (
    LENGTH,
    RECORDED,
    RECORDING,
    STEPS,
    HorizonArrays,
    WindowState,
    lower_latest,
    narrow_frame,
    raise_earliest,
    undo,
)

_FAR = 2**60


@compiled
def propagate(arrays: HorizonArrays, state: WindowState, steps: int) -> bool:
    """Apply the rules to at most `steps` items of the agenda; return False on a contradiction.

    The work also ends, without a contradiction, when the trail has no room for the changes of one more item.
    """
    possible, left = True, steps
    while possible and left > 0 and state.counter[LENGTH] > 0 and _is_room(state):
        left -= 1
        state.counter[STEPS] += 1
        item = pop(state)
        possible = narrow_orders(arrays, state, item) and narrow_times(arrays, state, item)
    return possible


@compiled_inline
def _is_room(state: WindowState) -> bool:
    """Return whether the trail has room to record all that the rules of one more item may change."""
    room = len(state.trail) - 4 * len(state.agenda)
    return bool(state.counter[RECORDING] == 0 or state.counter[RECORDED] <= room)


@compiled
def shave(
    arrays: HorizonArrays, state: WindowState, items: Ints, steps: int, fruitful: Bools, exhausted: Bools
) -> bool:
    """Apply the rules, then shave the open orders of some items one after another.

    Return False if no schedule lies in the windows. Python asks for the rules alone by this function too,
    with no items, because a function of its own would compile all rules a second time. For the same reason
    suppositions are tried here: numba optimises what a loop calls once more at each level of calls.

    - `steps`: the number of items that propagation may work on: first those of the agenda, then for each
      supposition. It can be small, because most contradictions come early.
    - `fruitful`: shape (N,) for all N items; receives, for each shaved item, whether one of its orders was
      decided.
    - `exhausted`: shape (N,); true where it is known that no supposition about the item is refuted in these
      windows, however large `steps` is. Such an item is passed over until this call decides an order.
      Receives the new values of the items in `items`; a decision about a later item makes them out of date.
    """
    graph = arrays.graph
    if not propagate(arrays, state, steps):
        return False
    changed = False
    for item in items:
        fruitful[item] = False
        if exhausted[item] and not changed:
            continue
        exhausted[item] = True
        queue = graph.queue[item]
        for side in range(2 * graph.devices[graph.queues[queue].device].queues):
            k, follows = side // 2, side % 2 == 0
            while k != graph.queues[queue].local and state.before[item, k] < state.after[item, k]:
                state.counter[RECORDING] = 1
                suppose(arrays, state, item, k, follows)
                stands, ended = propagate(arrays, state, steps), state.counter[LENGTH] == 0
                clear(state)
                undo(state)
                if not stands or not ended:  # without either, no larger number of steps refutes it
                    exhausted[item] = False
                if stands:
                    break
                changed = fruitful[item] = True
                exclude(arrays, state, item, k, follows)
                if not propagate(arrays, state, _FAR):
                    return False
    return True


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
    device = graph.queues[graph.queue[item]].device
    least, most = _since_frame(arrays, state, item)
    return _fit_frame(arrays, state, device, early - most, late - least) and _keep(
        arrays,
        state,
        item,
        max(early, state.frame_earliest[device] + least),
        min(late, state.frame_latest[device] + most),
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
def _since_frame(arrays: HorizonArrays, state: WindowState, item: int) -> tuple[int, int]:
    """Return the least and the most ticks from the start of the device's frame to that of the item.

    Between them lies at least the work that surely precedes the item, and at most the work that may precede
    it plus all idle time of the device. The item that opens the device starts with the frame.
    """
    graph = arrays.graph
    queue = graph.queue[item]
    device = graph.queues[queue].device
    least, most = 0, arrays.idle[device] - graph.queues[queue].duration  # `after` counts the item itself
    for k in range(graph.devices[device].queues):
        duration = graph.queues[graph.devices[device].queue + k].duration
        least += duration * state.before[item, k]
        most += duration * state.after[item, k]
    return least, 0 if arrays.opening[device] == item else most


@compiled_inline
def _fit_frame(arrays: HorizonArrays, state: WindowState, device: int, earliest: int, latest: int) -> bool:
    """Narrow the start of a device's frame to a range in ticks; return False on a contradiction."""
    earliest = max(earliest, state.frame_earliest[device])
    latest = min(latest, state.frame_latest[device])
    if earliest > latest:
        return False
    if earliest > state.frame_earliest[device] or latest < state.frame_latest[device]:
        narrow_frame(state, device, earliest, latest)
        push_device(arrays, state, device)
    return True


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
    """Return the largest start, in ticks, given what surely follows: the mirror image of `_busy_until`."""
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


REFUTED = -1
NOT_OPEN = -2


@compiled
def fails(arrays: HorizonArrays, state: WindowState, item: int, k: int, follows: bool, steps: int) -> bool:
    """Return whether a supposition, as in `left_under`, leads to a contradiction; the state is kept."""
    return left_under(arrays, state, item, k, follows, steps) == REFUTED


@compiled
def left_under(
    arrays: HorizonArrays, state: WindowState, item: int, k: int, follows: bool, steps: int
) -> int:
    """Return how many orders stay open under a supposition, or `REFUTED` if it leads to a contradiction.

    The result counts, for each item, the items of its device that neither surely precede nor surely follow
    the item: an open order at both of its items, and every item itself once. The supposition is that all
    items of the device's k-th queue whose order with the item is open follow it, or precede it. All rules
    have been applied to the windows, which stay as they are; propagation may work on `steps` items.
    """
    graph = arrays.graph
    state.counter[RECORDING], state.counter[RECORDED] = 1, 0
    suppose(arrays, state, item, k, follows)
    left = REFUTED
    if propagate(arrays, state, steps):
        left = 0
        for i in range(len(state.agenda)):
            for other in range(graph.devices[graph.queues[graph.queue[i]].device].queues):
                left += state.after[i, other] - state.before[i, other]
    clear(state)
    undo(state)
    return left


@compiled
def look(arrays: HorizonArrays, state: WindowState, steps: int, found: Ints) -> None:
    """Write to `found` what `left_under` returns for every supposition.

    `found` has the shape (N, M, 2), for N items and at most M queues on a device. ``found[item, k, 1]`` is
    for the supposition that the items of the k-th queue of the item's device whose order with the item is
    open follow it, and ``found[item, k, 0]`` for the supposition that they precede it. Both are `NOT_OPEN` if
    no such order is open.
    """
    graph = arrays.graph
    for item in range(len(state.agenda)):
        queue = graph.queue[item]
        for k in range(found.shape[1]):
            exists = k < graph.devices[graph.queues[queue].device].queues and k != graph.queues[queue].local
            is_open = exists and state.before[item, k] < state.after[item, k]
            for side in range(2):
                found[item, k, side] = NOT_OPEN
                if is_open:
                    found[item, k, side] = left_under(arrays, state, item, k, side == 1, steps)
