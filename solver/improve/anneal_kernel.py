"""Simulated annealing over words: an operation moves some places within its device's word."""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled

from .draws_kernel import GeneratorState, draw
from .event_graph import EventGraph
from .paths_kernel import cost_of, undo, update
from .words import Words

_REACH = 8  # longest move that is not a far one, in places
_GO_ON = 0.6  # probability of one place more
_FAR = 0.15  # probability of a far move, up to `_FARTHEST` places
_FARTHEST = 32


@compiled
def anneal(
    graph: EventGraph,
    words: Words,
    random: GeneratorState,
    moves: int,
    warmth: float,
    cost: float,
    best: float,
    best_item: Ints,
) -> tuple[float, float]:
    """Try moves at one temperature.

    Parameters
    ----------
    graph, words
        The problem and its loaded words, which are left where the walk ends.
    random
        State of the generator.
    moves
        Number of moves to try.
    warmth
        Temperature in ticks: a move that costs so much more is taken with probability 1/e.
    cost, best
        Cost of the words, and of the best so far.
    best_item
        Where words that cost less than `best` are copied to.

    Returns
    -------
    cost, best
        As they are at the end.
    """
    for _ in range(moves):
        i = int(draw(random) * len(words.item))
        x = words.item[i]
        device = graph.home[x]
        j = _destination(graph, random, i)
        if i == j:
            continue
        low, high = min(i, j), max(i, j)
        _shift(words, i, j)
        taken = False
        if _allowed(graph, words, device, high):
            _relabel(graph, words, low, high)
            after = min(high + 1, graph.offsets[device + 1] - 1)
            possible, changes = update(graph, words, device, low, after)
            if possible:
                enough = cost - warmth * np.log(1.0 - draw(random))
                new = cost_of(graph, words, enough)
                taken = new <= enough
                if taken:
                    cost = new
            if not taken:
                undo(words, changes)
        if not taken:
            _restore(words, low, high)
        elif cost < best:
            best = cost
            for k in range(len(best_item)):
                best_item[k] = words.item[k]
    return cost, best


@compiled
def _destination(graph: EventGraph, random: GeneratorState, i: int) -> int:
    """Return the position to move to: mostly near, within the block."""
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
    """Move the item at position i to position j, the ones between by one place; keep how it was."""
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
    """Whether the device's word up to position `last` keeps the memory limit and its own precedences."""
    credit, memory = words.credit, 0
    credit[:] = 0
    for i in range(graph.offsets[device], last + 1):
        q = graph.queue[words.item[i]]
        taken = graph.takes[q]
        if taken >= 0:
            if credit[taken] == 0:
                return False
            credit[taken] -= 1
        memory += graph.delta[q]
        if graph.delta[q] > 0 and memory > graph.limit[device]:
            return False
        for given in graph.gives[q]:
            if given >= 0:
                credit[given] += 1
    return True


@compiled
def _relabel(graph: EventGraph, words: Words, low: int, high: int) -> None:
    """Bring the elements of each queue into sequence again, by insertion, and note the places."""
    for i in range(low + 1, high + 1):
        x, free = words.item[i], i
        for k in range(i - 1, low - 1, -1):
            y = words.item[k]
            if graph.queue[y] == graph.queue[x]:
                if y < x:
                    break
                words.item[free] = y
                free = k
        words.item[free] = x
    for i in range(low, high + 1):
        words.place[words.item[i]] = i
