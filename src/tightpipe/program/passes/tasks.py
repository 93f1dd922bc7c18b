"""The tasks that the overlap passes reorder: computations, starts of communications, and waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...core.errors import InputError


class TaskKind(StrEnum):
    """What a task does."""

    COMPUTE = "compute"  #: it computes
    START = "start"  #: it starts an asynchronous communication
    WAIT = "wait"  #: it waits until the communication that it names among its inputs has ended


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a list that a device runs from first to last.

    Parameters
    ----------
    name
        Name of the task, which is unique in the list.
    kind
        Whether the task computes, starts a communication or waits for one.
    duration
        Estimated ticks of the computation, or of the transfer that a start begins; 0 for a wait.
    inputs
        Names of the tasks that must come before this one.
    peer
        Partner of a communication. Communications with one peer keep their sequence; the empty name counts as
        a peer as well.
    link
        Link over which a transfer runs. Transfers over one link run one after another; the empty name means
        that the transfer has a link of its own.
    ready
        Time in ticks before which the transfer of a start cannot begin, because the peer is not ready.
    memory
        Lasting change of memory: an increase counts from the start of the task, a decrease from its end.
    buffer
        Memory that is held from the start of this task until the last task that has this task among its
        inputs has run; until the end of the list if no task has this one as input.
    """

    name: str
    kind: TaskKind
    duration: int = 0
    inputs: tuple[str, ...] = ()
    peer: str = ""
    link: str = ""
    ready: int = 0
    memory: int = 0
    buffer: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


Tasks = tuple[Task, ...]
Estimator = Callable[[Task], int]


def given_duration(task: Task) -> int:
    """Return the duration that the task itself states, in ticks; this is the default estimator."""
    return task.duration


def check_tasks(tasks: Sequence[Task]) -> Tasks:
    """Return the tasks if they can run from first to last.

    Raises
    ------
    InputError
        If two tasks have the same name, an input is missing or comes later, a wait does not name exactly one
        start that no other wait names, or a duration, ready time or buffer is negative.
    """
    kinds: dict[str, TaskKind] = {}
    waited: set[str] = set()
    for position, task in enumerate(tasks):
        key = f"nodes[{position}]"
        if task.name in kinds:
            raise InputError("another node has this name", key=f"{key}.name", value=task.name)
        for name in task.inputs:
            if name not in kinds:
                raise InputError("must be the name of an earlier node", key=f"{key}.inputs", value=name)
        if task.kind is TaskKind.WAIT:
            waited |= _check_wait(task, kinds, waited, key)
        if task.duration < 0 or task.ready < 0 or task.buffer < 0:
            raise InputError("duration, ready and buffer must be at least 0", key=key, value=task.name)
        kinds[task.name] = task.kind
    return tuple(tasks)


def _check_wait(task: Task, kinds: dict[str, TaskKind], waited: set[str], key: str) -> set[str]:
    starts = {name for name in task.inputs if kinds[name] is TaskKind.START}
    if len(starts) != 1 or starts & waited:
        rule = "a wait names exactly one start that is running, and no other wait names it"
        raise InputError(rule, key=f"{key}.inputs", value=list(task.inputs))
    return starts
