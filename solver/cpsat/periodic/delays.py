"""How long an operation of a block needs to be delayed at most, and what memory says about all delays.

**Two periods are enough.** Let v wait for u, and let every microbatch's v and all that follows v on its path
start one microbatch earlier, i.e. when the same operations of the microbatch before it started. The devices
run the same operations at the same times as before, and every activation is held for less time or as long. So
a block in which this is possible for some wait can be replaced by one that waits less, until for every wait
some microbatch has a v that cannot move to the place of the v before it, which starts at most a period
earlier. The delay of that v is less than a period, and those of the others differ from it by at most a period
more, as each queue is first in, first out and K microbatches later is one period later.

**Memory.** By Little's law, what the operations of a device hold times how long they hold it is at most the
limit times the period. The time of holding is the shortest path from F to B or W plus the delays on it, so
memory leaves room for a sum of delays.
"""

from __future__ import annotations

from dataclasses import dataclass

from tightpipe.core.operation import Operation, OpKind

from ...block import Shape
from ...block.block import Wait
from ...block.least_period import memory_time


@dataclass(frozen=True, slots=True)
class Room:
    """What the memory of a device leaves for delays.

    Parameters
    ----------
    takes
        The memory that is held longer by each tick of a wait's delay.
    most
        Most memory-time of all delays together, in units of memory times ticks; negative if there is no
        block of the period.
    """

    takes: dict[Wait, int]
    most: int


def rooms(shape: Shape, period: int) -> list[Room]:
    """Return the room for delays on each device that has a memory limit."""
    found = []
    for device in range(shape.instance.devices):
        limit = shape.instance.memory_limit(device)
        if limit is not None:
            most = limit * period - memory_time(shape, device)
            found.append(Room(_takes(shape, device), most))
    return found


def most_delays(shape: Shape, period: int, found: list[Room]) -> dict[Wait, int]:
    """Return the most delay of each wait in ticks; nothing is lost with longer ones."""
    enough = period - 1 if shape.copies == 1 else 2 * period - 1
    most = {wait: enough for m in range(shape.microbatches) for wait in shape.waits(m)}
    for room in found:
        for wait, memory in room.takes.items():
            most[wait] = min(most[wait], room.most // memory)
    return most


def _takes(shape: Shape, device: int) -> dict[Wait, int]:
    """Return the memory of a device that is held longer by each tick of a wait's delay, where there is some.

    The delay of a wait on the chain counts for each stage of the device whose F has begun and whose B has
    not.
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
    """Return by how much the memory grows that waits for a B of the device once the operation has begun."""
    if shape.device(operation) != device:
        return 0
    whole = shape.delta(Operation(OpKind.F, operation.stage, operation.microbatch))
    return whole if operation.kind is OpKind.F else -whole
