"""Upper limits on the delays in a block that lose no solution, and what memory allows for their sum.

**Two periods are enough.** Let operation v wait for operation u. Shift the v of every microbatch, and all
operations that follow v on the microbatch's path, to the times at which the previous microbatch of the route
runs these operations. The devices are then busy at the same times as before, and hold no activation for
longer. Repeat this, for any wait, as long as every shifted v still starts late enough after its u. In the
end, for every wait, the v of some microbatch cannot be shifted in this way. The delay of that v is less than
a period, because the previous v starts at most a period earlier. The delays of the same wait in the other
microbatches differ from it by at most a period: queues are first in, first out, and the starts in a queue
repeat after K microbatches and one period. If K is 1, all microbatches have the same delay.

**Memory.** Take each activation that a device holds in the block, and multiply its memory by the ticks for
which it is held. By Little's law, the sum of these products is at most the memory limit times the period. An
activation is held for the length of the shortest path from its F to its B or W, plus the delays on that path.
So the limit leaves room for a weighted sum of delays.
"""

from __future__ import annotations

from dataclasses import dataclass

from tightpipe.core.operation import Operation, OpKind

from ...block import Shape
from ...block.block import Wait
from ...block.least_period import memory_time


@dataclass(frozen=True, slots=True)
class Room:
    """How much delay the memory limit of a device has room for.

    Parameters
    ----------
    takes
        For each wait, the memory that is held one tick longer by each tick of its delay.
    most
        Upper limit on the sum, over all waits, of this memory times the wait's delay, in units of memory
        times ticks. If it is negative, there is no block of the period.
    """

    takes: dict[Wait, int]
    most: int


def rooms(shape: Shape, period: int) -> list[Room]:
    """Return the room for delays, in a block of this period, on each device that has a memory limit."""
    found = []
    for device in range(shape.instance.devices):
        limit = shape.instance.memory_limit(device)
        if limit is not None:
            most = limit * period - memory_time(shape, device)
            found.append(Room(_takes(shape, device), most))
    return found


def most_delays(shape: Shape, period: int, found: list[Room]) -> dict[Wait, int]:
    """Return an upper limit on the delay of each wait, in ticks, that loses no solution.

    `found` is the room for delays that memory leaves on each device.
    """
    enough = period - 1 if shape.copies == 1 else 2 * period - 1
    most = {wait: enough for m in range(shape.microbatches) for wait in shape.waits(m)}
    for room in found:
        for wait, memory in room.takes.items():
            most[wait] = min(most[wait], room.most // memory)
    return most


def _takes(shape: Shape, device: int) -> dict[Wait, int]:
    """Return, for each wait, the memory on `device` that is held one tick longer by each tick of its delay.

    A delay of a W holds what the W frees. A delay on the chain of F's and B's holds the memory of each stage
    of the device whose F has begun and whose B has not. Waits whose delays hold no memory are left out.
    """
    takes: dict[Wait, int] = {}
    for m in range(shape.microbatches):
        held = 0
        for wait in shape.waits(m):
            before, after = wait.before, wait.after
            if after.kind is OpKind.W:
                here = -shape.delta(after) if shape.device(after) == device else 0
            else:
                held += _change(shape, before, device)
                here = held
            if here > 0:
                takes[wait] = here
    return takes


def _change(shape: Shape, operation: Operation, device: int) -> int:
    """Return by how much `operation`, when it starts, changes what `device` holds for B's yet to start."""
    if shape.device(operation) != device:
        return 0
    whole = shape.delta(Operation(OpKind.F, operation.stage, operation.microbatch))
    return whole if operation.kind is OpKind.F else -whole
