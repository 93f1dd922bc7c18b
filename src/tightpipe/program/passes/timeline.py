"""Functions for the duration, the exposed time and the peak memory of a list of tasks on one device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .tasks import Estimator, Task, TaskKind, given_duration


class Timeline(NamedTuple):
    """The tick at which a device has run its tasks, and the ticks for which it stands still at waits."""

    end: int
    exposed: int  #: time for which the device stands still at waits


def timeline(tasks: Iterable[Task], estimate: Estimator = given_duration) -> Timeline:
    """Return the tick at which a device ends that begins the tasks at tick 0, and the exposed time.

    The exposed time is how long the device stands still at tasks that wait for a transfer. Transfers run
    beside the computations. Computations take the same time in every order, so an order with less exposed
    time also ends earlier. `estimate` gives the duration of a computation or transfer.
    """
    now = exposed = 0
    arrives: dict[str, int] = {}
    link_free: dict[str, int] = {}
    for task in tasks:
        if task.kind is TaskKind.COMPUTE:
            now += estimate(task)
        elif task.kind is TaskKind.START:
            begins = max(now, task.ready, link_free.get(task.link, 0))
            arrives[task.name] = begins + estimate(task)
            if task.link:
                link_free[task.link] = arrives[task.name]
        else:
            arrived = max(arrives.get(name, 0) for name in task.inputs)
            exposed += max(0, arrived - now)
            now = max(now, arrived)
    return Timeline(now, exposed)


def exposed_time(tasks: Iterable[Task], estimate: Estimator = given_duration) -> int:
    """Return the communication time that no computation hides, in ticks."""
    return timeline(tasks, estimate).exposed


def last_users(tasks: Iterable[Task]) -> dict[str, str]:
    """Return, for each task that is an input of other tasks, the name of the last task that needs it."""
    return {name: task.name for task in tasks for name in task.inputs}


def peak_memory(tasks: Iterable[Task]) -> int:
    """Return the largest memory that the tasks hold at once, beyond the memory held before the first task."""
    tasks = list(tasks)
    last, buffers = last_users(tasks), {task.name: task.buffer for task in tasks}
    held = peak = 0
    for task in tasks:
        held += max(task.memory, 0) + task.buffer
        peak = max(peak, held)
        freed = {name for name in task.inputs if last[name] == task.name}
        held += min(task.memory, 0) - sum(buffers[name] for name in freed)
    return peak
