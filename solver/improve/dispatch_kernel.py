"""Dispatching rules, compiled: a few weights give a schedule.

Whenever a device is free, it takes the line with the largest score and runs its head, which is the next item
of that line (`lines`). The score is linear in the weights. It depends on how far the device has come in its
word, on its place among the devices, on how full its memory is, and on how long it would have to wait for the
head. If the head can start now, it depends on how long it would delay the next one that cannot: so a short W
fills a gap for which a long one is too long. A change of one weight thus moves operations of many
microbatches on all devices at once, whereas a move of annealing shifts a single operation.

A run looks at every line of a device for each item that it places. So what the head of a line waits for, and
the line's weights at its device, are written down once, in arrays of one entry for each line.

Where microbatches differ, a rule also has the sequence in which they run at each *visit* (`words.Visits`). So
short microbatches may pass a long one at some visit, and be ahead of it from there on.

Where fused backwards save time, a queue of B's has a second row of weights, and a B is fused with a W if the
value that these give is above 0. Its weight of waiting counts the ticks by which the next device would start
later because of that.
"""

from __future__ import annotations

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.kernels.compiled import compiled, compiled_inline
from tightpipe.model.operation import FUSED

from .lines import (
    ARRIVAL,
    COUNTED,
    COUNTS,
    DELAYING,
    DELTA,
    DURATION,
    FULL,
    HOME,
    ITEM,
    LAG,
    LINE,
    NEEDED,
    NEVER,
    READY,
    START,
    TARGET,
    THERE,
    WAITING,
    WEIGHT,
    DispatchState,
    Weights,
)
from .words import EventGraph


@compiled
def dispatch(
    graph: EventGraph, state: DispatchState, weights: Weights, sequences: Ints, enough: float
) -> float:
    """Run all items by a rule, write the words to `state.item`, and return their cost in ticks.

    The cost is that of this run's start times, an upper bound of the cost of the words. It is `np.inf` if it
    is above `enough`, or if items are left and no device can run one. `sequences` has the microbatches as
    they run at each visit, shape (V, n), or at all visits, shape (1, n); (0, 0) if all are alike.
    """
    _open(graph, state)
    if sequences.shape[1] > 0:
        _line_up(state, sequences)
    _weigh(state, weights)
    for line in range(len(state.joins)):
        _step_up(state, line)
    placed = 0
    while placed < len(state.item):
        device, line, start = 0, -1, 0
        while line < 0:
            device = _first_awake(state.wake)
            if state.wake[device] == NEVER:
                return np.inf
            line, start = _choose(graph, state, device)
        q = state.member[state.first[line] + state.head[line]]
        state.head[line] += 1
        if state.place[device] > graph.offsets[device] or not graph.spans:
            state.idle[device] += start - state.free[device]
            if state.work[device] + state.idle[device] > enough:
                return np.inf
        ticks, weight = state.costs[q, DURATION], state.costs[q, WEIGHT]
        if state.fuse[q] >= 0:
            if _fuses(graph, state, weights, device, q, start):
                state.joined[state.place[device]] = FUSED
                _run(graph, state, device, q, start, graph.arrays.queues[q].fused)
                q, start, ticks = weight, state.free[device], 0
                placed += 1
            else:
                state.idle[device] += state.saved[q]
                _join_later(state, weight)
        elif weight >= 0:
            _join_later(state, weight)
        _run(graph, state, device, q, start, ticks)
        _step_up(state, line)
        placed += 1
    largest = 0
    for device in range(len(state.work)):
        largest = max(largest, state.work[device] + state.idle[device])
    return float(largest)


@compiled_inline
def _first_awake(wake: Ints) -> int:
    """Return the first of the devices that look for an item the earliest."""
    first, soonest = 0, wake[0]
    for device in range(1, len(wake)):
        earlier = wake[device] < soonest
        first = device if earlier else first
        soonest = wake[device] if earlier else soonest
    return first


@compiled
def _open(graph: EventGraph, state: DispatchState) -> None:
    for zero in (state.credit, state.memory, state.free, state.idle, state.wake, state.joined):
        zero[:] = 0
    for zero in (state.head, state.ran):
        zero[:] = 0
    for line in range(len(state.joins)):
        state.joins[line] = state.size[line] if state.fixed[line] else 0
    for x in range(len(state.opens)):
        state.arrives[x] = state.opens[x]
    state.left[:] = -graph.arrays.occupancy
    for q in range(len(state.next)):
        state.next[q] = graph.arrays.first[q]
    for device in range(len(state.place)):
        state.place[device] = graph.offsets[device]


@compiled
def _line_up(state: DispatchState, sequences: Ints) -> None:
    """Let the F's and B's of all microbatches join their lines, in the sequence of each visit."""
    state.joins[:] = 0
    for visit in range(len(state.visits)):
        for microbatch in sequences[min(visit, len(sequences) - 1)]:
            q = state.visits[visit, microbatch]
            if q >= 0:
                _join(state, q)


@compiled_inline
def _join(state: DispatchState, q: int) -> None:
    """Let an item of a queue join the queue's line."""
    line = state.costs[q, LINE]
    state.member[state.first[line] + state.joins[line]] = q
    state.joins[line] += 1


@compiled_inline
def _join_later(state: DispatchState, q: int) -> None:
    """Let a W join its line, of which it may be the head."""
    line = state.costs[q, LINE]
    _join(state, q)
    if state.head[line] + 1 == state.joins[line]:
        _step_up(state, line)


@compiled_inline
def _step_up(state: DispatchState, line: int) -> None:
    """Write down what the head of a line waits for."""
    if state.head[line] == state.joins[line]:
        state.heads[line, ITEM], state.heads[line, ARRIVAL] = -1, NEVER
        return
    q = state.member[state.first[line] + state.head[line]]
    x, ready = state.next[q], state.costs[q, READY]
    state.heads[line, ITEM] = x
    state.heads[line, ARRIVAL] = max(ready, state.arrives[x])
    state.heads[line, NEEDED] = state.costs[q, NEEDED]
    state.heads[line, READY] = ready
    state.heads[line, DURATION] = state.costs[q, DURATION]
    state.heads[line, COUNTED] = q if state.costs[q, COUNTS] > 0 else -1


@compiled_inline
def _weigh(state: DispatchState, weights: Weights) -> None:
    """Write down the weights of each line at its device's place."""
    for device in range(len(state.wake)):
        along = device / max(1, len(state.wake) - 1)
        for line in range(state.offsets[device], state.offsets[device + 1]):
            w = weights[line - state.offsets[device]]
            for k in range(3):
                state.scores[line, k] = w[k] + along * w[3 + k]
            for k in range(FULL, DELAYING + 1):
                state.scores[line, k - 3] = w[k]


@compiled_inline
def _choose(graph: EventGraph, state: DispatchState, device: int) -> tuple[int, int]:
    """Return the line whose head the device runs next, and the start of that item in ticks.

    If no head can start now, return -1 and 0, and set the tick at which the device looks again.
    """
    now, here = state.wake[device], state.place[device] - graph.offsets[device]
    length = graph.offsets[device + 1] - graph.offsets[device]
    limit, memory = graph.arrays.devices[device].limit, state.memory[device]
    free, block = state.free[device], graph.block[device]
    earliest, following = NEVER, NEVER  # start of any head, and of the first one that cannot start now
    for line in range(state.offsets[device], state.offsets[device + 1]):
        state.heads[line, START] = NEVER
        # it may wait for a message of an item that has not run, for memory or for a credit
        if state.heads[line, ARRIVAL] == NEVER or state.heads[line, NEEDED] > limit - memory:
            continue
        if state.heads[line, COUNTED] >= 0 and _lacks(graph, state, state.heads[line, COUNTED]):
            continue
        # An iteration that is flushed ends before the next one begins. The first comparison spares other
        # instances the divisions, which are slow.
        if block < length and state.ran[line] * length // state.size[line] // block > here // block:
            continue
        state.heads[line, START] = start = max(free, state.heads[line, ARRIVAL])
        earliest = min(earliest, start)
        following = start if now < start < following else following
    if earliest > now:
        state.wake[device] = earliest
        return -1, 0
    begin, middle, late = _place(graph, state, device)
    best, score, full = -1, -np.inf, memory * state.shares[device, 1]
    for line in range(state.offsets[device], state.offsets[device + 1]):
        start = state.heads[line, START]
        if start == NEVER:
            continue
        w = state.scores[line]
        value = begin * w[0] + middle * w[1] + late * w[2] + full * w[3]
        if start > now:
            value -= w[4] * (start - now)
        else:
            value -= w[5] * max(0, now + state.heads[line, DURATION] - following)
        if value > score:
            best, score = line, value
    return best, state.heads[best, START]


@compiled
def _lacks(graph: EventGraph, state: DispatchState, q: int) -> bool:
    """Return whether an item of a queue takes a credit that is not there."""
    missing = False
    for taken in graph.arrays.queues[q].takes:
        missing = missing or (taken >= 0 and state.credit[taken] == 0)
    return missing


@compiled_inline
def _place(graph: EventGraph, state: DispatchState, device: int) -> tuple[float, float, float]:
    """Return how much the weights of the first, middle and last third count."""
    thirds = (state.place[device] - graph.offsets[device]) * state.shares[device, 0]
    begin, late = max(0.0, 1.0 - thirds), max(0.0, thirds - 2.0)
    return begin, 1.0 - begin - late, late


@compiled
def _fuses(
    graph: EventGraph, state: DispatchState, weights: Weights, device: int, q: int, start: int
) -> bool:
    """Return whether the head of a queue of B's, which starts at tick `start`, is fused with a W."""
    begin, middle, late = _place(graph, state, device)
    along = device / max(1, len(state.wake) - 1)
    w = weights[state.fuse[q]]
    value = begin * (w[0] + along * w[3]) + middle * (w[1] + along * w[4]) + late * (w[2] + along * w[5])
    value += w[FULL] * state.memory[device] * state.shares[device, 1]
    after = state.after[state.next[q]]
    if after[TARGET] >= 0:
        free, queue = state.free[after[HOME]], graph.arrays.queues[q]
        soon = start + queue.duration + after[LAG]
        late_start = max(free, start + queue.fused + after[LAG])
        value -= w[WAITING] * (late_start - max(free, soon))
    return bool(value > 0.0)


@compiled_inline
def _run(graph: EventGraph, state: DispatchState, device: int, q: int, start: int, ticks: int) -> None:
    """Run the head of queue `q`, which starts at tick `start` and takes `ticks`.

    The device that waits for the message of this item looks again when the message arrives.
    """
    x = state.next[q]
    state.next[q] += 1
    state.ran[state.costs[q, LINE]] += 1
    state.item[state.place[device]] = x
    state.place[device] += 1
    sent = start + ticks
    state.free[device] = state.wake[device] = sent
    state.memory[device] += state.costs[q, DELTA]
    if state.costs[q, COUNTS] > 0:
        sent = _count(graph, state, q, sent)
    after, line = state.after[x, TARGET], state.after[x, THERE]
    if after >= 0:
        arrival, there = sent + state.after[x, LAG], state.after[x, HOME]
        state.arrives[after] = arrival
        state.wake[there] = min(state.wake[there], max(state.free[there], arrival))
        if state.heads[line, ITEM] == after:
            state.heads[line, ARRIVAL] = max(state.heads[line, READY], arrival)


@compiled
def _count(graph: EventGraph, state: DispatchState, q: int, sent: int) -> int:
    """Count the credits that an item takes and gives, and return when its message leaves."""
    for taken in graph.arrays.queues[q].takes:
        if taken >= 0:
            state.credit[taken] -= 1
    for given in graph.arrays.queues[q].gives:
        if given >= 0:
            state.credit[given] += 1
    link = graph.arrays.queues[q].link
    if link >= 0:
        sent = state.left[link] = max(sent, state.left[link] + graph.arrays.occupancy)
    return sent
