"""A block of more microbatches with the same endless schedule as a smaller block."""

from __future__ import annotations

from .block import Block, Shape


def repeated(block: Block, times: int) -> Block:
    """Return the block that consists of `times` periods of `block`, one after another.

    The result has `times` times as many microbatches of each route, and `times` times the period.
    """
    shape, copies = block.shape, block.shape.copies
    start = {}
    for operation, at in block.start.items():
        route, copy = divmod(operation.microbatch, copies)
        for i in range(times):
            microbatch = (route * times + i) * copies + copy
            start[operation._replace(microbatch=microbatch)] = at + i * block.period
    whole = Shape(shape.instance, times * copies)
    return Block(
        whole, times * block.period, {operation: start[operation] for operation in whole.operations()}
    )
