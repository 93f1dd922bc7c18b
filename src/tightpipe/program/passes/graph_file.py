"""Task lists are read from and written to JSON files, so that other software can use the overlap passes.

::

    {"nodes": [{"name": "gather", "kind": "start", "duration": 40, "inputs": ["a"], "peer": "data"},
               {"name": "gathered", "kind": "wait", "inputs": ["gather"]},
               {"name": "b", "kind": "compute", "duration": 25, "inputs": ["gathered"]}]}

``name`` and ``kind`` (``compute``, ``start``, ``wait``) are required. The other keys are the fields of
`Task` and have its defaults, except that the default of ``link`` is the ``peer``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from ...core.files import write_text
from ...core.instance_file import check_keys, check_kind, read_json
from ...core.integers import check_int
from .tasks import Task, TaskKind, Tasks, check_tasks

_NUMBERS = ("duration", "ready", "memory", "buffer")
_TEXTS = ("peer", "link")


def load_tasks(path: str | Path) -> Tasks:
    """Return the task list of a file.

    Raises
    ------
    InputError
        If the file is no task list that can run; the message names the file, the key, the value and the rule.
    """
    data = read_json(path)
    try:
        return tasks_from_dict(data)
    except InputError as error:
        raise error.at(str(path)) from None


def save_tasks(tasks: Tasks, path: str | Path) -> None:
    """Write a task list as a JSON file."""
    rows = ",\n".join(json.dumps(_entry(task)) for task in tasks)
    write_text(path, f'{{"nodes": [\n{rows}\n]}}\n')


def tasks_from_dict(data: Any) -> Tasks:
    """Return the task list that the JSON content of a file describes.

    Raises
    ------
    InputError
        If the content is no task list that can run; the message names the key, the value and the rule.
    """
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
    if entry["kind"] not in list(TaskKind):
        raise InputError(f"must be one of {', '.join(TaskKind)}", key=f"{key}.kind", value=entry["kind"])
    texts = {name: entry.get(name, entry.get("peer", "")) for name in _TEXTS}
    for name, text in (("name", entry["name"]), *texts.items()):
        if not isinstance(text, str):
            raise InputError("must be a text", key=f"{key}.{name}", value=text)
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
