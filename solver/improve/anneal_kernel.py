"""Simulated annealing over words and over the ticks at which devices begin, compiled.

A *move* takes one operation to another position of its device's word, or lets one device begin earlier or
later. Where joint operations take another time than their operations one after the other, moves also join and
part operations; where microbatches differ, they let one pass another on several devices (`pass_kernel`); and
where activations may leave, they let one leave and return, or stay after all (`trip_kernel`).
`words` defines items, positions and joint operations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled, compiled_inline
from tightpipe.model.operation import FUSED, PAIRED, SINGLE, OpKind

from .pass_kernel import let_pass
from .paths_kernel import cost_of, undo, update
from .positions_kernel import first_together, judge, last_together, save, shift
from .random_kernel import GeneratorState, draw
from .trip_kernel import make_or_drop, move_with_copy
from .words import EventGraph, Words

_F, _B, _W = int(OpKind.F), int(OpKind.B), int(OpKind.W)


class AnnealNumbers(NamedTuple):
    """The parameters of `AnnealParams` that the moves read."""

    reach: int
    go_on: float
    far: float
    farthest: int
    joins: float
    searched: int
    begins: float
    passes: float
    trips: float


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
    best_joined: Ints,
    numbers: AnnealNumbers,
) -> int:
    """Try moves at one temperature; return the least cost so far, in ticks.

    - `words`: the words to start from, which `load` has filled; they are changed in place.
    - `mirror_graph`, `mirror`: the event graph of the words read backwards (`mirrored`), and these words,
      which `load_mirror` has filled; they are changed in place too.
    - `warmth`: temperature in ticks: a move that raises the cost by this much is taken with probability 1/e.
    - `best`: the least cost so far, in ticks.
    - `best_item`, `best_joined`: what stands at each position of the cheapest words so far; overwritten when
      cheaper words are found.
    """
    cost = cost_of(graph, words)
    for _ in range(moves):
        enough = cost - warmth * np.log(1.0 - draw(random))
        if graph.joint and draw(random) < numbers.joins:
            cost = _join_or_part(graph, words, mirror_graph, mirror, random, cost, enough, numbers.searched)
        elif graph.spans and draw(random) < numbers.begins:
            cost = _move_begin(graph, words, mirror_graph, mirror, random, cost, enough)
        elif graph.differ and draw(random) < numbers.passes:
            cost = let_pass(graph, words, mirror_graph, mirror, random, cost, enough)
        elif graph.copies and draw(random) < numbers.trips:
            near = numbers.go_on, numbers.far
            cost = make_or_drop(graph, words, mirror_graph, mirror, random, cost, enough, near)
        else:
            cost = _move_item(graph, words, mirror_graph, mirror, random, cost, enough, numbers)
        if cost < best:
            best = cost
            for k in range(len(best_item)):
                best_item[k], best_joined[k] = words.item[k], words.joined[k]
    return best


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
    first = words.opens[device]
    x, before = words.item[first], words.begin[device]
    begin = words.end[x] - words.ticks[x]
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
    first = mirror.opens[other]
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
    numbers: AnnealNumbers,
) -> int:
    """Move a random item, and what runs with it, unless the cost would exceed `enough`; return the cost."""
    i = int(draw(random) * len(words.item))
    j = destination(graph, random, i, numbers)
    if graph.copies:
        opens = words.opens[graph.arrays.items[words.item[i]].home]
        j = i if i < opens else max(j, opens)  # a copy that is left out stays where it is
        trip = graph.trips.of[words.item[i]]
        made = trip >= 0 and words.place[graph.trips.out + trip] >= opens
        if made and words.item[i] < graph.trips.first and draw(random) < 0.5:
            return move_with_copy(graph, words, mirror_graph, mirror, i, j, cost, enough)
    if i == j:
        return cost
    low, high = min(i, j), max(i, j)
    if graph.joint:
        low, high = _shift_together(graph, words, i, j)
        if low == high:
            return cost
    else:
        shift(words, i, i, j)
    return judge(graph, words, mirror_graph, mirror, low, low, high, cost, enough)


@compiled
def destination(graph: EventGraph, random: GeneratorState, i: int, numbers: AnnealNumbers) -> int:
    """Return a random position, mostly a near one, to which the item at position `i` may move.

    The result lies between the lowest and the highest position that the graph allows, and may be `i` itself.
    """
    if draw(random) < numbers.far:
        places = 1 + int(draw(random) * numbers.farthest)
    else:
        places = 1
        while places < numbers.reach and draw(random) < numbers.go_on:
            places += 1
    j = i + places if draw(random) < 0.5 else i - places
    return int(min(max(j, graph.lowest[i]), graph.highest[i]))


@compiled
def _shift_together(graph: EventGraph, words: Words, i: int, j: int) -> tuple[int, int]:
    """Move the item at position `i`, and all that run with it, to about position `j`.

    Return the first and the last position that have changed; both are `i` if nothing has moved, because the
    items have no place between others that run together.
    """
    first, last = first_together(words, graph.lowest[i], i), last_together(words, i)
    to = first_together(words, graph.lowest[i], j) if j < i else last_together(words, j)
    if first <= to <= last or to < graph.lowest[i] or to > graph.highest[i]:
        return i, i
    shift(words, first, last, to)
    return min(first, to), max(last, to)


@compiled
def _join_or_part(
    graph: EventGraph,
    words: Words,
    mirror_graph: EventGraph,
    mirror: Words,
    random: GeneratorState,
    cost: int,
    enough: float,
    searched: int,
) -> int:
    """Join a random item with another one, or part it from those it runs with; return the cost.

    A B is joined with the next single W that could be its own, which moves behind it. An F is joined with a
    fused backward near it, and moves in front of it. A change that would cost more than `enough` is taken
    back.
    """
    i = int(draw(random) * len(words.item))
    first, last = first_together(words, graph.lowest[i], i), last_together(words, i)
    kind = graph.arrays.queues[graph.arrays.queue[words.item[first]]].kind
    low, high = i, i
    if first < last:
        save(words, first, last)
        words.joined[first] = SINGLE  # an F leaves its fused backward, a B its W
        low, high = first, last
    elif kind == _B:
        other = _own_weight(graph, words, i, searched)
        if other > i:
            shift(words, other, other, i + 1)
            if other == i + 1:
                save(words, i, other)
            words.shift[i], words.shift_joined[i] = words.item[i], words.joined[i]
            words.joined[i] = FUSED
            low, high = i, other
    elif kind == _F and graph.arrays.devices[graph.arrays.items[words.item[i]].home].paired:
        other = _fused_near(graph, words, i, 1 if draw(random) < 0.5 else -1, searched)
        if other > i:
            save(words, i, other + 1)
            if other > i + 1:
                shift(words, i, i, other - 1)
            words.joined[other - 1] = PAIRED
            low, high = i, other + 1
        elif other >= 0:
            save(words, other, i)
            shift(words, i, i, other)
            words.joined[other] = PAIRED
            low, high = other, i
    if low == high:
        return cost
    return judge(graph, words, mirror_graph, mirror, low, low, high, cost, enough)


@compiled_inline
def _own_weight(graph: EventGraph, words: Words, i: int, searched: int) -> int:
    """Return the next position of a single W that may be that of the B at `i`; -1 if none is near."""
    backward = graph.arrays.queues[graph.arrays.queue[words.item[i]]]
    if backward.fused == 0:
        return -1
    for k in range(i + 1, min(i + searched, graph.highest[i]) + 1):
        queue = graph.arrays.queues[graph.arrays.queue[words.item[k]]]
        own = False
        for given in backward.gives:
            own = own or (given >= 0 and given == queue.takes[0])  # a W takes one kind of credit
        if own and queue.kind == _W and words.joined[k - 1] == SINGLE:
            return k
    return -1


@compiled_inline
def _fused_near(graph: EventGraph, words: Words, i: int, step: int, searched: int) -> int:
    """Return the nearest position of a fused backward that is in no pair, in the direction `step`, or -1."""
    k = i + step
    for _ in range(searched):
        if k < graph.lowest[i] or k >= graph.highest[i]:
            return -1
        if words.joined[k] == FUSED and (k == graph.lowest[i] or words.joined[k - 1] == SINGLE):
            return k
        k += step
    return -1
