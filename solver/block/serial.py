"""The block that runs one microbatch after another, from which a search can start."""

from __future__ import annotations

from dataclasses import replace

from tightpipe.core.operation import Operation, OpKind
from tightpipe.core.simulate import simulate

from ..start import one_by_one
from .block import Block, Shape


def serial_block(shape: Shape) -> Block:
    """Return the block that runs one microbatch after another, each W right after its B.

    The block is valid whenever the instance has a schedule, because a device holds one microbatch at a time.
    """
    alone = replace(shape.instance, microbatches=shape.microbatches, iterations=1)
    schedule = simulate(alone, one_by_one(alone))
    rows = zip(schedule.order.operations.tolist(), schedule.start.tolist(), strict=True)
    start = {Operation(OpKind(kind), stage, m): at for (kind, stage, m), at in rows}
    return Block(shape, int(schedule.end.max()), start)
