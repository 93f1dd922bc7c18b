"""A lower bound of the period of a block by closed formulas."""

from __future__ import annotations

from tightpipe.core.operation import Operation, OpKind

from .block import Shape


def period_bound(shape: Shape) -> int:
    """Return a lower bound of the period of every block of this shape, in ticks.

    Notes
    -----
    A device runs all its operations of a block within a period, so the period is at least their work.

    By Little's law, the memory that a device holds, averaged over a period, is the sum over its operations
    in the block of what each of them takes times how long it takes it, divided by the period. The average is
    at most the limit. No activation is held for less time than the shortest path from its F to its B or W
    takes. So the period is at least this least *memory-time* of the block divided by the limit.
    """
    devices = range(shape.instance.devices)
    works = [sum(map(shape.duration, shape.on(device))) for device in devices]
    return max(*works, *(_by_memory(shape, device) for device in devices), 1)


def _by_memory(shape: Shape, device: int) -> int:
    limit = shape.instance.memory_limit(device)
    return 0 if not limit else -(-memory_time(shape, device) // limit)


def memory_time(shape: Shape, device: int) -> int:
    """Return the least memory-time of a block on a device, in units of memory times ticks.

    Each F holds, from its start on, what its B and its W free at their ends.
    """
    total = 0
    starts = {m: earliest_starts(shape, m) for m in range(shape.microbatches)}
    for operation in shape.on(device):
        if operation.kind is not OpKind.F:
            start = starts[operation.microbatch]
            begun = start[Operation(OpKind.F, operation.stage, operation.microbatch)]
            total -= shape.delta(operation) * (start[operation] + shape.duration(operation) - begun)
    return total


def earliest_starts(shape: Shape, microbatch: int) -> dict[Operation, int]:
    """Return the start in ticks of each operation of a microbatch that runs alone and never waits."""
    start = {shape.chain(microbatch)[0]: 0}
    for wait in shape.waits(microbatch):
        start[wait.after] = start[wait.before] + wait.lag
    return start
