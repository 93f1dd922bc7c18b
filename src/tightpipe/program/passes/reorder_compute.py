"""Reorder the computations so that they run during the communication that they do not need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from .task import Estimator, Task, TaskKind, Tasks, given_duration


def decide_global_ordering_of_comms(tasks: Sequence[Task]) -> Tasks:
    """Make every start depend on the start before it, so that no pass can change their order."""
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
    """Fill every communication with computations that do not depend on it.

    After start k run the tasks that start k + 1 needs and that do not depend on start k; if these do
    not last as long as the communication, then computations that are needed soonest, as long as more
    than half of each is hidden; then the rest of what start k + 1 needs. Starts keep their order.
    """
    starts = [task for task in tasks if task.kind is TaskKind.START]
    if not starts:
        return tuple(tasks)
    filling = _Filling(tasks, starts, estimate)
    filling.run()
    return tuple(filling.order)


class _Filling:
    """The order so far, and what each start needs."""

    def __init__(self, tasks: Sequence[Task], starts: list[Task], estimate: Estimator) -> None:
        self.starts, self.estimate = starts, estimate
        self.tasks = {task.name: task for task in tasks}
        self.rank = {task.name: position for position, task in enumerate(tasks)}
        self.left = dict.fromkeys(self.tasks)
        self.order: list[Task] = []
        self.ancestors = _ancestors(tasks)
        self.needed_by: dict[str, int] = {}  # the first start that needs a task
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
        """Run computations that are ready beside `start`; return how long those take."""
        length, filled = self.estimate(start), 0
        ready = [name for name in self.left if self._is_ready(name) and not self._depends(name, start.name)]
        for name in sorted(ready, key=lambda name: self.needed_by.get(name, len(self.starts))):
            duration = self._duration(name)
            # a computation of which less than half would be hidden is worth more to a later communication
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
        """Append tasks, each of which comes after its inputs because the list that was given does so."""
        for name in names:
            self.order.append(self.tasks[name])
            del self.left[name]

    def _depends(self, name: str, other: str) -> bool:
        return other in self.ancestors[name]


def _ancestors(tasks: Sequence[Task]) -> dict[str, set[str]]:
    """Return for each task the names of all that must come before it."""
    found: dict[str, set[str]] = {}
    for task in tasks:
        found[task.name] = set(task.inputs).union(*(found[name] for name in task.inputs))
    return found
