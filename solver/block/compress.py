"""Shorten the period of a block as far as its sequence of operations allows.

On each device the repetitions of a block's operations run in an endless sequence, and each repetition waits
for the one before it. These waits, and the waits of `Shape.waits`, are the edges of a graph whose nodes are
the operations of the block. An edge from u to v says that v starts at least `lag` ticks after the repetition
of u that lies `height` periods earlier: start[v] >= start[u] + lag - height * T. Starts that satisfy all
edges exist if and only if on no cycle the sum of the lags exceeds T times the sum of the heights. If the
block is valid for one T, then the heights of every cycle have a positive sum, because all lags are positive.
So the same sequences are valid for every larger T too, and for every smaller T down to the largest ratio of
the sum of the lags to the sum of the heights of a cycle. The memory that is held depends on the sequences
alone, so it stays within the limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tightpipe.core.operation import Operation
from tightpipe.kernels.arrays import Ints

from .block import Block

_UNREACHED = -(2**60)


@dataclass(frozen=True, slots=True)
class _Edges:
    """The edges of the graph, in arrays of shape (edges,).

    `tail` and `head` are positions in the list of operations. Lags are in ticks, and heights in periods.
    """

    tail: Ints
    head: Ints
    lag: Ints
    height: Ints


def compressed(block: Block, least: int) -> Block:
    """Return the block of least period, in whole ticks, that runs the same sequences on all devices.

    Parameters
    ----------
    block
        A valid block.
    least
        A lower bound of the period in ticks.

    Returns
    -------
    Block
        Every operation starts as early as it can after F0 of microbatch 0, which starts at 0.
    """
    found = shortened(block, least)
    assert found is not None, "a valid block has no cycle that takes longer than its period"
    return found


def shortened(block: Block, least: int) -> Block | None:
    """Return the block of least period that runs the sequences of `block`, None if there is no such block.

    Parameters and result are those of `compressed`, but the starts in `block` may violate waits. They only
    have to say in which sequence each device runs the repetitions. There is no such block if these sequences
    allow no period of at most `block.period`.
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
    return Block(block.shape, high, dict(zip(operations, starts.tolist(), strict=True)))


def _edges(block: Block, operations: list[Operation]) -> _Edges:
    number = {operation: i for i, operation in enumerate(operations)}
    shape = block.shape
    rows = [
        (number[wait.before], number[wait.after], wait.lag, 0)
        for m in range(shape.microbatches)
        for wait in shape.waits(m)
    ]
    for device in range(shape.instance.devices):
        order = sorted(shape.on(device), key=lambda o: block.start[o] % block.period)
        for i, after in enumerate(order):
            before = order[i - 1]
            height = block.start[before] // block.period - block.start[after] // block.period + (i == 0)
            rows.append((number[before], number[after], shape.duration(before), height))
    return _Edges(*np.array(rows, np.int64).T)


def _earliest(edges: _Edges, count: int, period: int) -> Ints | None:
    """Return each operation's earliest start, in ticks after operation 0, if the block has this period.

    The result is None if no starts satisfy all edges. The period is in ticks, and `count` is the number of
    operations.
    """
    start = np.full(count, _UNREACHED, np.int64)
    start[0] = 0
    weight = edges.lag - edges.height * period
    for _ in range(count + 1):
        before = start.copy()
        np.maximum.at(start, edges.head, before[edges.tail] + weight)
        if np.array_equal(before, start):
            return start
    return None
