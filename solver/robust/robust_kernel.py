"""Simulated annealing of an order's cost under noise, compiled: all moves are judged by the same samples.

A move takes one operation to another position of its device's sequence, or lets one device begin at another
time. The samples stay the same for the whole search (common random numbers), so two orders are always
compared under the same delays. The *measure* of an order, by which orders are compared, is the weighted sum
of its costs in all samples, with the weights of `Sample`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Floats, Ints
from tightpipe.kernels.compiled import compiled
from tightpipe.noise.order_graph import OrderGraph
from tightpipe.noise.sample_kernel import SampleState, costs_of, run_samples

from ..improve.anneal_kernel import AnnealNumbers, destination
from ..improve.draws_kernel import GeneratorState, draw
from ..improve.event_graph import EventGraph


class Sample(NamedTuple):
    """The random times of all samples of a search, in M blocks of K samples, and how their costs count.

    There are S stages, n microbatches and p devices.
    """

    durations: Floats  # (M, 3 S n + 1, K) ticks of each operation, and a last row of zeros
    lags: Floats  # (M, 2 S n + 1, K) ticks of each message, and a last row of zeros
    moment: Floats  # (M, p, K) tick at which each device stalls
    stall: Floats  # (M, p, K) ticks for which each device stalls
    weights: Floats  # (samples,) weight of each cost when the costs are in ascending sequence; the sum is 1


class Walk(NamedTuple):
    """The order at which a search has arrived, the best one so far, and scratch space.

    N is the number of operations, each of which is a row of the graph; M, K and p are those of `Sample`.
    """

    word: Ints  # (N,) row of the graph at each position
    place: Ints  # (N,) position of each row
    release: Ints  # (p,) tick before which each device does not begin
    best_word: Ints  # (N,) the `word` of the best order
    best_release: Ints  # (p,) the `release` of the best order
    delta: Ints  # (N,) memory that each row adds
    first: Floats  # (1,) mean cost of the order in the first block of samples
    costs: Floats  # (M K,) cost in each sample; scratch
    state: SampleState


@compiled
def value_of(graph: OrderGraph, sample: Sample, spans: bool, walk: Walk, most: float) -> tuple[float, float]:
    """Run the walk's order in all samples, and return its measure and its mean cost in the first block.

    Parameters
    ----------
    graph
        The graph of the order from which the search began.
    sample
        The times of all samples.
    spans
        Whether the cost is the largest span of a device, and not the makespan.
    walk
        The order to judge is its `word`, with the device starts `release`.
    most
        Ticks that the mean cost in the first block may reach. If it is larger, the other blocks are not run.
        This saves time, because most moves are bad and one block shows it.

    Returns
    -------
    measure
        The measure in ticks; infinite if operations deadlock, or if not all blocks were run.
    first
        The mean cost in the first block of samples, in ticks; infinite if operations deadlock.
    """
    blocks, _, width = sample.durations.shape
    first = 0.0
    for m in range(blocks):
        ran = run_samples(
            *(graph, walk.word, sample.durations[m], sample.lags[m], sample.moment[m], sample.stall[m]),
            *(walk.release, walk.state),
        )
        if ran < len(walk.word):
            return np.inf, np.inf
        costs_of(walk.state, spans, walk.costs[m * width : (m + 1) * width])
        if m == 0:
            first = _mean(walk.costs[:width])
            if first > most:
                return np.inf, first
    return _weighed(walk.costs[: len(sample.weights)], sample.weights), first


@compiled
def _mean(costs: Floats) -> float:
    total = 0.0
    for cost in costs:
        total += cost
    return total / len(costs)


@compiled
def _weighed(costs: Floats, weights: Floats) -> float:
    """Sort the costs upwards in place, and return the sum of each cost times its weight."""
    for i in range(1, len(costs)):
        cost, k = costs[i], i
        while k > 0 and costs[k - 1] > cost:
            costs[k] = costs[k - 1]
            k -= 1
        costs[k] = cost
    total = 0.0
    for i in range(len(costs)):
        total += weights[i] * costs[i]
    return total


@compiled
def walk_robustly(
    graph: OrderGraph,
    events: EventGraph,
    sample: Sample,
    walk: Walk,
    random: GeneratorState,
    moves: int,
    warmth: float,
    value: float,
    best: float,
    numbers: AnnealNumbers,
) -> tuple[float, float]:
    """Try moves at one temperature, and keep the best order.

    Parameters
    ----------
    graph
        The graph of the order from which the search began; it has no pairs.
    events
        The event graph of the instance, for memory limits and for positions that an operation may take.
    sample
        The times by which orders are judged.
    walk
        The order to start from, which is changed in place, and the best one.
    random
        State of the random number generator.
    moves
        Number of moves to try.
    warmth
        Temperature in ticks: a move that raises the measure by `warmth` is taken with probability 1/e.
    value, best
        The measure of the order to start from, and of the best one, in ticks.
    numbers
        The parameters of the moves.

    Returns
    -------
    tuple of float
        The measures of the order after the last move, and of the best one.
    """
    for _ in range(moves):
        rise = -warmth * np.log(1.0 - draw(random))
        if events.spans and draw(random) < numbers.begins:
            value = _move_begin(graph, events, sample, walk, random, value, rise)
        else:
            value = _move_row(graph, events, sample, walk, random, value, rise, numbers)
        if value < best:
            best = value
            for k in range(len(walk.word)):
                walk.best_word[k] = walk.word[k]
            for device in range(len(walk.release)):
                walk.best_release[device] = walk.release[device]
    return value, best


@compiled
def _move_begin(
    graph: OrderGraph,
    events: EventGraph,
    sample: Sample,
    walk: Walk,
    random: GeneratorState,
    value: float,
    rise: float,
) -> float:
    """Let a random device begin at another time, and return the measure of the walk's order afterwards.

    The change is undone if it raises the measure, or the mean cost in the first block of samples, by more
    than `rise` ticks.
    """
    device = int(draw(random) * len(walk.release))
    before = walk.release[device]
    ticks = int(graph.planned[int(draw(random) * len(graph.planned))] * draw(random) ** 2)
    walk.release[device] = max(0, before + (ticks if draw(random) < 0.5 else -ticks))
    new, first = value_of(graph, sample, events.spans, walk, walk.first[0] + rise)
    if new <= value + rise:
        walk.first[0] = first
        return new
    walk.release[device] = before
    return value


@compiled
def _move_row(
    graph: OrderGraph,
    events: EventGraph,
    sample: Sample,
    walk: Walk,
    random: GeneratorState,
    value: float,
    rise: float,
    numbers: AnnealNumbers,
) -> float:
    """Move a random row to another position on its device, and return the measure that then holds.

    The change is undone if it breaks a precedence or the memory limit, or if it raises the measure, or the
    mean in the first block, by more than `rise` ticks.
    """
    i = int(draw(random) * len(walk.word))
    j = destination(events, random, i, numbers)
    if i == j:
        return value
    _shift(walk, i, j)
    if _allowed(graph, events, walk, min(i, j), max(i, j)):
        new, first = value_of(graph, sample, events.spans, walk, walk.first[0] + rise)
        if new <= value + rise:
            walk.first[0] = first
            return new
    _shift(walk, j, i)
    return value


@compiled
def _shift(walk: Walk, i: int, j: int) -> None:
    """Move the row at position i to position j, and each row in between by one position."""
    row, step = walk.word[i], 1 if j > i else -1
    for k in range(i, j, step):
        walk.word[k] = walk.word[k + step]
        walk.place[walk.word[k]] = k
    walk.word[j] = row
    walk.place[row] = j


@compiled
def _allowed(graph: OrderGraph, events: EventGraph, walk: Walk, low: int, high: int) -> bool:
    """Return whether the rows at positions `low` to `high` keep precedences and memory on their device."""
    device, memory = graph.home[walk.word[low]], 0
    for k in range(low, high + 1):
        source = graph.source[walk.word[k]]
        if source < len(walk.place) and graph.home[source] == device and walk.place[source] > k:
            return False
    for k in range(graph.offsets[device], high + 1):
        delta = walk.delta[walk.word[k]]
        memory += delta
        if delta > 0 and memory > events.arrays.devices[device].limit:
            return False
    return True
