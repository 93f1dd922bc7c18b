"""Shorten the period of a block as far as its sequence of operations allows.

On each device the instances of a block's operations run in an endless sequence, and each instance waits for
the one before it. Together with what operations wait for, this is a graph whose edges each say that an
operation starts at least `lag` ticks after another one of `height` periods earlier:
start[v] >= start[u] + lag - height * T. Such starts exist if and only if no cycle has more lag than its
heights times T. A block that is valid for one T shows that every cycle has a positive height, as all lags
along it are positive. So the same sequences are valid for every larger T too, and for every smaller one down
to the largest ratio of lag to height of a cycle. Memory depends on the sequences alone.
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
    """Edges of the graph, each array of shape (edges,): tail, head, lag in ticks and height in periods."""

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
    """Do the same for starts that only give the sequences: each need not wait for what it depends on.

    The parameters are those of `compressed`. None if the sequences have no block of at most this period.
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
    """Return the earliest starts after operation 0 for a period, None if there are none."""
    start = np.full(count, _UNREACHED, np.int64)
    start[0] = 0
    weight = edges.lag - edges.height * period
    for _ in range(count + 1):
        before = start.copy()
        np.maximum.at(start, edges.head, before[edges.tail] + weight)
        if np.array_equal(before, start):
            return start
    return None
