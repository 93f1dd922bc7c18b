"""The earliest ends of all items, kept up to date while words change, compiled.

Each device has a tick before which it does not begin, and every item starts as soon as it can. With these
times, the words cost at least as much as with their best times, which `tightpipe.core.retime` finds. The two
costs are equal if the devices begin when they begin in the result of `retime`.

After a move only times that may change are computed again. On each device the computation begins at the first
item that ends later than the item just before the changed positions. From there on, an item that was not
moved is computed again only if times before it on its device have changed, or the times of its source. The
source of an item is the item whose message it waits for.
"""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled

from .event_graph import EventGraph
from .words import Words

_UNKNOWN = 2**60  # time of an item before it is first computed, so that `_rewind` begins at the first item


@compiled
def load(graph: EventGraph, words: Words, item: Ints, begin: Ints) -> None:
    """Copy the items and the ticks at which devices may begin into `words`, and compute all times.

    Parameters
    ----------
    graph
        The event graph of the instance.
    words
        Receives the words and their times.
    item
        The item at each position, shape (N,). The words must not deadlock.
    begin
        The tick before which each device does not begin, at least 0, shape (p,).
    """
    for i in range(len(item)):
        words.item[i] = item[i]
        words.place[item[i]] = i
    for device in range(len(begin)):
        words.begin[device] = begin[device]
    words.sent[:] = _UNKNOWN
    words.end[:] = _UNKNOWN
    for device in range(len(graph.arrays.devices)):
        first, last = graph.offsets[device], graph.offsets[device + 1] - 1
        update(graph, words, device, first, last, words.end, np.inf)


@compiled
def load_mirror(graph: EventGraph, words: Words, mirror_graph: EventGraph, mirror: Words) -> None:
    """Load the mirror image of loaded words, in which each item's end is the time left from its start.

    For each device, take the longest path in ticks from the item's start to the device's last end, and add
    the ticks from when this device may begin to when the last device to begin may do so. The mirrored end of
    the item is the largest of these sums. So the item's start plus its mirrored end, less the tick at which
    the last device may begin, is the largest span of a device that a path through the item causes.

    Parameters
    ----------
    graph, words
        The event graph of the instance, and words that `load` has filled.
    mirror_graph, mirror
        The mirrored event graph (`event_graph.mirrored`), and the words that receive the mirror image.
    """
    size, p = len(words.item), len(words.begin)
    item, begin = words.undo, words.wanted  # scratch space
    latest = 0
    for device in range(p):
        latest = max(latest, words.begin[device])
    for device in range(p):
        begin[p - 1 - device] = latest - words.begin[device]
    for i in range(size):
        item[i] = words.item[size - 1 - i]
    load(mirror_graph, mirror, item, begin)


@compiled
def update(
    graph: EventGraph, words: Words, device: int, low: int, high: int, rest: Ints, enough: float
) -> tuple[bool, int]:
    """Compute the times again after the items at positions `low` to `high` of a device have changed.

    Each device in turn goes on from its head until it comes to an item whose source has yet to be computed,
    or until no later time on it can have changed. If some device has items left to compute but no device can
    go on, operations wait for each other.

    Parameters
    ----------
    graph, words
        The event graph, and the words with their times before the change.
    device, low, high
        The device, and the first and the last position of it that have changed.
    rest
        The mirrored end of each item before the change (`load_mirror`), in ticks, shape (N,). It is still
        valid for an item that starts after all changed positions have ended.
    enough
        The largest acceptable cost plus the tick at which the last device may begin. If the new start of such
        an item plus its `rest` is larger, the computation stops.

    Returns
    -------
    possible
        False if operations wait for each other, or if the computation has stopped because of `enough`.
    changes
        Number of items whose times have changed, which `undo` needs.
    """
    _rewind(graph, words, device, low)
    words.wanted[device] = min(high + 1, graph.offsets[device + 1] - 1)
    changes, marks, possible, busy = 0, 0, True, True
    settled = 2 * _UNKNOWN  # end of the changed positions; no path leads to them from a later start
    while busy and possible:
        busy, progress = False, False
        for d in range(len(graph.arrays.devices)):
            i, stop = words.head[d], graph.offsets[d + 1]
            while i < stop and (words.changed[d] or words.pending[d] > 0 or i <= words.wanted[d]):
                x = words.item[i]
                source = graph.arrays.items[x].source
                if source >= 0:
                    there, at = graph.arrays.items[source].home, words.place[source]
                    if at >= words.head[there]:
                        busy = True
                        if at > words.wanted[there]:
                            words.wanted[there] = at
                            progress = True
                        break
                moved = d == device and i <= high
                if words.changed[d] or words.dirty[x] or moved or (d == device and i == high + 1):
                    if words.dirty[x]:
                        words.dirty[x] = False
                        words.pending[d] -= 1
                    differs = _recompute(graph, words, d, i, changes)
                    words.changed[d] = differs or (words.changed[d] and graph.arrays.links > 0)
                    if d == device and i == high:
                        settled = words.end[x]
                    if differs:
                        changes += 1
                        start = words.end[x] - graph.arrays.queues[graph.arrays.queue[x]].duration
                        if start >= settled and not moved and start + rest[x] > enough:
                            possible = False
                            break
                        after = graph.arrays.items[x].target
                        if after >= 0 and not words.dirty[after]:
                            words.dirty[after] = True
                            words.pending[graph.arrays.items[after].home] += 1
                            words.marked[marks] = after
                            marks += 1
                i += 1
                words.head[d] = i
                progress = True
            if not possible:
                break
        for d in range(len(graph.arrays.devices)):
            if words.head[d] < graph.offsets[d + 1] and words.pending[d] > 0:
                busy = True
        possible = possible and (progress or not busy)
    for k in range(marks):
        words.dirty[words.marked[k]] = False
    return possible, changes


@compiled
def _rewind(graph: EventGraph, words: Words, device: int, low: int) -> None:
    """Set each device's head to the first position whose times a change from position `low` on may affect.

    An item that ends no later than the item at position `low` - 1 waits for no item at `low` or behind it.
    """
    since = -_UNKNOWN
    if low > graph.offsets[device]:
        since = words.end[words.item[low - 1]]
    for d in range(len(graph.arrays.devices)):
        words.pending[d], words.wanted[d], words.changed[d] = 0, -1, False
        a, b = graph.offsets[d], graph.offsets[d + 1]
        while a < b:
            middle = (a + b) >> 1
            if words.end[words.item[middle]] > since:
                b = middle
            else:
                a = middle + 1
        words.head[d] = a
    words.head[device] = low


@compiled
def _recompute(graph: EventGraph, words: Words, device: int, i: int, k: int) -> bool:
    """Compute the times of the item at position `i`, and return whether they differ from the old ones.

    If they differ, the old times are kept as change number `k`.
    """
    x = words.item[i]
    start = words.begin[device] if i == graph.offsets[device] else words.end[words.item[i - 1]]
    source = graph.arrays.items[x].source
    if source >= 0:
        start = max(start, words.sent[source] + graph.arrays.items[x].lag)
    end = start + graph.arrays.queues[graph.arrays.queue[x]].duration
    differs = bool(end != words.end[x])
    words.end_before[k] = words.end[x]
    words.end[x] = end
    if graph.arrays.links > 0 and _send(graph, words, device, i, k):
        differs = True
    if differs:
        words.undo[k] = x
    return differs


@compiled
def _send(graph: EventGraph, words: Words, device: int, i: int, k: int) -> bool:
    """Compute when the message of the item at position `i` leaves, and return whether that has changed.

    The old time is kept as change number `k`.
    """
    x = words.item[i]
    last = i - 1 if graph.arrays.items[x].link >= 0 else -1
    items = graph.arrays.items
    while last >= graph.offsets[device] and items[words.item[last]].link != items[x].link:
        last -= 1
    sent = words.end[x]
    if last >= graph.offsets[device]:
        sent = max(sent, words.sent[words.item[last]] + graph.arrays.occupancy)
    words.sent_before[k] = words.sent[x]
    words.sent[x] = sent
    return bool(sent != words.sent_before[k])


@compiled
def undo(words: Words, changes: int) -> None:
    """Restore the times that the last `update` has changed, where `changes` is the number it returned."""
    for k in range(changes):
        x = words.undo[k]
        words.end[x] = words.end_before[k]
        words.sent[x] = words.sent_before[k]


@compiled
def cost_of(graph: EventGraph, words: Words) -> int:
    """Return the cost in ticks: the largest time of a device from when it may begin to its last end."""
    largest = 0
    for device in range(len(graph.arrays.devices)):
        last = words.item[graph.offsets[device + 1] - 1]
        largest = max(largest, words.end[last] - words.begin[device])
    return int(largest)
