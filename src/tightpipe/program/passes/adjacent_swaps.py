"""Passes that swap neighbouring tasks as long as the peak memory stays within a budget.

One pass moves the starts of communications up the list, the other moves waits down. A receive buffer is held
from the start of the communication to its last use. So a start that moves up holds its buffer for
longer; the passes of `greedy.py` ignore that.
"""

from __future__ import annotations

from collections.abc import Sequence

from .tasks import Task, TaskKind, Tasks
from .timeline import last_users, peak_memory


def raise_comms_within_memory(tasks: Sequence[Task], budget: int | None = None) -> Tasks:
    """Return the tasks with every start moved up as far as its inputs and the budget allow.

    Starts of one peer or one link keep their sequence. `budget` is the largest allowed peak memory; None
    takes the peak of the given order, which is always allowed.
    """
    line = _Line(tasks, budget)
    for position, task in enumerate(line.tasks):
        if task.kind is TaskKind.START:
            while position > 0 and line.swap(position - 1):
                position -= 1
    return tuple(line.tasks)


def sink_waits_within_memory(tasks: Sequence[Task], budget: int | None = None) -> Tasks:
    """Return the tasks with every wait moved down as far as the tasks that need it and the budget allow.

    `budget` is the largest allowed peak memory; None takes the peak of the given order, which is always
    allowed.
    """
    line = _Line(tasks, budget)
    for position in reversed(range(len(line.tasks))):
        if line.tasks[position].kind is TaskKind.WAIT:
            while position + 1 < len(line.tasks) and line.swap(position):
                position += 1
    return tuple(line.tasks)


class _Line:
    """An order of tasks, and the memory that is held before each task; `swap` keeps both up to date."""

    def __init__(self, tasks: Sequence[Task], budget: int | None) -> None:
        self.tasks = list(tasks)
        peak = peak_memory(tasks)
        self.budget = peak if budget is None else max(budget, peak)
        self.buffers = {task.name: task.buffer for task in tasks}
        self.last = last_users(tasks)
        self.before = [0]
        for task in self.tasks:
            self.before.append(self.before[-1] + _takes(task) - self._frees(task))

    def swap(self, position: int) -> bool:
        """Swap the task at `position` with the next task if that is allowed; return whether it was.

        A swap is allowed if the next task does not need the first one, no common peer or link fixes the
        sequence of the two, and the peak memory stays within the budget.
        """
        first, second = self.tasks[position : position + 2]
        if first.name in second.inputs or _keep_their_order(first, second):
            return False
        shared = {i for i in first.inputs if i in second.inputs and self.last[i] == second.name}
        middle = self.before[position] + _takes(second) - self._frees(second)
        middle += sum(self.buffers[name] for name in shared)  # after the swap, `first` frees them
        peak = max(self.before[position] + _takes(second), middle + _takes(first))
        if peak > self.budget:
            return False
        self.last.update(dict.fromkeys(shared, first.name))
        self.tasks[position : position + 2] = second, first
        self.before[position + 1] = middle
        return True

    def _frees(self, task: Task) -> int:
        ends = {name for name in task.inputs if self.last[name] == task.name}
        return sum(self.buffers[name] for name in ends) - min(task.memory, 0)


def _takes(task: Task) -> int:
    return max(task.memory, 0) + task.buffer


def _keep_their_order(first: Task, second: Task) -> bool:
    """Return whether both tasks are starts whose sequence their common peer or link fixes."""
    if not first.kind is second.kind is TaskKind.START:
        return False
    return first.peer == second.peer or (bool(first.link) and first.link == second.link)
