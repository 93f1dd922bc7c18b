"""A picture in text that shows beside each task the communications that run at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from .tasks import Estimator, Task, TaskKind, check_tasks, given_duration
from .timeline import peak_memory, timeline


def visualize_overlap(tasks: Sequence[Task], estimate: Estimator = given_duration) -> str:
    """Return one line of text per task, with a bar for each communication that runs beside the task.

    The line after the tasks has the total and the exposed time in ticks, and the peak memory. If
    communications start while another one is running, a last line has their number. `estimate` gives the
    ticks of a computation or transfer.

    Raises
    ------
    InputError
        If the list cannot run, e.g. because a wait has no communication to wait for.
    """
    lines, running, together = [], dict[str, None](), 0
    for task in check_tasks(tasks):
        if task.kind is TaskKind.WAIT:
            for name in task.inputs:
                running.pop(name, None)
        lines.append("| " * len(running) + _line(task, estimate))
        if task.kind is TaskKind.START:
            together += bool(running)
            running[task.name] = None
    end, exposed = timeline(tasks, estimate)
    lines.append(f"{end} ticks, {exposed} of them exposed communication, peak memory {peak_memory(tasks)}")
    if together:
        lines.append(f"{together} communications start while another is running")
    return "\n".join(lines)


def _line(task: Task, estimate: Estimator) -> str:
    if task.kind is TaskKind.WAIT:
        return str(task)
    return f"{task} ({estimate(task)})"
