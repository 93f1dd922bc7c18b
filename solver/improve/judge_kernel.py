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
        if graph.trips.size == 0 or in_sequence(graph, words, device, first, high):
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
