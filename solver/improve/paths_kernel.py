"""The earliest ends of all items, kept up to date while words change, compiled.

`words` defines items, positions and the graph of their ends. Each device has a tick before which it does not
begin, and every item starts as soon as it can. With these times, the words cost at least as much as with
their best times, which `tightpipe.model.simulate` finds. The two costs are equal if the devices begin when
they begin in the result of `retime`.

After a move only times that may change are computed again. On each device the computation begins at the first
item that ends later than the item just before the changed positions. From there on, an item that was not
moved is computed again only if times before it on its device have changed, or the times of its source. The
source of an item is the item whose message it waits for.
"""

from __future__ import annotations

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled, compiled_inline
from tightpipe.model.operation import FUSED, PAIRED, SINGLE

from .engines_kernel import (
    ALL,
    all_ended,
    busy_until,
    forget_engines,
    forgotten,
    free_from,
    next_of_trip,
    open_word,
    read_by,
    resume_engines,
    set_by,
)
from .words import EventGraph, Words

_UNKNOWN = 2**60  # time of an item before it is first computed, so that `_rewind` begins at the first item


@compiled
def load(graph: EventGraph, words: Words, item: Ints, joined: Ints, begin: Ints) -> None:
    """Copy the positions and the ticks at which devices may begin into `words`, and compute all times.

    - `item`, `joined`: what stands at each position (`words.Positions`), without a deadlock.
    - `begin`: the tick before which each device does not begin, at least 0, shape (p,).
    """
    for i in range(len(item)):
        words.item[i], words.joined[i] = item[i], joined[i]
        words.place[item[i]] = i
    for device in range(len(begin)):
        words.opens[device] = graph.offsets[device]
        if graph.copies:
            open_word(graph, words, device)
    set_ticks(graph, words, 0, len(item) - 1)
    _compute(graph, words, begin)


@compiled_inline
def set_ticks(graph: EventGraph, words: Words, low: int, high: int) -> None:
    """Set the ticks of the items at positions `low` to `high`, of which none runs with an item outside."""
    follows = SINGLE
    for i in range(low, high + 1):
        x, joins = words.item[i], words.joined[i]
        queue = graph.arrays.queues[graph.arrays.queue[x]]
        if follows != SINGLE:
            words.ticks[x] = 0
        elif joins == PAIRED:
            backward = graph.arrays.queues[graph.arrays.queue[words.item[i + 1]]]
            words.ticks[x] = graph.arrays.together[queue.device, queue.local, backward.local]
        else:
            words.ticks[x] = queue.fused if joins == FUSED else queue.duration
        follows = joins


@compiled_inline
def _compute(graph: EventGraph, words: Words, begin: Ints) -> None:
    """Compute all times of the words, whose devices may begin at the ticks `begin`."""
    for device in range(len(begin)):
        words.begin[device] = begin[device]
    compute_all(graph, words)


@compiled
def compute_all(graph: EventGraph, words: Words) -> bool:
    """Compute all times of the words; return False if operations wait for each other."""
    p, left = len(graph.arrays.devices), 0
    for device in range(p):
        words.head[device] = words.opens[device]
        left += words.closes[device] - words.opens[device]
        if graph.copies:
            resume_engines(graph, words, device, words.opens[device])
    progress = True
    while progress and left > 0:
        progress = False
        for turn in range(2 * p):  # up and down again, as microbatches go
            device = min(turn, 2 * p - 1 - turn)
            i = words.head[device]
            while i < words.closes[device] and _may_run(graph, words, i):
                _recompute(graph, words, device, i, 0)
                i += 1
            if i > words.head[device]:
                left -= i - words.head[device]
                words.head[device], progress = i, True
    return left == 0


@compiled_inline
def _may_run(graph: EventGraph, words: Words, i: int) -> bool:
    """Return whether the times of all are up to date for which the item at position `i` waits."""
    runs = _has_run(graph, words, graph.arrays.items[words.item[i]].source)
    if graph.joint and words.joined[i] == PAIRED:
        runs = runs and _has_run(graph, words, graph.arrays.items[words.item[i + 1]].source)
    return runs


@compiled
def load_mirror(graph: EventGraph, words: Words, mirror_graph: EventGraph, mirror: Words) -> None:
    """Load the mirror image of loaded words, in which each item's end is the time left from its start.

    For each device, take the longest path in ticks from the item's start to the device's last end, and add
    the ticks from when this device may begin to when the last device to begin may do so. The mirrored end of
    the item is the largest of these sums. So the item's start plus its mirrored end, less the tick at which
    the last device may begin, is the largest span of a device that a path through the item causes. Paths that
    enter a pair through its B are left out, so that the sum may be too small, but never too large.
    """
    size, p = len(words.item), len(words.begin)
    item, begin = mirror.item, words.wanted  # the second one is scratch space
    latest = 0
    for device in range(p):
        latest = max(latest, words.begin[device])
    for device in range(p):
        begin[p - 1 - device] = latest - words.begin[device]
        mirror.closes[p - 1 - device] = size - words.opens[device]
    for i in range(size):
        item[i] = words.item[size - 1 - i]
        mirror.place[item[i]] = i
    _compute(mirror_graph, mirror, begin)


@compiled
def update(
    graph: EventGraph, words: Words, device: int, low: int, high: int, rest: Ints, enough: float
) -> tuple[bool, int]:
    """Compute the times again after the items at positions `low` to `high` of a device have changed.

    Each device in turn goes on from its head until it comes to an item whose source has yet to be computed,
    or until no later time on it can have changed. Return False if operations wait for each other or the
    computation has stopped, and the number of items whose times have changed, which `undo` needs.

    - `rest`: the mirrored end of each item before the change (`load_mirror`), in ticks, shape (N,). It is
      still valid for an item that starts after all changed positions have ended.
    - `enough`: the largest acceptable cost plus the tick at which the last device may begin. If the new start
      of such an item plus its `rest` is larger, the computation stops.
    """
    _rewind(graph, words, device, low)
    words.wanted[device] = min(high + 1, words.closes[device] - 1)
    changes, marks, possible, busy = 0, 0, True, True
    settled = 2 * _UNKNOWN  # end of the changed positions; no path leads to them from a later start
    while busy and possible:
        busy, progress = False, False
        for d in range(len(graph.arrays.devices)):
            i, stop = words.head[d], words.closes[d]
            while i < stop and (words.changed[d] != 0 or words.pending[d] > 0 or i <= words.wanted[d]):
                x = words.item[i]
                if graph.copies and forgotten(words, d):
                    resume_engines(graph, words, d, i)
                source = graph.arrays.items[x].source
                if not _has_run(graph, words, source):
                    busy = True
                    progress = _want(graph, words, source) or progress
                    break
                if graph.joint and words.joined[i] == PAIRED:
                    source = graph.arrays.items[words.item[i + 1]].source
                    if not _has_run(graph, words, source):
                        busy = True
                        progress = _want(graph, words, source) or progress
                        break
                moved = d == device and i <= high
                changed = words.changed[d]
                if graph.copies and graph.arrays.links == 0:
                    changed &= read_by(graph, x)
                if changed != 0 or words.dirty[x] or moved or (d == device and i == high + 1):
                    if words.dirty[x]:
                        words.dirty[x] = False
                        words.pending[d] -= 1
                    differs = _recompute(graph, words, d, i, changes)
                    words.changed[d] = _changed_behind(graph, words, d, x, moved, differs)
                    if d == device and i == high:
                        settled = all_ended(words, d) if graph.copies else words.end[x]
                    if differs:
                        changes += 1
                        start = words.end[x] - words.ticks[x]
                        if start >= settled and not moved and start + rest[x] > enough:
                            possible = False
                            break
                        marks = _mark(graph, words, graph.arrays.items[x].target, marks)
                        if graph.copies:
                            marks = _mark(graph, words, next_of_trip(graph, words, d, x), marks)
                elif graph.copies:
                    busy_until(graph, words, d, i)
                    words.changed[d] &= ~set_by(graph, x)
                i += 1
                words.head[d] = i
                progress = True
            if not possible:
                break
        for d in range(len(graph.arrays.devices)):
            if words.head[d] < words.closes[d] and words.pending[d] > 0:
                busy = True
        possible = possible and (progress or not busy)
    for k in range(marks):
        words.dirty[words.marked[k]] = False
    return possible, changes


@compiled_inline
def _has_run(graph: EventGraph, words: Words, source: int) -> bool:
    """Return whether the times of a source are up to date; true if there is no source."""
    return source < 0 or words.place[source] < words.head[graph.arrays.items[source].home]


@compiled_inline
def _want(graph: EventGraph, words: Words, source: int) -> bool:
    """Note that another device waits for a source, and return whether that was not known."""
    there, at = graph.arrays.items[source].home, words.place[source]
    if at <= words.wanted[there]:
        return False
    words.wanted[there] = at
    return True


@compiled_inline
def _changed_behind(
    graph: EventGraph, words: Words, device: int, item: int, moved: bool, differs: bool
) -> int:
    """Return what has changed for the items behind one computed again: 0, or with copies bits of `set_by`."""
    before = words.changed[device]
    if graph.copies and (moved or graph.arrays.links > 0):
        return int(ALL if moved or differs else before)
    if graph.copies:
        return int(before | set_by(graph, item) if differs else before & ~set_by(graph, item))
    return 1 if differs or (before != 0 and graph.arrays.links > 0) else 0


@compiled_inline
def _mark(graph: EventGraph, words: Words, item: int, marks: int) -> int:
    """Make an item dirty, and the F with which it runs as a pair; return how many have been made dirty."""
    if item < 0:
        return marks
    marks = _mark_one(graph, words, item, marks)
    ahead = words.place[item] - 1
    if graph.joint and ahead >= 0 and words.joined[ahead] == PAIRED:
        marks = _mark_one(graph, words, words.item[ahead], marks)
    return marks


@compiled_inline
def _mark_one(graph: EventGraph, words: Words, item: int, marks: int) -> int:
    """Make an item dirty, unless it already is, and return how many items have been made dirty."""
    if words.dirty[item]:
        return marks
    words.dirty[item] = True
    words.pending[graph.arrays.items[item].home] += 1
    words.marked[marks] = item
    return marks + 1


@compiled
def _rewind(graph: EventGraph, words: Words, device: int, low: int) -> None:
    """Set each device's head to the first position whose times a change from position `low` on may affect.

    An item that ends no later than the item at position `low` - 1 waits for no item at `low` or behind it.
    Only items that take no time, the later ones of a joint operation, may end together and yet wait. Of the
    items of a device, those that compute end one after another, so where there are copies, only these count.
    """
    least = -_UNKNOWN
    last = _computes_last(graph, words, low - 1, words.opens[device])
    if last >= words.opens[device]:
        least = words.end[words.item[last]] + (0 if graph.joint or graph.copies else 1)
    for d in range(len(graph.arrays.devices)):
        words.pending[d], words.wanted[d], words.changed[d] = 0, -1, 0
        a, b = words.opens[d], words.closes[d]
        while a < b:
            middle = (a + b) >> 1
            computes = _computes_last(graph, words, middle, words.opens[d])
            if words.end[words.item[computes]] >= least:
                b = computes
            else:
                a = middle + 1
        words.head[d] = a
    words.head[device] = low
    if graph.copies:
        words.changed[device] = ALL
        for d in range(len(graph.arrays.devices)):
            forget_engines(words, d)


@compiled_inline
def _computes_last(graph: EventGraph, words: Words, i: int, lowest: int) -> int:
    """Return the last position up to `i` whose item computes; `lowest` - 1 if there is none."""
    if graph.copies:
        while i >= lowest and words.item[i] >= graph.trips.first:
            i -= 1
    return i


@compiled
def _recompute(graph: EventGraph, words: Words, device: int, i: int, k: int) -> bool:
    """Compute the times at position `i`; if they differ, keep the old ones as change `k` and return True."""
    x = words.item[i]
    if graph.copies:
        start = free_from(graph, words, device, i)
    elif i == graph.offsets[device]:
        start = words.begin[device]
    else:
        start = words.end[words.item[i - 1]]
    source = graph.arrays.items[x].source
    if source >= 0:
        start = max(start, words.sent[source] + graph.arrays.items[x].lag)
    if graph.barrier:
        start = max(start, graph.arrays.queues[graph.arrays.queue[x]].ready)
    if graph.joint and words.joined[i] == PAIRED:
        other = words.item[i + 1]
        source = graph.arrays.items[other].source
        if source >= 0:
            start = max(start, words.sent[source] + graph.arrays.items[other].lag)
    end = start + words.ticks[x]
    differs = bool(end != words.end[x])
    words.end_before[k] = words.end[x]
    words.end[x] = end
    if graph.copies:
        busy_until(graph, words, device, i)
    if graph.arrays.links > 0 and _send(graph, words, device, i, k):
        differs = True
    if differs:
        words.undo[k] = x
    return differs


@compiled
def _send(graph: EventGraph, words: Words, device: int, i: int, k: int) -> bool:
    """Compute when the message at position `i` leaves; if that changed, keep change `k` and return True."""
    x = words.item[i]
    link = _link(graph, x)
    last = i - 1 if link >= 0 else -1
    while last >= graph.offsets[device] and _link(graph, words.item[last]) != link:
        last -= 1
    sent = words.end[x]
    if last >= graph.offsets[device]:
        sent = max(sent, words.sent[words.item[last]] + graph.arrays.occupancy)
    words.sent_before[k] = words.sent[x]
    words.sent[x] = sent
    return bool(sent != words.sent_before[k])


@compiled_inline
def _link(graph: EventGraph, item: int) -> int:
    return int(graph.arrays.queues[graph.arrays.queue[item]].link)


@compiled
def undo(words: Words, changes: int) -> None:
    """Restore the times that the last `update` has changed, where `changes` is the number it returned."""
    for k in range(changes):
        x = words.undo[k]
        words.end[x] = words.end_before[k]
        words.sent[x] = words.sent_before[k]


@compiled
def cost_of(graph: EventGraph, words: Words) -> int:
    """Return the cost in ticks: the most from when a device may begin to its end, all of a step included."""
    largest = 0
    for device in range(len(graph.arrays.devices)):
        end = words.end[words.item[graph.offsets[device + 1] - 1]]
        if graph.barrier:
            end = _finished(graph, words, device, end)
        largest = max(largest, end - words.begin[device])
    return int(largest)


@compiled_inline
def _finished(graph: EventGraph, words: Words, device: int, end: int) -> int:
    """Return when a device, whose operations end at `end`, has ended its reductions and its optimizer.

    From the end of any stage on, this stage and all that end no earlier are still to be reduced. The largest
    sum of such an end and these reductions is when the last reduction ends.
    """
    arrays, here = graph.arrays, graph.arrays.devices[device]
    done, last = end, words.last
    for q in range(here.queue, here.queue + here.queues):
        queue = arrays.queues[q]
        if queue.ends >= 0:
            ended = words.end[arrays.first[q + 1] - 1]
            # the queue with the ticks of the reduction is the first one of the stage
            last[queue.ends] = ended if queue.reduce > 0 else max(last[queue.ends], ended)
    for q in range(here.queue, here.queue + here.queues):
        if arrays.queues[q].reduce > 0:
            reduced = ended = last[arrays.queues[q].ends]
            for r in range(here.queue, here.queue + here.queues):
                if arrays.queues[r].reduce > 0 and last[arrays.queues[r].ends] >= ended:
                    reduced += arrays.queues[r].reduce
            done = max(done, reduced)
    return int(done + here.optimizer)
