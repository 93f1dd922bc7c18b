"""Schedules of many microbatches from a repeating block, and the block that a schedule repeats.

On each device the repetitions of a block's operations run in an endless sequence, and each repetition waits
for the one before it. These waits, and the waits of `Shape.waits`, are the edges of a graph whose nodes are
the operations of the block. An edge from u to v says that v starts at least `lag` ticks after the repetition
of u that lies `height` periods earlier: start[v] >= start[u] + lag - height * T. Starts that satisfy all
edges exist if and only if on no cycle the sum of the lags exceeds T times the sum of the heights. If the
block is valid for one T, then the heights of every cycle have a positive sum, because all lags are positive
but those between the two parts of a fused backward, which count as one node here.
So the same sequences are valid for every larger T too, and for every smaller T down to the largest ratio of
the sum of the lags to the sum of the heights of a cycle. The memory that is held depends on the sequences
alone, so it stays within the limit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import FUSED, SINGLE, Operation, OpKind
from tightpipe.model.schedule import Schedule
from tightpipe.model.simulate import retime
from tightpipe.params.solve_params import DEFAULTS

from ..engine.run import in_queue_order
from ..improve.fold import repeating
from ..queues import Queues, Tokens, is_modelled, order_of_tokens, queues_of, words_of
from .block import Block, Shape, period_bound

_UNREACHED = -(2**60)


@dataclass(frozen=True, slots=True)
class _Edges:
    """The edges of the graph, in arrays of shape (edges,)."""

    tail: Ints  # position in the list of operations
    head: Ints  # position in the list of operations
    lag: Ints  # ticks
    height: Ints  # periods


def compressed(block: Block, least: int) -> Block:
    """Return the block of least period, in whole ticks and at least `least`, with a valid block's sequences.

    Every operation starts as early as it can after F0 of microbatch 0, which starts at 0.
    """
    found = shortened(block, least)
    assert found is not None, "a valid block has no cycle that takes longer than its period"
    return found


def shortened(block: Block, least: int) -> Block | None:
    """Return what `compressed` does, or None, for a block whose starts may violate waits.

    They only have to say in which sequence each device runs the repetitions. There is no such block if these
    sequences allow no period of at most `block.period`.
    """
    operations = block.shape.operations()
    edges = _edges(block, operations)
    low, high = least, block.period
    starts = _earliest(edges, len(operations), high)
    if starts is None:
        return None
    while low < high:
        middle = (low + high) // 2
        found = _earliest(edges, len(operations), middle)
        if found is None:
            low = middle + 1
        else:
            high, starts = middle, found
    return replace(block, period=high, start=dict(zip(operations, starts.tolist(), strict=True)))


def _edges(block: Block, operations: list[Operation]) -> _Edges:
    number = {operation: i for i, operation in enumerate(operations)}
    shape = block.shape
    rows = [
        (number[wait.before], number[wait.after], block.lag(wait), 0)
        for m in range(shape.microbatches)
        for wait in shape.waits(m)
    ]
    for weight in block.fused:  # it starts no later than at the end of its B
        if weight.kind is OpKind.W:
            backward = weight._replace(kind=OpKind.B)
            rows.append((number[weight], number[backward], -shape.part(backward), 0))
    for device in range(shape.instance.devices):
        order = sorted(shape.on(device), key=lambda o: block.start[o] % block.period)
        for i, after in enumerate(order):
            before = order[i - 1]
            height = block.start[before] // block.period - block.start[after] // block.period + (i == 0)
            rows.append((number[before], number[after], block.duration(before), height))
    return _Edges(*np.array(rows, np.int64).T)


def _earliest(edges: _Edges, count: int, period: int) -> Ints | None:
    """Return the earliest starts of `count` operations after operation 0 in ticks; None if there are none."""
    start = np.full(count, _UNREACHED, np.int64)
    start[0] = 0
    weight = edges.lag - edges.height * period
    for _ in range(count + 1):
        before = start.copy()
        np.maximum.at(start, edges.head, before[edges.tail] + weight)
        if np.array_equal(before, start):
            return start
    return None


def unrolled(block: Block, instance: Instance) -> Schedule:
    """Return a schedule of an instance that repeats a valid block: a part of its endless schedule, retimed.

    Each device runs the operations of as many consecutive microbatches as the instance has, in their sequence
    in the endless schedule. So the schedule holds no more memory than the endless one, and never deadlocks.
    Its times are the best for that order, so time that missing microbatches leave free in warm-up and
    cool-down is used. The first microbatch may be any of the block's; all are tried, and the cheapest
    schedule is returned.
    """
    queues = queues_of(instance)
    choices = (_tokens(block, queues, skipped) for skipped in range(block.shape.copies))
    return min((retime(instance, order_of_tokens(queues, tokens)) for tokens in choices), key=cost)


def _tokens(block: Block, queues: Queues, skipped: int) -> Tokens:
    """Return the words of a schedule that begins with microbatch `skipped` of the block, of each route."""
    shape, period = block.shape, block.period
    count = queues.instance.microbatches // len(queues.instance.placement.routes)
    instances: list[list[tuple[int, int, int]]] = [[] for _ in range(queues.instance.devices)]
    for operation, start in block.start.items():
        route, copy = divmod(operation.microbatch, shape.copies)
        queue = queues.index[operation.kind, route, operation.stage]
        first = copy < skipped  # number of the first repetition whose microbatch is kept
        last = (skipped + count - 1 - copy) // shape.copies
        joined = FUSED if operation.kind is OpKind.B and operation in block.fused else SINGLE
        instances[shape.device(operation)] += [
            (start + i * period, queue, joined) for i in range(int(first), last + 1)
        ]
    _, word, joint = np.array([each for device in instances for each in sorted(device)]).T
    return Tokens(word, joint, np.cumsum([0, *map(len, instances)]))


def with_late_weights(block: Block) -> Block:
    """Return a block of the same period whose W's run later, by up to a period, where memory limits allow it.

    The W's of a queue take the places of the next W's of the same queue, those of the last stages first. So
    warm-up leaves W's to cool-down, which has idle time for them. The W's of fused backwards stay.
    """
    shape, late = block.shape, block
    queues = [
        queue for queue in shape.queues() if queue[0].kind is OpKind.W and block.fused.isdisjoint(queue)
    ]
    for _ in range(shape.copies):
        for queue in reversed(queues):
            device = shape.device(queue[0])
            limit = shape.instance.memory_limit(device)
            places = [late.start[weight] for weight in queue]
            places = [*places[1:], places[0] + block.period]
            later = replace(late, start={**late.start, **dict(zip(queue, places, strict=True))})
            if limit is not None and most_memory(later, device) <= limit:
                late = later
    return late


def most_memory(block: Block, device: int) -> int:
    """Return the most memory that a device holds in the endless schedule of a valid block.

    Before the repetitions i >= 0 it holds nothing, since the deltas of a microbatch on a device sum to zero.
    """
    shape, operations = block.shape, block.shape.on(device)

    def held(taking: Operation) -> int:
        ran = {other: (block.start[taking] - block.start[other]) // block.period + 1 for other in operations}
        return sum(shape.delta(other) * times for other, times in ran.items()) + shape.passing(taking)

    return max(held(operation) for operation in operations)


def steady_block(schedule: Schedule, copies: int, least: int = DEFAULTS.blocks.least_equal) -> Block | None:
    """Return the block of `copies` microbatches of each route that a schedule repeats, if there is one.

    The block runs the sequences of the part of the schedule that repeats, with at least `least` equal
    periods, so it holds as much memory as the schedule does there. It has the least period that these
    sequences allow. None if no part of the schedule gives a block, or if blocks do not model a rule of the
    instance.

    In several consecutive periods of the schedule, each device repeats one sequence of kinds and stages. Each
    operation in the first of these periods is a repetition of an operation of the block, which has the same
    kind, stage and route. Count the microbatches of the route that come before the operation's microbatch,
    and divide this number by `copies`: the remainder says which microbatch of the block the operation belongs
    to, and the quotient by how many periods the repetition lies later. The sequences of a few equal periods
    may deadlock if they are repeated for ever; then there is no block.
    """
    if not is_modelled(schedule.instance):
        return None
    schedule = in_queue_order(schedule)
    instance, shape = schedule.instance, Shape(schedule.instance, copies)
    words = words_of(queues_of(instance), schedule.order)
    if copies * len(instance.placement.routes) * least > instance.microbatches:
        return None
    first, length, found = repeating(schedule, words, copies)
    if found < least:
        return None
    ranks = arrays_of(instance).rank.tolist()  # the classes are the routes
    period = _longest(shape)
    start: dict[Operation, int] = {}
    for row, begin, size in zip(schedule.order.to_lists(), first.tolist(), length.tolist(), strict=True):
        for place, (kind, stage, microbatch) in enumerate(row[begin : begin + size]):
            later, copy = divmod(ranks[microbatch], copies)
            operation = Operation(OpKind(kind), stage, instance.route(microbatch) * copies + copy)
            start[operation] = place - later * period
    if set(start) != set(shape.operations()):
        return None
    return shortened(Block(shape, period, start), period_bound(shape))


def _longest(shape: Shape) -> int:
    """Return a period in ticks that no block needs to exceed: the sum of all durations and all lags."""
    lags = sum(wait.lag for m in range(shape.microbatches) for wait in shape.waits(m))
    return lags + sum(map(shape.duration, shape.operations()))
