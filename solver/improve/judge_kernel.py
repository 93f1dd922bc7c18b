"""Whether a move of annealing stays: the words may run, and cost no more than is acceptable; compiled."""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.compiled import compiled

from .engines_kernel import in_sequence
from .paths_kernel import cost_of, undo, update
from .positions_kernel import allowed, relabel, restore
from .words import EventGraph, Words


@compiled
def judge(
    graph: EventGraph,
    words: Words,
    mirror_graph: EventGraph,
    mirror: Words,
    low: int,
    high: int,
    cost: int,
    enough: float,
) -> int:
    """Keep what a move has changed from `low` to `high` if that is allowed and costs at most `enough`.

    Otherwise take it back. Return the cost of the words.
    """
    if graph.trips.size > 0:
        return judge_with_copies(graph, words, low, low, high, cost, enough)
    device = graph.arrays.items[words.item[low]].home
    if allowed(graph, words, device, high):
        relabel(graph, words, low, high)
        late = enough + words.begin[0] + mirror.begin[len(mirror.begin) - 1]
        possible, changes = update(graph, words, device, low, high, mirror.end, late)
        new = cost_of(graph, words) if possible else cost
        if possible and new <= enough:
            _mirror(words, mirror_graph, mirror, low, high)
            return new
        undo(words, changes)
    restore(graph, words, low, high)
    return cost


@compiled
def judge_with_copies(
    graph: EventGraph, words: Words, low: int, first: int, high: int, cost: int, enough: float
) -> int:
    """Do the same where there are copies, which may have been made or dropped.

    The items at positions `low` to `high` have moved. Those before `first` have only made room, or are left
    out and stand before the word. From `first` on items stand in another sequence, have other names, or wait
    for something else. No joint operation reaches over `first` or over `high`.
    """
    device = graph.arrays.items[words.item[high]].home
    if allowed(graph, words, device, high):
        for i in range(low, first):
            words.place[words.item[i]] = i
        relabel(graph, words, first, high)
        if in_sequence(graph, words, device, first, high):
            possible, changes = update(graph, words, device, first, high, words.end, np.inf)
            new = cost_of(graph, words) if possible else cost
            if possible and new <= enough:
                return new
            undo(words, changes)
    restore(graph, words, low, high)
    return cost


@compiled
def _mirror(words: Words, mirror_graph: EventGraph, mirror: Words, low: int, high: int) -> None:
    """Update the mirrored words after positions `low` to `high` of the words have changed."""
    last = len(words.item) - 1
    for i in range(low, high + 1):
        mirror.item[last - i] = words.item[i]
        mirror.place[words.item[i]] = last - i
    device = mirror_graph.arrays.items[words.item[low]].home
    update(mirror_graph, mirror, device, last - high, last - low, words.end, np.inf)
