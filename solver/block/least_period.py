"""A lower bound of the period of a block by closed formulas."""

from __future__ import annotations

from tightpipe.core.operation import Operation, OpKind

from .block import Shape


def period_bound(shape: Shape) -> int:
    """Return a lower bound of the period of every block of this shape, in ticks.

    Notes
    -----
    A device runs all its operations of a block within a period, so the period is at least their work.

    Take each activation that the device holds in the block, multiply its memory by the ticks for which it is
    held, and call the sum over all activations the *memory-time*. By Little's law, the average of the memory
    that the device holds is the memory-time divided by the period, and it is at most the limit. No activation
    is held for less time than the operations and messages from its F to the B or W that frees it take. This
    gives a least memory-time, and the period is at least this least memory-time divided by the limit.
    """
    devices = range(shape.instance.devices)
    works = [sum(map(shape.duration, shape.on(device))) for device in devices]
    return max(*works, *(_by_memory(shape, device) for device in devices), 1)


def _by_memory(shape: Shape, device: int) -> int:
    limit = shape.instance.memory_limit(device)
    return 0 if not limit else -(-memory_time(shape, device) // limit)


def memory_time(shape: Shape, device: int) -> int:
    """Return the least memory-time of a block on a device (see `period_bound`), in memory times ticks.

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
    """Return the earliest start of each operation of a microbatch, in ticks after its first F starts.

    Only the waits of `Shape.waits` count, not that a device runs one operation at a time.
    """
    start = {Operation(OpKind.F, 0, microbatch): 0}
    for wait in shape.waits(microbatch):
        start[wait.after] = start[wait.before] + wait.lag
    return start
