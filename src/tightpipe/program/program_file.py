"""Programs are read from and written to JSON files.

A file has the form
``{"instance": {...}, "nodes": ["type", "chunk", ...], "devices": [[[type, chunk, ...], ...], ...]}``.
There, `nodes` names the fields of a node, and `devices` has for each device its nodes in sequence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..core.files import write_text
from ..core.instance_file import check_keys, check_kind, instance_from_dict, instance_to_dict, read_json
from ..core.integers import LARGEST, check_int
from .check import check_program
from .node import Node, NodeType
from .program import Program

_FIELDS = ("type", "chunk", "stage", "microbatch", "start", "end", "peer", "rollback", "joined")
_NUMBERS = ("chunk", "stage", "microbatch", "start", "end")


def save_program(program: Program, path: str | Path) -> None:
    """Write a program as a JSON file."""
    write_text(path, json.dumps(program_to_dict(program)) + "\n")


def load_program(path: str | Path) -> Program:
    """Return the program of a file.

    Raises
    ------
    InputError
        If the file does not hold a complete program; the message names the wrong entry or the missing part.
    """
    data = read_json(path)
    try:
        program = _from_dict(data)
        check_program(program)
    except InputError as error:
        raise error.at(str(path)) from None
    return program


def program_to_dict(program: Program) -> dict[str, Any]:
    """Return the content of a program's file as plain data."""
    return {
        "instance": instance_to_dict(program.instance),
        "nodes": list(_FIELDS),
        "devices": [[_entry(node) for node in nodes] for nodes in program.devices],
    }


def _entry(node: Node) -> list[Any]:
    return [str(node.type), *(getattr(node, name) for name in _FIELDS[1:])]


def _from_dict(data: Any) -> Program:
    check_kind(data, "program")
    check_keys(data, ("instance", "nodes", "devices"), ())
    if data["nodes"] != list(_FIELDS):
        raise InputError(f"must be {json.dumps(_FIELDS)}", key="nodes", value=data["nodes"])
    instance = instance_from_dict(data["instance"], "instance.")
    devices = data["devices"]
    if not isinstance(devices, list) or not all(isinstance(nodes, list) for nodes in devices):
        raise InputError("must be a list of node lists, one per device", key="devices", value=devices)
    nodes = tuple(
        tuple(_node(f"devices[{d}][{i}]", d, entry) for i, entry in enumerate(entries))
        for d, entries in enumerate(devices)
    )
    return Program(instance, nodes)


def _node(key: str, device: int, entry: Any) -> Node:
    if not isinstance(entry, list) or len(entry) != len(_FIELDS):
        raise InputError(f"must be a list of {', '.join(_FIELDS)}", key=key, value=entry)
    fields = dict(zip(_FIELDS, entry, strict=True))
    kind = fields.pop("type")
    if not isinstance(kind, str) or kind not in NodeType.__members__:
        raise InputError(f"must be one of {', '.join(NodeType)}", key=f"{key}.type", value=kind)
    for name in _NUMBERS:
        check_int(f"{key}.{name}", fields[name], 0, LARGEST * 10**3)
    if fields["peer"] is not None:
        check_int(f"{key}.peer", fields["peer"], 0)
    for name in ("rollback", "joined"):
        if not isinstance(fields[name], bool):
            raise InputError("must be true or false", key=f"{key}.{name}", value=fields[name])
    return Node(NodeType[kind], device, **fields)
