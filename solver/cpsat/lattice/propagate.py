"""The rules of `windows`, compiled: orders from heads and tails, heads and tails from orders.

Every function narrows the arrays in place and only by what follows from the model, so the arrays hold
at any time. A contradiction shows that no schedule keeps the horizon.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

NEVER = -(2**60)
CONTRADICTION, FIXED, CHANGED = -1, 0, 1


@njit(cache=True)
def propagate(net: Any, horizon: int, head: Any, tail: Any, before: Any, after: Any) -> int:
    """Apply all rules once; return CHANGED, FIXED when nothing more follows, or CONTRADICTION."""
    if not _close_orders(net, before, after):
        return CONTRADICTION
    timed = _time_items(net, horizon, head, tail, before, after)
    if timed == CONTRADICTION:
        return CONTRADICTION
    ordered = _order_by_time(net, horizon, head, tail, before, after)
    return CHANGED if timed == CHANGED or ordered else FIXED


@njit(cache=True)
def _raise_before(net: Any, i: int, a: int, k: int, q: int, value: int, before: Any, after: Any) -> None:
    """Put the first `value` elements of queue q before item i, the k-th of the queue in slot a."""
    b = net.slot[q]
    before[i, b] = value
    j = net.first[q] + value - 1
    while j >= net.first[q] and after[j, a] > k:
        after[j, a] = k
        j -= 1


@njit(cache=True)
def _lower_after(net: Any, i: int, a: int, k: int, q: int, value: int, before: Any, after: Any) -> None:
    """Put the elements of queue q from `value` on after item i, the k-th of the queue in slot a."""
    b = net.slot[q]
    after[i, b] = value
    j = net.first[q] + value
    while j < net.first[q + 1] and before[j, a] <= k:
        before[j, a] = k + 1
        j += 1


@njit(cache=True)
def _close_orders(net: Any, before: Any, after: Any) -> bool:
    """Precedences, counting rules and transitivity, to their fixed point."""
    changed = True
    while changed:
        changed = False
        for x in range(len(net.duration)):
            for k in range(net.first[x + 1] - net.first[x]):
                state = _close_item(net, x, k, before, after)
                if state < 0:
                    return False
                changed = changed or state > 0
    return True


@njit(cache=True)
def _close_item(net: Any, x: int, k: int, before: Any, after: Any) -> int:
    """Tighten the orders of the k-th item of queue x; 1 if something changed, -1 on a contradiction."""
    i, a, d = net.first[x] + k, net.slot[x], net.device[x]
    width = net.members.shape[1]
    low, high = before[i].copy(), after[i].copy()
    if k > 0:
        low = np.maximum(low, before[i - 1])
    if i + 1 < net.first[x + 1]:
        high = np.minimum(high, after[i + 1])
    for b in range(width):  # transitivity over the nearest decided neighbours
        y = net.members[d, b]
        if y < 0 or b == a:
            continue
        if low[b] > 0:
            low = np.maximum(low, before[net.first[y] + low[b] - 1])
        if high[b] < net.first[y + 1] - net.first[y]:
            high = np.minimum(high, after[net.first[y] + high[b]])
    if low[a] > k or high[a] < k + 1:
        return -1
    low[a], high[a] = k, k + 1
    _count_precedences(net, x, k, low, high)
    if net.sources[x, 0] >= 0:
        _count_sources(net, x, k, low, high)
    if net.delta[x] > 0 and net.limit[d] >= 0 and not _count_memory(net, x, k, low, high):
        return -1
    result = 0
    for b in range(width):
        y = net.members[d, b]
        if y < 0 or b == a:
            continue
        if low[b] > high[b]:
            return -1
        if low[b] > before[i, b]:
            _raise_before(net, i, a, k, y, low[b], before, after)
            result = 1
        if high[b] < after[i, b]:
            _lower_after(net, i, a, k, y, high[b], before, after)
            result = 1
    return result


@njit(cache=True)
def _count_precedences(net: Any, x: int, k: int, low: Any, high: Any) -> None:
    """The k-th of a queue follows the k-th of the queue that it waits for."""
    for e in range(len(net.edges)):
        q, r = net.edges[e, 0], net.edges[e, 1]
        if net.device[q] != net.device[r]:
            continue
        if r == x:
            low[net.slot[q]] = max(low[net.slot[q]], k + 1)
        if q == x:
            high[net.slot[r]] = min(high[net.slot[r]], k)


@njit(cache=True)
def _count_sources(net: Any, x: int, k: int, low: Any, high: Any) -> None:
    """The k-th W has k + 1 of its B's before it."""
    most = 0
    for y in net.sources[x]:
        if y >= 0:
            most += high[net.slot[y]]
    for y in net.sources[x]:
        if y >= 0:
            b = net.slot[y]
            low[b] = max(low[b], k + 1 - (most - high[b]))


@njit(cache=True)
def _count_memory(net: Any, x: int, k: int, low: Any, high: Any) -> bool:
    """Memory when the k-th F of queue x has started is within the limit."""
    d = net.device[x]
    least = (k + 1) * net.delta[x]
    for b in range(net.members.shape[1]):
        y = net.members[d, b]
        if y >= 0 and y != x:
            least += net.delta[y] * (low[b] if net.delta[y] > 0 else high[b])
    slack = net.limit[d] - least
    if slack < 0:
        return False
    for b in range(net.members.shape[1]):
        y = net.members[d, b]
        if y < 0 or y == x or net.delta[y] == 0:
            continue
        if net.delta[y] > 0:
            high[b] = min(high[b], low[b] + slack // net.delta[y])
        else:
            low[b] = max(low[b], high[b] - slack // -net.delta[y])
    return True


@njit(cache=True)
def _time_items(net: Any, horizon: int, head: Any, tail: Any, before: Any, after: Any) -> int:
    """Raise heads and tails under the decided orders."""
    changed = False
    for e in range(len(head)):
        changed = _raise_heads(net, horizon, e, head, tail, before) or changed
        changed = _raise_tails(net, horizon, e, head, tail, after) or changed
        for x in range(len(net.duration)):
            for i in range(net.first[x], net.first[x + 1]):
                if head[e, i] + net.duration[x] + tail[e, i] > horizon:
                    return CONTRADICTION
    return CHANGED if changed else FIXED


@njit(cache=True)
def _frame_start(net: Any, horizon: int, e: int, head: Any, tail: Any, start: Any) -> None:
    """Least distance from the start of frame e to the start of every frame: its latest item less T."""
    start[:] = NEVER
    start[e] = 0
    for x in range(len(net.duration)):
        g = net.frame[net.device[x]]
        for i in range(net.first[x], net.first[x + 1]):
            if head[e, i] > NEVER:
                end = head[e, i] + net.duration[x] + max(tail[g, i], 0)
                start[g] = max(start[g], end - horizon)


@njit(cache=True)
def _frame_end(net: Any, horizon: int, e: int, head: Any, tail: Any, end: Any) -> None:
    """Least distance from the end of every frame to the end of frame e."""
    end[:] = NEVER
    end[e] = 0
    for x in range(len(net.duration)):
        g = net.frame[net.device[x]]
        for i in range(net.first[x], net.first[x + 1]):
            if tail[e, i] > NEVER:
                begin = max(head[g, i], 0) + net.duration[x] + tail[e, i]
                end[g] = max(end[g], begin - horizon)


@njit(cache=True)
def _raise_heads(net: Any, horizon: int, e: int, head: Any, tail: Any, before: Any) -> bool:
    changed = False
    start = np.empty(len(head), np.int64)
    _frame_start(net, horizon, e, head, tail, start)
    for x in range(len(net.duration)):
        g = net.frame[net.device[x]]
        for i in range(net.first[x], net.first[x + 1]):
            value = start[g]
            if value > NEVER:
                value += max(head[g, i], 0)
            value = max(value, _busy_until(net, x, i, head[e], before[i]))
            if value > head[e, i]:
                head[e, i] = value
                changed = True
    for n in range(len(net.edges)):
        q, r, lag = net.edges[n]
        for k in range(net.first[q + 1] - net.first[q]):
            i, j = net.first[q] + k, net.first[r] + k
            value = head[e, i] + net.duration[q] + lag
            if head[e, i] > NEVER and value > head[e, j]:
                head[e, j] = value
                changed = True
    return changed


@njit(cache=True)
def _raise_tails(net: Any, horizon: int, e: int, head: Any, tail: Any, after: Any) -> bool:
    changed = False
    end = np.empty(len(head), np.int64)
    _frame_end(net, horizon, e, head, tail, end)
    for x in range(len(net.duration) - 1, -1, -1):
        g = net.frame[net.device[x]]
        for i in range(net.first[x + 1] - 1, net.first[x] - 1, -1):
            value = end[g]
            if value > NEVER:
                value += max(tail[g, i], 0)
            value = max(value, _busy_from(net, x, i, tail[e], after[i]))
            if value > tail[e, i]:
                tail[e, i] = value
                changed = True
    for n in range(len(net.edges) - 1, -1, -1):
        q, r, lag = net.edges[n]
        for k in range(net.first[q + 1] - net.first[q]):
            i, j = net.first[q] + k, net.first[r] + k
            value = tail[e, j] + net.duration[r] + lag
            if tail[e, j] > NEVER and value > tail[e, i]:
                tail[e, i] = value
                changed = True
    return changed


@njit(cache=True)
def _busy_until(net: Any, x: int, i: int, head: Any, low: Any) -> int:
    """When the device can have run what surely precedes item i: latest start first, max of head + work."""
    d = net.device[x]
    place = low.copy()
    best, work = NEVER, 0
    while True:
        latest, at = NEVER, -1
        for b in range(len(place)):
            y = net.members[d, b]
            if y >= 0 and place[b] > 0 and head[net.first[y] + place[b] - 1] > latest:
                latest, at = head[net.first[y] + place[b] - 1], b
        if at < 0:
            return int(best)
        place[at] -= 1
        work += net.duration[net.members[d, at]]
        best = max(best, latest + work)


@njit(cache=True)
def _busy_from(net: Any, x: int, i: int, tail: Any, high: Any) -> int:
    """The mirror image of `_busy_until`: what surely follows item i."""
    d = net.device[x]
    place = high.copy()
    best, work = NEVER, 0
    while True:
        latest, at = NEVER, -1
        for b in range(len(place)):
            y = net.members[d, b]
            if y >= 0 and net.first[y] + place[b] < net.first[y + 1]:
                value = tail[net.first[y] + place[b]]
                if value > latest:
                    latest, at = value, b
        if at < 0:
            return int(best)
        place[at] += 1
        work += net.duration[net.members[d, at]]
        best = max(best, latest + work)


@njit(cache=True)
def _order_by_time(net: Any, horizon: int, head: Any, tail: Any, before: Any, after: Any) -> bool:
    """Decide pairs of which one order does not fit into some frame."""
    changed = False
    for x in range(len(net.duration)):
        d, a = net.device[x], net.slot[x]
        for i in range(net.first[x], net.first[x + 1]):
            k = i - net.first[x]
            for b in range(net.members.shape[1]):
                y = net.members[d, b]
                if y < 0 or y == x:
                    continue
                room = horizon - net.duration[x] - net.duration[y]
                low, high = before[i, b], after[i, b]
                while low < high and _too_long(head[:, i], tail[:, net.first[y] + low], room):
                    low += 1
                while low < high and _too_long(head[:, net.first[y] + high - 1], tail[:, i], room):
                    high -= 1
                if low > before[i, b]:
                    _raise_before(net, i, a, k, y, low, before, after)
                    changed = True
                if high < after[i, b]:
                    _lower_after(net, i, a, k, y, high, before, after)
                    changed = True
    return changed


@njit(cache=True)
def _too_long(head: Any, tail: Any, room: int) -> bool:
    for e in range(len(head)):  # noqa: SIM110 numba compiles no generator expression
        if head[e] > NEVER and tail[e] > NEVER and head[e] + tail[e] > room:
            return True
    return False
