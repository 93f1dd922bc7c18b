"""The passes that reorder tasks so that communication overlaps with computation, and their composition.

The tasks are those of one device. When a wait moves behind a computation, the computation can run during the
transfer. When a start moves up, its transfer begins earlier. There are three sorts of passes:

- Two greedy passes move waits down, or starts of communications up, as far as inputs allow. Neither ever
  increases the exposed time, which is the time that the device stands still at waits.
- Two passes swap neighbouring tasks to the same end, as long as the peak memory stays within a budget. A
  receive buffer is held from the start of the communication to its last use. So a start that moves up holds
  its buffer for longer; the greedy passes ignore that.
- `reorder_compute_for_overlap` moves computations: each runs during a communication that it does not need.

Passes are run by name, one after another, and a report says what each of them gained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ..base.errors import check_choice
from .tasks import Task, TaskKind, Tasks, check_tasks, exposed_time, last_users, peak_memory


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
        """Swap the task at `position` with the next task if that is allowed; return whether it was."""
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


def reorder_compute_for_overlap(tasks: Sequence[Task]) -> Tasks:
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
    filling = _Filling(tasks, starts)
    filling.run()
    return tuple(filling.order)


class _Filling:
    """The tasks ordered so far, the tasks that are left, and the tasks that each start needs."""

    def __init__(self, tasks: Sequence[Task], starts: list[Task]) -> None:
        self.starts = starts
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
        length, filled = start.duration, 0
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
        return task.duration if task.kind is TaskKind.COMPUTE else 0

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


PASSES: dict[str, Callable[[Tasks, int | None], Tasks]] = {
    "sink_waits": lambda tasks, budget: sink_waits(tasks),
    "raise_comms": lambda tasks, budget: raise_comms(tasks),
    "reorder_compute_for_overlap": lambda tasks, budget: reorder_compute_for_overlap(tasks),
    "raise_comms_within_memory": raise_comms_within_memory,
    "sink_waits_within_memory": sink_waits_within_memory,
    "decide_global_ordering_of_comms": lambda tasks, budget: decide_global_ordering_of_comms(tasks),
}
"""The passes by name; each takes tasks and a memory budget."""

DEFAULT_PASSES = ("reorder_compute_for_overlap", "sink_waits", "raise_comms")


@dataclass(frozen=True, slots=True)
class PassReport:
    """What a pass changed on a task list.

    The new order is discarded if its exposed time is longer or its peak memory exceeds the budget; the values
    after the pass are then those before it.
    """

    name: str
    exposed_before: int  #: communication time that no computation hides, in ticks
    exposed_after: int
    peak_before: int  #: peak memory, in the unit of the tasks
    peak_after: int
    kept: bool  #: whether the new order was taken


def run_passes(
    tasks: Sequence[Task], passes: Sequence[str] = DEFAULT_PASSES, *, budget: int | None = None
) -> tuple[Tasks, list[PassReport]]:
    """Apply passes to a task list, one after another.

    Parameters
    ----------
    tasks
        A list that can run from first to last; see `check_tasks`.
    passes
        Names of the passes in `PASSES`.
    budget
        Largest peak memory, in the unit of the tasks. A pass may always keep the peak of the tasks before it,
        even above the budget. With None, the passes whose names end in `within_memory` do not raise that
        peak, and the other passes have no limit.

    Returns
    -------
    tuple
        The tasks in their new order, and one report per pass. Tasks still come after their inputs, the starts
        of one peer keep their sequence, and the exposed time is never longer.

    Raises
    ------
    InputError
        If a pass is unknown or the list cannot run.
    """
    current, reports = check_tasks(tasks), []
    for name in passes:
        check_choice("passes", name, *PASSES)
        changed = PASSES[name](current, budget)
        report = _report(name, current, changed, budget)
        reports.append(report)
        current = changed if report.kept else current
    return current, reports


def _report(name: str, old: Tasks, new: Tasks, budget: int | None) -> PassReport:
    exposed, peak = exposed_time(old), peak_memory(old)
    exposed_after, peak_after = exposed_time(new), peak_memory(new)
    fits = budget is None or peak_after <= max(budget, peak)
    kept = fits and exposed_after <= exposed
    return PassReport(
        name, exposed, exposed_after if kept else exposed, peak, peak_after if kept else peak, kept
    )
