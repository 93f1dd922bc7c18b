"""What stands at the positions of words: how it is moved, checked, and kept or taken back, compiled."""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.compiled import compiled, compiled_inline
from tightpipe.model.operation import PAIRED, SINGLE

from .engines_kernel import in_sequence
from .paths_kernel import cost_of, set_ticks, undo, update
from .words import EventGraph, Words


@compiled_inline
def first_together(words: Words, lowest: int, i: int) -> int:
    """Return the position of the first item that runs together with the one at position `i`."""
    while i > lowest and words.joined[i - 1] != SINGLE:
        i -= 1
    return i


@compiled_inline
def last_together(words: Words, i: int) -> int:
    """Return the position of the last item that runs together with the one at position `i`."""
    while words.joined[i] != SINGLE:
        i += 1
    return i


@compiled
def shift(words: Words, first: int, last: int, j: int) -> None:
    """Move the items at positions `first` to `last` so that they begin at `j`, or end there if `j` > `last`.

    The items between move to the other side. What stood at these positions is saved in `words`.
    """
    low, high, size = min(first, j), max(last, j), last - first + 1
    for k in range(low, high + 1):
        words.shift[k] = words.item[k]
        words.shift_joined[k] = words.joined[k]
    for k in range(low, high + 1):
        if j < first:  # the items move towards the begin of the word
            source = first + k - low if k < low + size else k - size
        else:
            source = last + 1 + k - low if k <= high - size else k - (high - last)
        words.item[k], words.joined[k] = words.shift[source], words.shift_joined[source]


@compiled_inline
def save(words: Words, low: int, high: int) -> None:
    for k in range(low, high + 1):
        words.shift[k] = words.item[k]
        words.shift_joined[k] = words.joined[k]


@compiled
def restore(graph: EventGraph, words: Words, low: int, high: int) -> None:
    for k in range(low, high + 1):
        words.item[k], words.joined[k] = words.shift[k], words.shift_joined[k]
        words.place[words.item[k]] = k
    if graph.joint:
        set_ticks(graph, words, low, high)


@compiled
def allowed(graph: EventGraph, words: Words, device: int, last: int) -> bool:
    """Return whether the device's word up to position `last` obeys its memory limit and its precedences.

    Precedences within the device are kept by credits (`GraphArrays`). The B of a pair cannot take a credit
    that the F of the pair gives, because the two start together.
    """
    credit, memory = words.credit, 0
    credit[:] = 0
    for i in range(words.opens[device], last + 1):
        queue = graph.arrays.queues[graph.arrays.queue[words.item[i]]]
        for taken in queue.takes:
            if taken >= 0:
                if credit[taken] == 0:
                    return False
                credit[taken] -= 1
        memory += queue.delta
        if queue.delta + queue.passing > 0 and memory + queue.passing > graph.arrays.devices[device].limit:
            return False
        if graph.joint and words.joined[i] == PAIRED:
            for taken in graph.arrays.queues[graph.arrays.queue[words.item[i + 1]]].takes:
                if taken >= 0 and credit[taken] == 0:
                    return False
        for given in queue.gives:
            if given >= 0:
                credit[given] += 1
    return True


@compiled
def relabel(graph: EventGraph, words: Words, low: int, high: int) -> None:
    """Sort the items of each queue at positions `low` to `high`, and update their places and ticks.

    The items of a queue are equal operations, so the sequence of queues, which is the word, stays the same.
    """
    for i in range(low + 1, high + 1):
        x, free = words.item[i], i
        for k in range(i - 1, low - 1, -1):
            y = words.item[k]
            if graph.arrays.queue[y] == graph.arrays.queue[x]:
                if y < x:
                    break
                words.item[free] = y
                free = k
        words.item[free] = x
    for i in range(low, high + 1):
        words.place[words.item[i]] = i
    if graph.joint:
        set_ticks(graph, words, low, high)


@compiled
def judge(
    graph: EventGraph,
    words: Words,
    mirror_graph: EventGraph,
    mirror: Words,
    low: int,
    first: int,
    high: int,
    cost: int,
    enough: float,
) -> int:
    """Keep what a move has changed from `low` to `high` if that is allowed and costs at most `enough`.

    Otherwise take it back. Return the cost of the words. The items at positions `low` to `high` have moved.
    Those before `first` have only made room, or are left out and stand before the word. From `first` on items
    stand in another sequence, have other names, or wait for something else, or something else for them. No
    joint operation reaches over `first` or over `high`.
    """
    device = graph.arrays.items[words.item[high]].home
    if allowed(graph, words, device, high):
        for i in range(low, first):
            words.place[words.item[i]] = i
        relabel(graph, words, first, high)
        if not graph.copies or in_sequence(graph, words, device, first, high):
            late = enough + words.begin[0] + mirror.begin[len(mirror.begin) - 1]
            possible, changes = update(graph, words, device, first, high, mirror.end, late)
            new = cost_of(graph, words) if possible else cost
            if possible and new <= enough:
                _mirror(words, mirror_graph, mirror, low, first, high)
                return new
            undo(words, changes)
    restore(graph, words, low, high)
    return cost


@compiled
def _mirror(words: Words, mirror_graph: EventGraph, mirror: Words, low: int, first: int, high: int) -> None:
    """Update the mirrored words after a move that `judge` has kept."""
    last = len(words.item) - 1
    for i in range(low, high + 1):
        mirror.item[last - i] = words.item[i]
        mirror.place[words.item[i]] = last - i
    device = mirror_graph.arrays.items[words.item[high]].home
    mirror.closes[device] = last + 1 - words.opens[len(words.opens) - 1 - device]
    update(mirror_graph, mirror, device, last - high, last - first, words.end, np.inf)
