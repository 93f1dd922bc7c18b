"""The tasks that the overlap passes reorder, what a list of them takes, and their files and pictures.

A list of tasks is what one device runs. Other software can use the passes too: task lists are read from and
written to JSON files of this form::

    {"nodes": [{"name": "gather", "kind": "start", "duration": 40, "inputs": ["a"], "peer": "data"},
               {"name": "gathered", "kind": "wait", "inputs": ["gather"]},
               {"name": "b", "kind": "compute", "duration": 25, "inputs": ["gathered"]}]}

``name`` and ``kind`` (``compute``, ``start``, ``wait``) are required. The other keys are the fields of `Task`
and have its defaults, except that the default of ``link`` is the ``peer``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import InputError, about_file, check_choice, check_int, check_text
from ..base.files import check_keys, check_kind, read_json, write_text


class TaskKind(StrEnum):
    """What a task does."""

    COMPUTE = "compute"  #: it computes
    START = "start"  #: it starts an asynchronous communication
    WAIT = "wait"  #: it waits until the communication that it names among its inputs has ended


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a list that a device runs from first to last."""

    name: str  #: unique in the list
    kind: TaskKind  #: whether it computes, starts a communication or waits for one
    duration: int = 0  #: estimated ticks of the computation or of the transfer that it starts; 0 for a wait
    inputs: tuple[str, ...] = ()  #: names of the tasks that must come before it
    #: partner of a communication. Communications with one peer keep their sequence; the empty name counts as
    #: a peer as well.
    peer: str = ""
    #: link over which a transfer runs. Transfers over one link run one after another; the empty name means
    #: that the transfer has a link of its own.
    link: str = ""
    ready: int = 0  #: tick before which the transfer of a start cannot begin, because the peer is not ready
    #: lasting change of memory: an increase counts from the start of the task, a decrease from its end
    memory: int = 0
    #: memory that is held from the start of this task until the last task that has this task among its inputs
    #: has run; until the end of the list if no task has this one as input
    buffer: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


Tasks = tuple[Task, ...]


def check_tasks(tasks: Sequence[Task]) -> Tasks:
    """Return the tasks if they can run from first to last.

    Raise an InputError if two tasks have the same name, an input is missing or comes later, a wait does not
    name exactly one start that no other wait names, or a duration, ready time or buffer is negative.
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


class Timeline(NamedTuple):
    """The tick at which a device has run its tasks, and the ticks for which it stands still at waits."""

    end: int
    exposed: int  #: time for which the device stands still at waits


def timeline(tasks: Iterable[Task]) -> Timeline:
    """Return the tick at which a device ends that begins the tasks at tick 0, and the exposed time.

    The exposed time is how long the device stands still at tasks that wait for a transfer. Transfers run
    beside the computations. Computations take the same time in every order, so an order with less exposed
    time also ends earlier.
    """
    now = exposed = 0
    arrives: dict[str, int] = {}
    link_free: dict[str, int] = {}
    for task in tasks:
        if task.kind is TaskKind.COMPUTE:
            now += task.duration
        elif task.kind is TaskKind.START:
            begins = max(now, task.ready, link_free.get(task.link, 0))
            arrives[task.name] = begins + task.duration
            if task.link:
                link_free[task.link] = arrives[task.name]
        else:
            arrived = max(arrives.get(name, 0) for name in task.inputs)
            exposed += max(0, arrived - now)
            now = max(now, arrived)
    return Timeline(now, exposed)


def exposed_time(tasks: Iterable[Task]) -> int:
    """Return the communication time that no computation hides, in ticks."""
    return timeline(tasks).exposed


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


_NUMBERS = ("duration", "ready", "memory", "buffer")
_TEXTS = ("peer", "link")


def load_tasks(path: str | Path) -> Tasks:
    """Return the task list of a file.

    Raise an InputError if the file is no task list that can run; the message names the file, the key, the
    value and the rule.
    """
    with about_file(path):
        return tasks_from_dict(read_json(path))


def save_tasks(tasks: Tasks, path: str | Path) -> None:
    """Write a task list as a JSON file."""
    rows = ",\n".join(json.dumps(_entry(task)) for task in tasks)
    write_text(path, f'{{"nodes": [\n{rows}\n]}}\n')


def tasks_from_dict(data: Any) -> Tasks:
    """Return the tasks in a file's JSON; raise an InputError with key, value and rule if they cannot run."""
    check_kind(data, "task list")
    check_keys(data, ("nodes",), ())
    if not isinstance(data["nodes"], list):
        raise InputError("must be a list of nodes", key="nodes", value=data["nodes"])
    return check_tasks([_task(f"nodes[{i}]", entry) for i, entry in enumerate(data["nodes"])])


def _task(key: str, entry: Any) -> Task:
    check_keys(entry, ("name", "kind"), ("inputs", *_NUMBERS, *_TEXTS), key)
    inputs = entry.get("inputs", [])
    if not isinstance(inputs, list) or not all(isinstance(name, str) for name in inputs):
        raise InputError("must be a list of names", key=f"{key}.inputs", value=inputs)
    check_choice(f"{key}.kind", entry["kind"], *TaskKind)
    texts = {name: entry.get(name, entry.get("peer", "")) for name in _TEXTS}
    for name, text in (("name", entry["name"]), *texts.items()):
        check_text(f"{key}.{name}", text)
    numbers = {name: check_int(f"{key}.{name}", entry.get(name, 0)) for name in _NUMBERS}
    fields: dict[str, Any] = {**texts, **numbers}
    return Task(entry["name"], TaskKind(entry["kind"]), inputs=tuple(inputs), **fields)


def _entry(task: Task) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": task.name, "kind": str(task.kind)}
    if task.inputs:
        entry["inputs"] = list(task.inputs)
    for name in (*_NUMBERS, *_TEXTS):
        value = getattr(task, name)
        if value or (name == "link" and task.peer):
            entry[name] = value
    return entry


def visualize_overlap(tasks: Sequence[Task]) -> str:
    """Return one line of text per task, with a bar for each communication that runs beside the task.

    The line after the tasks has the total and the exposed time in ticks, and the peak memory. If
    communications start while another one is running, a last line has their number.

    Raise an InputError if the list cannot run, e.g. because a wait has no communication to wait for.
    """
    lines, running, together = [], dict[str, None](), 0
    for task in check_tasks(tasks):
        if task.kind is TaskKind.WAIT:
            for name in task.inputs:
                running.pop(name, None)
        took = "" if task.kind is TaskKind.WAIT else f" ({task.duration})"
        lines.append("| " * len(running) + f"{task}{took}")
        if task.kind is TaskKind.START:
            together += bool(running)
            running[task.name] = None
    end, exposed = timeline(tasks)
    lines.append(f"{end} ticks, {exposed} of them exposed communication, peak memory {peak_memory(tasks)}")
    if together:
        lines.append(f"{together} communications start while another is running")
    return "\n".join(lines)
