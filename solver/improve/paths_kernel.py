"""Longest paths in the event graph to the ends of all items, kept up to date while words change, compiled.

Each item has one path for each frame, which leads from the first start of a device of that frame to the
item's end. The paths to the last ends of the devices give the least cost of the words, as in
`tightpipe.core.retime`. After a move only the paths that may change are computed again. On each device they
begin at the first item that ends later than the item just before the changed positions. From there on an item
is computed again only if the item before it on its device has changed, or its source, which is the item whose
message it waits for.
"""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled

from .event_graph import EventGraph
from .words import Words

NO_PATH = -(2**60)


@compiled
def load(graph: EventGraph, words: Words, item: Ints) -> None:
    """Copy words, given as the item at each position, and compute all paths; the words must not deadlock."""
    for i in range(len(item)):
        words.item[i] = item[i]
        words.place[item[i]] = i
    words.path[:] = NO_PATH
    words.sent[:] = NO_PATH
    words.end[:] = 1
    for device in range(len(graph.limit)):
        first, last = graph.offsets[device], graph.offsets[device + 1] - 1
        update(graph, words, device, first, last)


@compiled
def update(graph: EventGraph, words: Words, device: int, low: int, high: int) -> tuple[bool, int]:
    """Compute the paths again after the items at positions `low` to `high` of a device have changed.

    Each device in turn goes on from its head until it comes to an item whose source has yet to be computed,
    or until nothing on it can have changed. If no device can go on although one has to, operations wait for
    each other.

    Returns
    -------
    possible
        False if operations wait for each other.
    changes
        Number of items whose paths have changed, which `undo` needs.
    """
    _rewind(graph, words, device, low)
    words.wanted[device] = high
    changes, marks, possible, busy = 0, 0, True, True
    while busy and possible:
        busy, progress = False, False
        for d in range(len(graph.limit)):
            i, stop = words.head[d], graph.offsets[d + 1]
            while i < stop and (words.changed[d] or words.pending[d] > 0 or i <= words.wanted[d]):
                x = words.item[i]
                source = graph.source[x]
                if source >= 0:
                    there, at = graph.home[source], words.place[source]
                    if at >= words.head[there]:
                        busy = True
                        if at > words.wanted[there]:
                            words.wanted[there] = at
                            progress = True
                        break
                moved = d == device and i <= high
                if words.changed[d] or words.dirty[x] or moved:
                    if words.dirty[x]:
                        words.dirty[x] = False
                        words.pending[d] -= 1
                    differs = _recompute(graph, words, d, i, changes)
                    words.changed[d] = differs or (words.changed[d] and graph.links > 0)
                    if differs:
                        changes += 1
                        after = graph.target[x]
                        if after >= 0 and not words.dirty[after]:
                            words.dirty[after] = True
                            words.pending[graph.home[after]] += 1
                            words.marked[marks] = after
                            marks += 1
                i += 1
                words.head[d] = i
                progress = True
        for d in range(len(graph.limit)):
            if words.head[d] < graph.offsets[d + 1] and words.pending[d] > 0:
                busy = True
        possible = progress or not busy
    for k in range(marks):
        words.dirty[words.marked[k]] = False
    return possible, changes


@compiled
def _rewind(graph: EventGraph, words: Words, device: int, low: int) -> None:
    """Set the head of each device to its first item that the change may affect.

    An item that ends no later than the item before position `low` waits for nothing that comes after that.
    """
    since = 0
    if low > graph.offsets[device]:
        since = words.end[words.item[low - 1]]
    for d in range(len(graph.limit)):
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
    """Compute the paths of the item at position `i`, and return whether they differ from the old ones.

    If they do, the old ones are kept as change number `k`.
    """
    x = words.item[i]
    ticks = graph.duration[graph.queue[x]]
    old, path = words.path_before[k], words.path[x]
    if i == graph.offsets[device]:
        old[:] = NO_PATH
        old[graph.frame[device]] = 0
    else:
        before = words.path[words.item[i - 1]]
        for f in range(graph.frames):
            old[f] = before[f]
    if graph.source[x] >= 0:
        sent, lag = words.sent[graph.source[x]], graph.lag[x]
        for f in range(graph.frames):
            arrives = sent[f] + lag
            old[f] = arrives if arrives > old[f] else old[f]
    differs, latest = 0, 0
    for f in range(graph.frames):
        new = old[f] + ticks
        old[f] = path[f]
        differs |= new ^ path[f]
        path[f] = new
        latest = new if new > latest else latest
    if graph.links > 0 and _send(graph, words, device, i, k):
        differs = 1
    if differs == 0:
        return False
    words.undo[k], words.end_before[k] = x, words.end[x]
    words.end[x] = latest
    return True


@compiled
def _send(graph: EventGraph, words: Words, device: int, i: int, k: int) -> bool:
    """Compute when the message of the item at position `i` leaves, and return whether that has changed.

    The old times are kept as change number `k`.
    """
    x = words.item[i]
    last = i - 1 if graph.link[x] >= 0 else -1
    while last >= graph.offsets[device] and graph.link[words.item[last]] != graph.link[x]:
        last -= 1
    waits = last >= graph.offsets[device]
    differs = 0
    for f in range(graph.frames):
        new = words.path[x, f]
        if waits:
            new = max(new, words.sent[words.item[last], f] + graph.occupancy)
        words.sent_before[k, f] = words.sent[x, f]
        differs |= new ^ words.sent[x, f]
        words.sent[x, f] = new
    return differs != 0


@compiled
def undo(words: Words, changes: int) -> None:
    """Restore the paths of the items that the last `update` has changed, given their number."""
    for k in range(changes):
        x = words.undo[k]
        words.end[x] = words.end_before[k]
        for f in range(words.path.shape[1]):
            words.path[x, f] = words.path_before[k, f]
            words.sent[x, f] = words.sent_before[k, f]


@compiled
def cost_of(graph: EventGraph, words: Words, enough: float) -> float:
    """Return the least cost of the words in ticks, before it is rounded up.

    If that is above `enough`, the result may be a lower bound of it that is above `enough`, too. For
    `device_span` the least cost is the largest mean weight of a cycle of devices, where an edge from d to e
    weighs as much as the longest path from the first start of d to the last end of e (Karp 1978, see
    `retime`).
    """
    p = len(graph.limit)
    largest = 0
    for d in range(p):
        x = words.item[graph.offsets[d + 1] - 1]
        largest = max(largest, words.path[x, graph.frame[d]])
    if graph.frames == 1 or largest > enough:
        return float(largest)
    walks = words.walk
    walks[0, :] = 0.0
    for k in range(p):
        walks[k + 1, :] = NO_PATH
        for d in range(p):
            x, so_far = words.item[graph.offsets[d + 1] - 1], walks[k, d]
            for e in range(p):
                walk = so_far + words.path[x, e]
                walks[k + 1, e] = walk if walk > walks[k + 1, e] else walks[k + 1, e]
    best = 0.0
    for e in range(p):
        least = np.inf
        for k in range(p):
            least = min(least, (walks[p, e] - walks[k, e]) / (p - k))
        best = max(best, least)
    return best
