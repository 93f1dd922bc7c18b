"""Two greedy passes: one moves waits down, the other moves starts of transfers up, as far as inputs allow.

Neither pass ever increases the exposed time, which is the time that the device stands still at waits. When a
wait moves behind a computation, the computation can run during the transfer. When a start moves up, its
transfer begins earlier.
"""

from __future__ import annotations

from collections.abc import Sequence

from .tasks import Task, TaskKind, Tasks


def sink_waits(tasks: Sequence[Task]) -> Tasks:
    """Return the tasks with every wait right before the first task that needs it, or else at the end."""
    order: list[Task] = []
    pending: dict[str, Task] = {}
    for task in tasks:
        needed = [name for name in pending if name in task.inputs]
        order += [pending.pop(name) for name in needed]
        if task.kind is TaskKind.WAIT:
            pending[task.name] = task
        else:
            order.append(task)
    return (*order, *pending.values())


def raise_comms(tasks: Sequence[Task]) -> Tasks:
    """Return the tasks with every start moved up, to right behind the last task that it needs.

    The starts keep their sequence, so a start also stays behind the starts before it.
    """
    backwards: list[Task] = []
    pending: list[Task] = []  # starts that are moving up, the last one first
    for task in reversed(tasks):
        if task.kind is TaskKind.START:
            pending.append(task)
            continue
        while any(task.name in start.inputs for start in pending):
            backwards.append(pending.pop(0))
        backwards.append(task)
    return tuple(reversed([*backwards, *pending]))
