"""Programs are read from and written to JSON files, and checked: can they run to their end?

A file has the form
``{"instance": {...}, "nodes": ["type", "chunk", ...], "devices": [[[type, chunk, ...], ...], ...]}``.
There, `nodes` names the fields of a node, and `devices` has for each device its nodes in sequence.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from ..base.data_files import check_keys, check_kind, read_json
from ..base.errors import LARGEST, InputError, about_file, check_choice, check_int
from ..base.files import write_text
from ..model.instance_file import instance_from_dict, instance_to_dict
from ..model.operation import COMPUTES, OpKind
from ..model.schedule import is_pair
from .program import Message, Node, NodeType, Program, chunks

_FIELDS = ("type", "chunk", "stage", "microbatch", "start", "end", "peer", "rollback", "joined")
_NUMBERS = ("chunk", "stage", "microbatch", "start", "end")


def save_program(program: Program, path: str | Path) -> None:
    """Write a program as a JSON file."""
    write_text(path, json.dumps(program_to_dict(program)) + "\n")


def load_program(path: str | Path) -> Program:
    """Return the program of a file.

    Raise an InputError if the file does not hold a complete program; the message names the wrong entry or the
    missing part.
    """
    with about_file(path):
        program = _from_dict(read_json(path))
        check_program(program)
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
    check_choice(f"{key}.type", kind, *NodeType)
    for name in _NUMBERS:
        check_int(f"{key}.{name}", fields[name], 0, LARGEST * 10**3)
    if fields["peer"] is not None:
        check_int(f"{key}.peer", fields["peer"], 0)
    for name in ("rollback", "joined"):
        if not isinstance(fields[name], bool):
            raise InputError("must be true or false", key=f"{key}.{name}", value=fields[name])
    return Node(NodeType[kind], device, **fields)


def check_program(program: Program) -> None:
    """Raise an error if a part of the program is missing or misplaced.

    Deadlocks are not found here, but by `replay`.

    Raise an InputError if the number of devices is wrong, an operation is missing, runs twice or is not of
    the instance, or a node is in the list of a wrong device or has a wrong peer or chunk. Also if two nodes
    are joined that cannot run together, or a message lacks its send or its receive or has several sends,
    receives or waits.
    """
    for fault in _faults(program):
        raise InputError(fault)


def _faults(program: Program) -> Iterator[str]:
    if len(program.devices) != program.instance.devices:
        yield f"the program has {len(program.devices)} devices, the instance {program.instance.devices}"
    for device, nodes in enumerate(program.devices):
        for node in nodes:
            if node.device != device:
                yield f"{node} of device {node.device} stands in the program of device {device}"
            if bool(node.type.action) != (node.peer is not None) or node.peer == device:
                yield f"{node} of device {device} names device {node.peer} as its peer"
    yield from _operation_faults(program)
    yield from _message_faults(program)


def _operation_faults(program: Program) -> Iterator[str]:
    instance = program.instance
    ran = Counter(node.operation for nodes in program.devices for node in nodes if node.type.is_compute)
    for op, times in ran.items():
        if op.stage >= instance.stages or op.microbatch >= instance.microbatches:
            yield f"{op} is no operation of the instance"
        if times > 1:
            yield f"{op} runs {times} times"
    for stage, m in product(range(instance.stages), range(instance.microbatches)):
        f, b, w, bw = (ran[kind, stage, m] for kind in COMPUTES)  # type: ignore[index]  # equal tuples
        if not f:
            yield f"F{stage}.{m} is missing"
        has_b, has_w, has_bw = (
            instance.has(k, stage, instance.mb_class(m)) for k in (OpKind.B, OpKind.W, OpKind.BW)
        )
        split = int(has_b), int(has_w), 0
        if (b, w, bw) not in (split, (0, 0, 1) if has_bw else split):
            needs = " and ".join(name for name, there in (("B", has_b), ("W", has_w)) if there)
            words = f"either {needs} or BW" if has_bw else needs or "no backward"
            yield f"stage {stage} needs {words} of microbatch {m}"
    for device, nodes in enumerate(program.devices):
        chunk_of = chunks(instance.placement)[device]
        for node in (node for node in nodes if node.type.is_compute):
            if instance.device(node.stage, node.microbatch) != device:
                yield f"{node.operation} runs on device {device}, its stage is on another"
            if node.chunk != chunk_of[node.stage]:
                yield f"{node.operation} has chunk {node.chunk}, its stage has {chunk_of[node.stage]} there"
        for first, second in zip_longest(nodes, nodes[1:]):
            if first.joined and not _run_together(first, second):
                yield f"{first} is joined with {second or 'nothing'}: only an F and a B or BW after it are"


def _run_together(first: Node, second: Node | None) -> bool:
    if second is None or second.joined or not (first.type.is_compute and second.type.is_compute):
        return False
    return is_pair(first.operation.kind, second.operation.kind)


def _message_faults(program: Program) -> Iterator[str]:
    ends: dict[str, Counter[Message]] = {"SEND": Counter(), "RECV": Counter(), "WAIT": Counter()}
    for nodes in program.devices:
        for node in nodes:
            if node.type.action:
                ends[node.type.action][node.message] += 1
    for message in ends["SEND"] | ends["RECV"] | ends["WAIT"]:
        sends, receives = ends["SEND"][message], ends["RECV"][message]
        if (sends, receives) != (1, 1):
            yield f"{describe(message)} is sent {sends} times and received {receives} times"
        if ends["WAIT"][message] > 1:
            yield f"{describe(message)} is waited for {ends['WAIT'][message]} times"


def describe(message: Message) -> str:
    """Return a phrase for errors that names what a message carries, its stage, microbatch and devices."""
    subject = message.subject.lower().replace("_", " ")
    return (
        f"the {subject} message of stage {message.stage}, microbatch {message.microbatch}, "
        f"from device {message.sender} to device {message.receiver}"
    )
