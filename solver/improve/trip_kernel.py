"""Moves of annealing that let something leave its device and return, or keep it there; compiled."""

from __future__ import annotations

from tightpipe.kernels.compiled import compiled, compiled_inline
from tightpipe.model.operation import SINGLE

from .engines_kernel import open_word
from .positions_kernel import first_together, judge, last_together, restore, save
from .random_kernel import GeneratorState, draw
from .words import EventGraph, Words


@compiled
def make_or_drop(
    graph: EventGraph,
    words: Words,
    mirror_graph: EventGraph,
    mirror: Words,
    random: GeneratorState,
    cost: int,
    enough: float,
    near: tuple[float, float],
) -> int:
    """Make a random trip if it is not made, or else leave it out; return the cost.

    A change that would cost more than `enough` is taken back. The O of a new trip stands a few positions
    behind its F, and the L a few before what waits for it. `near` has the probability of one position more,
    and that of a position anywhere in between.
    """
    trips = graph.trips
    trip = int(draw(random) * trips.size)
    out, back = trips.out + trip, trips.back + trip
    f, b = words.place[trips.forward[trip]], words.place[trips.backward[trip]]
    device = graph.arrays.items[out].home
    # Copies of one class at one stage stand in the sequence of their units, as its F's and B's do. So with a
    # new trip only copies change their names that stand between its F and its B.
    low, high = words.opens[device], last_together(words, b)
    first = first_together(words, graph.lowest[f], f)
    if words.place[out] < low:
        behind, last = _places(graph, words, random, trip, near)
        if behind > last:
            return cost
        low, first = low - 2, first - 2
        _exchange(words, mirror, words.place[out], low)
        _exchange(words, mirror, words.place[back], low + 1)
        _make(words, low, high, behind, last, out, back)
    else:
        first += 2
        _drop(words, low, high, out, back)
    open_word(graph, words, device)
    new = judge(graph, words, mirror_graph, mirror, low, first, high, cost, enough)
    open_word(graph, words, device)
    return new


@compiled_inline
def _places(
    graph: EventGraph, words: Words, random: GeneratorState, trip: int, near: tuple[float, float]
) -> tuple[int, int]:
    """Return the positions behind which the O and the L of a new trip stand."""
    f, b = words.place[graph.trips.forward[trip]], words.place[graph.trips.backward[trip]]
    low, high = last_together(words, f), first_together(words, graph.lowest[b], b) - 1
    if low > high:  # the two run together with one another
        return 1, 0
    out = min(high, low + _steps(random, high - low, near))
    back = max(out, high - _steps(random, high - low, near))
    return last_together(words, out), last_together(words, back)


@compiled_inline
def _steps(random: GeneratorState, most: int, near: tuple[float, float]) -> int:
    go_on, far = near
    if draw(random) < far:
        return int(draw(random) * (most + 1))
    steps = 0
    while draw(random) < go_on:
        steps += 1
    return steps


@compiled
def _make(words: Words, low: int, high: int, behind: int, last: int, out: int, back: int) -> None:
    """Put two copies behind the positions `behind` and `last`; the items before them move to the front.

    The copies stand at `low` and `low` + 1, right before the word. What stood from `low` to `high` is saved.
    """
    save(words, low, high)
    to = low
    for i in range(low + 2, last + 1):
        words.item[to], words.joined[to] = words.shift[i], words.shift_joined[i]
        to += 1
        if i == behind:
            words.item[to], words.joined[to] = out, SINGLE
            to += 1
        if i == last:
            words.item[to], words.joined[to] = back, SINGLE
            to += 1


@compiled
def _drop(words: Words, low: int, high: int, out: int, back: int) -> None:
    """Move two copies before position `high` to `low` and `low` + 1, where they are left out; save all."""
    save(words, low, high)
    to = high
    for i in range(high, low - 1, -1):
        if words.shift[i] != out and words.shift[i] != back:
            words.item[to], words.joined[to] = words.shift[i], words.shift_joined[i]
            to -= 1
    words.item[low], words.item[low + 1] = out, back
    words.joined[low], words.joined[low + 1] = SINGLE, SINGLE


@compiled_inline
def _exchange(words: Words, mirror: Words, i: int, j: int) -> None:
    """Exchange two copies that are left out, at positions `i` and `j` of the words."""
    last = len(words.item) - 1
    x, y = words.item[i], words.item[j]
    words.item[i], words.item[j] = y, x
    words.place[x], words.place[y] = j, i
    mirror.item[last - i], mirror.item[last - j] = y, x
    mirror.place[x], mirror.place[y] = last - j, last - i


@compiled
def move_with_copy(
    graph: EventGraph,
    words: Words,
    mirror_graph: EventGraph,
    mirror: Words,
    i: int,
    j: int,
    cost: int,
    enough: float,
) -> int:
    """Move an F or a B from position `i` to `j` together with the O behind it or the L before it.

    The copy moves by as many positions. Return the cost; a change that would cost more than `enough` is taken
    back. Nothing moves if the item runs together with others, or would part such items.
    """
    x, trips = words.item[i], graph.trips
    device = graph.arrays.items[x].home
    copy = (trips.back if x == trips.backward[trips.of[x]] else trips.out) + trips.of[x]
    at = words.place[copy]
    to = min(max(at + j - i, words.opens[device]), graph.offsets[device + 1] - 1)
    if i == j or at == to or to == j or words.joined[i] != SINGLE:
        return cost
    low, high = min(i, j, at, to), max(i, j, at, to)
    if words.joined[i - 1] != SINGLE or words.joined[low - 1] != SINGLE:
        return cost
    save(words, low, high)
    source = low
    for k in range(low, high + 1):
        if k == j:
            words.item[k], words.joined[k] = x, SINGLE
        elif k == to:
            words.item[k], words.joined[k] = copy, SINGLE
        else:
            while words.shift[source] == x or words.shift[source] == copy:
                source += 1
            words.item[k], words.joined[k] = words.shift[source], words.shift_joined[source]
            source += 1
    for k in (j, to):
        if words.joined[k - 1] != SINGLE:
            restore(graph, words, low, high)
            return cost
    return judge(graph, words, mirror_graph, mirror, low, low, high, cost, enough)
