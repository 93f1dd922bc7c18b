"""Whether a move of annealing stays: the words may run, and cost no more than is acceptable; compiled."""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.compiled import compiled

from .engines_kernel import in_sequence
from .paths_kernel import compute_all, cost_of, undo, update
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
    device = graph.arrays.items[words.item[low]].home
    if graph.trips.count > 0:
        return _judge_with_copies(graph, words, device, low, high, cost, enough)
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
def _judge_with_copies(
    graph: EventGraph, words: Words, device: int, low: int, high: int, cost: int, enough: float
) -> int:
    """Do the same where copies may be made; what stands before `words.opens` is not looked at.

    All times are computed again. After a change that was taken back, they are those of this change until they
    are computed the next time.
    """
    first = max(low, words.opens[device])
    if allowed(graph, words, device, high):
        relabel(graph, words, first, high)
        if in_sequence(graph, words, device, first, high) and compute_all(graph, words):
            new = cost_of(graph, words)
            if new <= enough:
                return new
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
