"""A pass that reorders computations so that they run during communications that they do not need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .tasks import Estimator, Task, TaskKind, Tasks, given_duration


def decide_global_ordering_of_comms(tasks: Sequence[Task]) -> Tasks:
    """Return the tasks with each start as an input of the next start, which fixes the sequence of starts."""
    order: list[Task] = []
    last: str | None = None
    for task in tasks:
        if task.kind is TaskKind.START:
            if last is not None and last not in task.inputs:
                task = replace(task, inputs=(*task.inputs, last))
            last = task.name
        order.append(task)
    return tuple(order)


def reorder_compute_for_overlap(tasks: Sequence[Task], estimate: Estimator = given_duration) -> Tasks:
    """Return the tasks in an order in which computations run during communications that they do not need.

    The starts keep their sequence, and tasks that the first start needs stand before it. Between a start and
    the next one stand, in this sequence:

    1. the tasks that the next start needs and that do not depend on this start;
    2. if these take less time than the communication of this start, other tasks that are ready and do not
       depend on this start: first those that the earliest of the later starts needs. A computation is taken
       only if more than half of it still runs during the communication;
    3. the remaining tasks that the next start needs.

    All other tasks come last. Tasks of group 2 that stand right before the next start, because group 3 is
    empty, also count as running during the communication of the next start.
    """
    starts = [task for task in tasks if task.kind is TaskKind.START]
    if not starts:
        return tuple(tasks)
    filling = _Filling(tasks, starts, estimate)
    filling.run()
    return tuple(filling.order)


class _Filling:
    """The tasks ordered so far, the tasks that are left, and the tasks that each start needs."""

    def __init__(self, tasks: Sequence[Task], starts: list[Task], estimate: Estimator) -> None:
        self.starts, self.estimate = starts, estimate
        self.tasks = {task.name: task for task in tasks}
        self.rank = {task.name: position for position, task in enumerate(tasks)}
        self.left = dict.fromkeys(self.tasks)
        self.order: list[Task] = []
        self.ancestors = _ancestors(tasks)
        self.needed_by: dict[str, int] = {}  # for each task the number of the first start that needs it
        for k, start in enumerate(starts):
            for name in self.ancestors[start.name]:
                self.needed_by.setdefault(name, k)

    def run(self) -> None:
        self._add(self._unscheduled(self.ancestors[self.starts[0].name]))
        self._add([self.starts[0].name])
        rolled_over = 0
        for before, start in zip(self.starts, self.starts[1:], strict=False):
            needed = self._unscheduled(self.ancestors[start.name])
            independent = [name for name in needed if not self._depends(name, before.name)]
            hidden = rolled_over + sum(map(self._duration, independent))
            self._add(independent)
            fillers = self._fill(before, hidden)
            rest = self._unscheduled(self.ancestors[start.name])
            self._add([*rest, start.name])
            rolled_over = 0 if rest else fillers
        self._add(list(self.left))

    def _fill(self, start: Task, hidden: int) -> int:
        """Append ready tasks that do not depend on `start`; return how long they take, in ticks.

        `hidden` has the ticks of earlier computations that count as running beside `start`.
        """
        length, filled = self.estimate(start), 0
        ready = [name for name in self.left if self._is_ready(name) and not self._depends(name, start.name)]
        for name in sorted(ready, key=lambda name: self.needed_by.get(name, len(self.starts))):
            duration = self._duration(name)
            # A computation of which half or less would run during this communication is left to a later one.
            if length - hidden - filled > duration / 2:
                self._add([name])
                filled += duration
        return filled

    def _is_ready(self, name: str) -> bool:
        task = self.tasks[name]
        return task.kind is not TaskKind.START and not any(i in self.left for i in task.inputs)

    def _duration(self, name: str) -> int:
        task = self.tasks[name]
        return self.estimate(task) if task.kind is TaskKind.COMPUTE else 0

    def _unscheduled(self, names: Iterable[str]) -> list[str]:
        return sorted((name for name in names if name in self.left), key=self.rank.__getitem__)

    def _add(self, names: list[str]) -> None:
        """Append tasks by name; the caller lists each task behind its inputs."""
        for name in names:
            self.order.append(self.tasks[name])
            del self.left[name]

    def _depends(self, name: str, other: str) -> bool:
        return other in self.ancestors[name]


def _ancestors(tasks: Sequence[Task]) -> dict[str, set[str]]:
    """Return for each task the names of all tasks that must come before it."""
    found: dict[str, set[str]] = {}
    for task in tasks:
        found[task.name] = set(task.inputs).union(*(found[name] for name in task.inputs))
    return found
