"""The rules that narrow a box, compiled; each follows from the model, so what holds stays in the box.

An item is worked on when something that its rules read has changed. Its orders come first:
transitivity over the nearest decided neighbours, pools, memory, pairs of which one order does not fit
into the windows, and the work that fits before it. Then its times: precedence, the work that surely
lies before and after it on its device, messages that wait for their links, and the idle time that the
device has left. Not reaching the last
fixed point costs strength, never validity.
"""

from __future__ import annotations

from typing import Any

from tightpipe.kernels.compiled import compiled

from .links_kernel import due, leaves_by, leaves_from
from .window_state_kernel import COUNT, ON, SIZE, STEPS, pop, push, put

_FAR = 2**60
_DEEP = 16  # latest predecessors looked at: all take 15 times as long at 24 x 192, and decide 0.02 % more


@compiled
def propagate(net: Any, box: Any, steps: int) -> bool:
    """Work off the agenda, at most `steps` items; return False on a contradiction."""
    possible = True
    state = box.state
    left = steps
    while state[COUNT] > 0 and left > 0 and possible:
        if state[ON] == 1 and state[SIZE] + 4 * len(net.queue) > len(box.trail):
            break  # no room to record what one more item may change
        left -= 1
        state[STEPS] += 1
        item = pop(box)
        possible = _order(net, box, item) and _time(net, box, item)
    return possible


@compiled
def suppose(net: Any, box: Any, item: int, slot: int, follows: bool) -> None:
    """Put an open element of `slot` on one side of the item: the first one after it, or the last one before.

    Parameters
    ----------
    follows
        True: all open elements of the slot follow the item; False: all precede it.
    """
    items, slots = len(net.queue), net.members.shape[1]
    before, after = items + item * slots + slot, len(box.value) // 2 + items + item * slots + slot
    if follows:
        _lower_after(net, box, item, slot, box.value[before])
    else:
        _raise_before(net, box, item, slot, box.value[after])
    push(box, item)


@compiled
def exclude(net: Any, box: Any, item: int, slot: int, follows: bool) -> None:
    """Take what `suppose` supposed as impossible: the element nearest to it is on the other side."""
    items, slots = len(net.queue), net.members.shape[1]
    before, after = items + item * slots + slot, len(box.value) // 2 + items + item * slots + slot
    if follows:
        _raise_before(net, box, item, slot, box.value[before] + 1)
    else:
        _lower_after(net, box, item, slot, box.value[after] - 1)
    push(box, item)


@compiled
def _raise_before(net: Any, box: Any, item: int, slot: int, count: int) -> None:
    """Put the first `count` elements of the slot before the item."""
    items, slots, half = len(net.queue), net.members.shape[1], len(box.value) // 2
    queue = net.queue[item]
    rank, own = item - net.first[queue], net.slot[queue]
    first = net.first[net.members[net.device[queue], slot]]
    put(box, items + item * slots + slot, count)
    other = first + count - 1
    while other >= first and box.value[half + items + other * slots + own] > rank:
        put(box, half + items + other * slots + own, rank)
        push(box, other)
        other -= 1
    if item + 1 < net.first[queue + 1]:
        push(box, item + 1)


@compiled
def _lower_after(net: Any, box: Any, item: int, slot: int, count: int) -> None:
    """Put the elements of the slot from `count` on after the item."""
    items, slots, half = len(net.queue), net.members.shape[1], len(box.value) // 2
    queue = net.queue[item]
    rank, own = item - net.first[queue], net.slot[queue]
    there = net.members[net.device[queue], slot]
    put(box, half + items + item * slots + slot, count)
    other = net.first[there] + count
    while other < net.first[there + 1] and box.value[items + other * slots + own] <= rank:
        put(box, items + other * slots + own, rank + 1)
        push(box, other)
        other += 1
    if rank > 0:
        push(box, item - 1)


@compiled
def _order(net: Any, box: Any, item: int) -> bool:
    """Narrow the orders of an item; False on a contradiction."""
    items, slots, half = len(net.queue), net.members.shape[1], len(box.value) // 2
    queue = net.queue[item]
    rank, own, device = item - net.first[queue], net.slot[queue], net.device[queue]
    low, high, value = box.low, box.high, box.value
    start = items + item * slots
    for b in range(slots):
        low[b], high[b] = value[start + b], value[half + start + b]
    if rank > 0:
        for b in range(slots):
            low[b] = max(low[b], value[start - slots + b])
    if item + 1 < net.first[queue + 1]:
        for b in range(slots):
            high[b] = min(high[b], value[half + start + slots + b])
    _close_transitively(net, box, device, own)
    if low[own] > rank or high[own] < rank + 1:
        return False
    low[own], high[own] = rank, rank + 1
    _count_pools(net, box, queue, rank, device)
    if net.delta[queue] > 0 and net.limit[device] >= 0 and not _count_memory(net, box, queue, rank, device):
        return False
    for b in range(slots):
        there = net.members[device, b]
        if there < 0 or b == own:
            continue
        if not _fit_in_time(net, box, item, queue, there, b):
            return False
    if net.link[queue] >= 0 and not _fit_on_link(net, box, item, queue, device):
        return False
    if not _count_work(net, box, item, queue, device):
        return False
    for b in range(slots):
        if net.members[device, b] < 0 or b == own:
            continue
        if low[b] > value[start + b]:
            _raise_before(net, box, item, b, low[b])
            push(box, item)
        if high[b] < value[half + start + b]:
            _lower_after(net, box, item, b, high[b])
            push(box, item)
    return True


@compiled
def _close_transitively(net: Any, box: Any, device: int, own: int) -> None:
    """What precedes a sure predecessor precedes; what follows a sure follower follows."""
    items, slots, half = len(net.queue), net.members.shape[1], len(box.value) // 2
    low, high, value = box.low, box.high, box.value
    for b in range(slots):
        there = net.members[device, b]
        if there < 0 or b == own:
            continue
        if low[b] > 0:
            near = items + (net.first[there] + low[b] - 1) * slots
            for c in range(slots):
                low[c] = max(low[c], value[near + c])
        if net.first[there] + high[b] < net.first[there + 1]:
            near = half + items + (net.first[there] + high[b]) * slots
            for c in range(slots):
                high[c] = min(high[c], value[near + c])


@compiled
def _count_pools(net: Any, box: Any, queue: int, rank: int, device: int) -> None:
    """At any point of a device no more W's of a pool have run than B's that fill it."""
    low, high = box.low, box.high
    for b in range(net.members.shape[1]):
        pool = net.members[device, b]
        if pool < 0 or net.sources[pool, 0] < 0:
            continue
        most = 0
        for s in range(net.sources.shape[1]):
            source = net.sources[pool, s]
            if source >= 0:
                most += rank if source == queue else high[net.slot[source]]
        least = rank + 1 if pool == queue else low[b]
        if pool != queue:
            high[b] = min(high[b], most)
        for s in range(net.sources.shape[1]):
            source = net.sources[pool, s]
            if source >= 0 and source != queue:
                c = net.slot[source]
                low[c] = max(low[c], least - (most - high[c]))


@compiled
def _count_memory(net: Any, box: Any, queue: int, rank: int, device: int) -> bool:
    """What the device holds when the item has started is within its limit; False if it cannot be."""
    low, high = box.low, box.high
    least = (rank + 1) * net.delta[queue]
    for b in range(net.members.shape[1]):
        there = net.members[device, b]
        if there >= 0 and there != queue:
            least += net.delta[there] * (low[b] if net.delta[there] > 0 else high[b])
    slack = net.limit[device] - least
    if slack < 0:
        return False
    for b in range(net.members.shape[1]):
        there = net.members[device, b]
        if there < 0 or there == queue or net.delta[there] == 0:
            continue
        if net.delta[there] > 0:
            high[b] = min(high[b], low[b] + slack // net.delta[there])
        else:
            low[b] = max(low[b], high[b] - slack // -net.delta[there])
    return True


@compiled
def _fit_in_time(net: Any, box: Any, item: int, queue: int, there: int, b: int) -> bool:
    """Decide the elements of a slot that fit on one side of the item only; False if one fits on none."""
    low, high, value = box.low, box.high, box.value
    half, first = len(value) // 2, net.first[there]
    end = value[item] + net.duration[queue]
    while low[b] < high[b] and end > value[half + first + low[b]]:
        low[b] += 1
    latest = value[half + item] - net.duration[there]
    while low[b] < high[b] and value[first + high[b] - 1] > latest:
        high[b] -= 1
    return bool(low[b] <= high[b])


@compiled
def _fit_on_link(net: Any, box: Any, item: int, queue: int, device: int) -> bool:
    """Decide the senders over the item's link whose messages fit on one side of its message only."""
    low, high, value, busy = box.low, box.high, box.value, net.occupancy
    soonest, latest = leaves_from(net, box, item) + busy, leaves_by(net, box, item) - busy
    for b in range(net.members.shape[1]):
        there = net.members[device, b]
        if there < 0 or there == queue or net.link[there] != net.link[queue]:
            continue
        first, duration = net.first[there], net.duration[there]
        while low[b] < high[b] and soonest > due(net, box, first + low[b]):
            low[b] += 1
        while low[b] < high[b] and value[first + high[b] - 1] + duration > latest:
            high[b] -= 1
    return bool(latest + 2 * busy >= soonest)


@compiled
def _count_work(net: Any, box: Any, item: int, queue: int, device: int) -> bool:
    """What precedes the item fills the time before it, but for what the device may idle.

    So the work before it lies between ``earliest - largest frame start - idle`` and ``latest - least frame
    start``; False if it cannot.
    """
    low, high, value, half = box.low, box.high, box.value, len(box.value) // 2
    frame = len(net.queue) * (1 + net.members.shape[1]) + device
    least, most = 0, 0
    for b in range(net.members.shape[1]):
        there = net.members[device, b]
        if there >= 0:
            least += net.duration[there] * low[b]
            most += net.duration[there] * (high[b] if there != queue else low[b])
    room = value[half + item] - value[frame] - least
    spare = most - (value[item] - value[half + frame] - net.idle[device])
    if room < 0 or spare < 0:
        return False
    for b in range(net.members.shape[1]):
        there = net.members[device, b]
        if there >= 0 and there != queue and net.duration[there] > 0:
            fewest, largest = low[b], high[b]
            high[b] = min(largest, fewest + room // net.duration[there])
            low[b] = max(fewest, largest - spare // net.duration[there])
    return True


@compiled
def _time(net: Any, box: Any, item: int) -> bool:
    """Narrow the start of an item and of its device's frame; False on a contradiction."""
    half, value = len(box.value) // 2, box.value
    queue = net.queue[item]
    rank, device = item - net.first[queue], net.device[queue]
    early, late = value[item], value[half + item]
    if rank > 0:
        early = max(early, value[item - 1] + net.duration[queue])
    if item + 1 < net.first[queue + 1]:
        late = min(late, value[half + item + 1] - net.duration[queue])
    for e in range(net.leaders.shape[1]):
        q = net.leaders[queue, e, 0]
        if q >= 0:
            early = max(early, value[net.first[q] + rank] + net.leaders[queue, e, 1])
            if net.link[q] >= 0 and net.receiver[q] == queue:
                early = max(early, leaves_from(net, box, net.first[q] + rank) + net.travel[q])
    for e in range(net.followers.shape[1]):
        r = net.followers[queue, e, 0]
        if r >= 0:
            late = min(late, value[half + net.first[r] + rank] - net.followers[queue, e, 1])
    if net.link[queue] >= 0:
        late = min(late, leaves_by(net, box, item) - net.duration[queue])
        receiver = net.first[net.receiver[queue]] + rank
        if leaves_from(net, box, item) + net.travel[queue] > value[receiver]:
            push(box, receiver)
    early = max(early, _busy_until(net, box, item, queue, device, early))
    late = min(late, _busy_from(net, box, item, queue, device, late))
    least, most = _work_before(net, box, item, queue, device)
    begin = early if net.opening[device] == item else early - net.idle[device] - most
    if not _frame(net, box, device, begin, late - least):
        return False
    frame = len(net.queue) * (1 + net.members.shape[1]) + device
    early = max(early, value[frame] + least)
    late = min(late, value[half + frame] + net.idle[device] + most)
    if net.opening[device] == item:
        late = min(late, value[half + frame])
    if early > late:
        return False
    if early > value[item]:
        put(box, item, early)
        _wake_after(net, box, item, queue, rank, device)
    if late < value[half + item]:
        put(box, half + item, late)
        _wake_before(net, box, item, queue, rank, device)
    return True


@compiled
def _work_before(net: Any, box: Any, item: int, queue: int, device: int) -> tuple[int, int]:
    """Least and most work of the device before the item."""
    items, slots, half = len(net.queue), net.members.shape[1], len(box.value) // 2
    start, own = items + item * slots, net.slot[queue]
    least, most = 0, 0
    for b in range(slots):
        there = net.members[device, b]
        if there >= 0:
            least += net.duration[there] * box.value[start + b]
            most += net.duration[there] * (box.value[half + start + b] - (1 if b == own else 0))
    return least, most


@compiled
def _frame(net: Any, box: Any, device: int, begin: int, latest: int) -> bool:
    """Narrow the start of the device's frame; False on a contradiction.

    Parameters
    ----------
    begin
        What an item shows: the device idles no more than its share before it, or begins with it.
    latest
        What an item shows: the device runs before it what surely precedes it.
    """
    value, frame = box.value, len(net.queue) * (1 + net.members.shape[1]) + device
    half = len(value) // 2
    begin, latest = max(begin, value[frame]), min(latest, value[half + frame])
    if begin > latest:
        return False
    if begin > value[frame] or latest < value[half + frame]:
        put(box, frame, begin)
        put(box, half + frame, latest)
        for b in range(net.members.shape[1]):
            there = net.members[device, b]
            if there >= 0:
                for other in range(net.first[there], net.first[there + 1]):
                    push(box, other)
    return True


@compiled
def _busy_until(net: Any, box: Any, item: int, queue: int, device: int, enough: int) -> int:
    """When the device can have run what surely precedes the item; `enough` where that is no later.

    For every set of a few latest predecessors: the earliest start among them plus their work.
    """
    items, slots, value, place = len(net.queue), net.members.shape[1], box.value, box.place
    work, left, bottom = 0, 0, _FAR
    for b in range(slots):
        place[b] = value[items + item * slots + b]
        there = net.members[device, b]
        if there >= 0:
            left += net.duration[there] * place[b]
    for _ in range(_DEEP):
        if left == 0:
            break
        latest, at = -_FAR, -1
        for b in range(slots):
            there = net.members[device, b]
            if there >= 0 and place[b] > 0 and value[net.first[there] + place[b] - 1] > latest:
                latest, at = value[net.first[there] + place[b] - 1], b
        bottom = min(bottom, latest)  # starts rise along a queue at the fixed point only
        if bottom + work + left <= enough:
            break
        place[at] -= 1
        duration = net.duration[net.members[device, at]]
        work += duration
        left -= duration
        enough = max(enough, bottom + work)
    return enough


@compiled
def _busy_from(net: Any, box: Any, item: int, queue: int, device: int, enough: int) -> int:
    """Latest start of the item before what surely follows it: the mirror image of `_busy_until`."""
    items, slots, value, place = len(net.queue), net.members.shape[1], box.value, box.place
    half, work, left, top = len(value) // 2, net.duration[queue], 0, -_FAR
    for b in range(slots):
        place[b] = value[half + items + item * slots + b]
        there = net.members[device, b]
        if there >= 0:
            left += net.duration[there] * (net.first[there + 1] - net.first[there] - place[b])
    for _ in range(_DEEP):
        if left == 0:
            break
        soonest, at = _FAR, -1
        for b in range(slots):
            there = net.members[device, b]
            if there >= 0 and net.first[there] + place[b] < net.first[there + 1]:
                end = value[half + net.first[there] + place[b]] + net.duration[there]
                if end < soonest:
                    soonest, at = end, b
        top = max(top, soonest)
        if top - work - left >= enough:
            break
        place[at] += 1
        duration = net.duration[net.members[device, at]]
        work += duration
        left -= duration
        enough = min(enough, top - work)
    return enough


@compiled
def _wake_after(net: Any, box: Any, item: int, queue: int, rank: int, device: int) -> None:
    """Put on the agenda what a later start of the item can move."""
    items, slots, half = len(net.queue), net.members.shape[1], len(box.value) // 2
    push(box, item)
    if item + 1 < net.first[queue + 1]:
        push(box, item + 1)
    for e in range(net.followers.shape[1]):
        r = net.followers[queue, e, 0]
        if r >= 0:
            push(box, net.first[r] + rank)
    for b in range(slots):
        there = net.members[device, b]
        if there >= 0 and there != queue:
            near = net.first[there] + box.value[half + items + item * slots + b]
            if near < net.first[there + 1]:
                push(box, near)


@compiled
def _wake_before(net: Any, box: Any, item: int, queue: int, rank: int, device: int) -> None:
    """Put on the agenda what an earlier start of the item can move."""
    items, slots = len(net.queue), net.members.shape[1]
    push(box, item)
    if rank > 0:
        push(box, item - 1)
    for e in range(net.leaders.shape[1]):
        q = net.leaders[queue, e, 0]
        if q >= 0:
            push(box, net.first[q] + rank)
    for b in range(slots):
        there = net.members[device, b]
        if there >= 0 and there != queue:
            near = box.value[items + item * slots + b] - 1
            if near >= 0:
                push(box, net.first[there] + near)
