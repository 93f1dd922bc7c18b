"""Simulated annealing over words and over the ticks at which devices begin, compiled.

A *move* takes one operation to another position of its device's word, or lets one device begin earlier or
later. `event_graph` defines items, words and positions.
"""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled

from .draws_kernel import GeneratorState, draw
from .event_graph import EventGraph
from .paths_kernel import cost_of, undo, update
from .words import Words

_REACH = 8  # the most positions by which a near move shifts an operation
_GO_ON = 0.6  # probability that a near move shifts the operation by one position more
_FAR = 0.15  # probability of a far move
_FARTHEST = 32  # the most positions by which a far move shifts an operation
_BEGINS = 0.02  # share of the moves that change when a device begins, if the cost is `device_span`


@compiled
def anneal(
    graph: EventGraph,
    words: Words,
    mirror_graph: EventGraph,
    mirror: Words,
    random: GeneratorState,
    moves: int,
    warmth: float,
    best: int,
    best_item: Ints,
) -> int:
    """Try moves at one temperature.

    Parameters
    ----------
    graph
        The event graph of the instance.
    words
        The words to start from, which `load` has filled; they are changed in place.
    mirror_graph, mirror
        The event graph of the words read backwards (`event_graph.mirrored`), and the words read backwards,
        which `load_mirror` has filled. These words are changed in place too.
    random
        State of the random number generator.
    moves
        Number of moves to try.
    warmth
        Temperature in ticks: a move that raises the cost by this much is taken with probability 1/e.
    best
        The least cost so far, in ticks.
    best_item
        The item at each position of the cheapest words so far; overwritten when cheaper words are found.

    Returns
    -------
    int
        The least cost so far after the last move, in ticks.
    """
    cost = cost_of(graph, words)
    for _ in range(moves):
        enough = cost - warmth * np.log(1.0 - draw(random))
        if graph.spans and draw(random) < _BEGINS:
            cost = _move_begin(graph, words, mirror_graph, mirror, random, cost, enough)
        else:
            cost = _move_item(graph, words, mirror_graph, mirror, random, cost, enough)
        if cost < best:
            best = cost
            for k in range(len(best_item)):
                best_item[k] = words.item[k]
    return best


@compiled
def _mirror(words: Words, mirror_graph: EventGraph, mirror: Words, low: int, high: int) -> None:
    """Update the mirrored words after positions `low` to `high` of the words have changed."""
    last = len(words.item) - 1
    for i in range(low, high + 1):
        mirror.item[last - i] = words.item[i]
        mirror.place[words.item[i]] = last - i
    device = mirror_graph.arrays.items[words.item[low]].home
    update(mirror_graph, mirror, device, last - high, last - low, words.end, np.inf)


@compiled
def _move_begin(
    graph: EventGraph,
    words: Words,
    mirror_graph: EventGraph,
    mirror: Words,
    random: GeneratorState,
    cost: int,
    enough: float,
) -> int:
    """Let a random device begin at another time unless the cost would then exceed `enough`; return the cost.

    If the device's first operation starts later than the device may begin, the device is made to begin at
    that start, which cannot raise the cost.
    """
    device = int(draw(random) * len(graph.arrays.devices))
    first = graph.offsets[device]
    x, before = words.item[first], words.begin[device]
    begin = words.end[x] - graph.arrays.queues[graph.arrays.queue[x]].duration
    if begin == before:
        queue = graph.arrays.queues[int(draw(random) * len(graph.arrays.queues))]
        ticks = int(queue.duration * draw(random) ** 2)
        begin = max(0, begin + (ticks if draw(random) < 0.5 else -ticks))
    words.begin[device] = begin
    _, changes = update(graph, words, device, first, first, mirror.end, np.inf)
    new = cost_of(graph, words)
    if new > enough:
        undo(words, changes)
        words.begin[device] = before
        return cost
    other = len(graph.arrays.devices) - 1 - device
    mirror.begin[other] += before - begin
    first = mirror_graph.offsets[other]
    update(mirror_graph, mirror, other, first, first, words.end, np.inf)
    return new


@compiled
def _move_item(
    graph: EventGraph,
    words: Words,
    mirror_graph: EventGraph,
    mirror: Words,
    random: GeneratorState,
    cost: int,
    enough: float,
) -> int:
    """Move a random item to another position unless the cost would then exceed `enough`; return the cost."""
    i = int(draw(random) * len(words.item))
    j = destination(graph, random, i)
    if i == j:
        return cost
    device, low, high = graph.arrays.items[words.item[i]].home, min(i, j), max(i, j)
    _shift(words, i, j)
    if _allowed(graph, words, device, high):
        _relabel(graph, words, low, high)
        late = enough + words.begin[0] + mirror.begin[len(mirror.begin) - 1]
        possible, changes = update(graph, words, device, low, high, mirror.end, late)
        new = cost_of(graph, words) if possible else cost
        if possible and new <= enough:
            _mirror(words, mirror_graph, mirror, low, high)
            return new
        undo(words, changes)
    _restore(words, low, high)
    return cost


@compiled
def destination(graph: EventGraph, random: GeneratorState, i: int) -> int:
    """Return a random position, mostly a near one, to which the item at position `i` may move.

    The result lies between the lowest and the highest position that the graph allows, and may be `i` itself.
    """
    if draw(random) < _FAR:
        places = 1 + int(draw(random) * _FARTHEST)
    else:
        places = 1
        while places < _REACH and draw(random) < _GO_ON:
            places += 1
    j = i + places if draw(random) < 0.5 else i - places
    return int(min(max(j, graph.lowest[i]), graph.highest[i]))


@compiled
def _shift(words: Words, i: int, j: int) -> None:
    """Move the item at position `i` to `j`, shift those between, and save the old items in `words.shift`."""
    x, step = words.item[i], 1 if j > i else -1
    for k in range(min(i, j), max(i, j) + 1):
        words.shift[k] = words.item[k]
    for k in range(i, j, step):
        words.item[k] = words.item[k + step]
    words.item[j] = x


@compiled
def _restore(words: Words, low: int, high: int) -> None:
    for k in range(low, high + 1):
        words.item[k] = words.shift[k]
        words.place[words.item[k]] = k


@compiled
def _allowed(graph: EventGraph, words: Words, device: int, last: int) -> bool:
    """Return whether the device's word up to position `last` obeys its memory limit and its precedences.

    Precedences within the device are kept by credits (`event_graph`).
    """
    credit, memory = words.credit, 0
    credit[:] = 0
    for i in range(graph.offsets[device], last + 1):
        q = graph.arrays.queue[words.item[i]]
        taken = graph.arrays.queues[q].takes
        if taken >= 0:
            if credit[taken] == 0:
                return False
            credit[taken] -= 1
        memory += graph.arrays.queues[q].delta
        if graph.arrays.queues[q].delta > 0 and memory > graph.arrays.devices[device].limit:
            return False
        for given in graph.arrays.queues[q].gives:
            if given >= 0:
                credit[given] += 1
    return True


@compiled
def _relabel(graph: EventGraph, words: Words, low: int, high: int) -> None:
    """Sort the items of each queue at positions `low` to `high`, and update their places.

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
