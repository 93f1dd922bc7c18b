"""A program says all that each device does, in sequence: nodes that compute, communicate or validate.

A file of a program has the form
``{"instance": {...}, "nodes": ["type", "chunk", ...], "devices": [[[type, chunk, ...], ...], ...]}``.
There, `nodes` names the fields of a node, and `devices` has for each device its nodes in sequence. What is
read from a file is checked: can it run to its end?
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import product, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from ..base.errors import LARGEST, InputError, about_file, check_choice, check_int
from ..base.files import check_keys, check_kind, read_json, write_text
from ..model.instance import Instance
from ..model.instance_file import instance_from_dict, instance_to_dict
from ..model.operation import COMPUTES, Operation, OpKind
from ..model.placement import Placement
from ..model.schedule import Order, is_pair


class NodeType(StrEnum):
    """The kinds of nodes, with the names of the zero-bubble runtimes; only the `WAIT`s do not exist there."""

    F = "F"
    B = "B"
    W = "W"
    BW = "BW"
    SEND_FORWARD = "SEND_FORWARD"
    RECV_FORWARD = "RECV_FORWARD"
    WAIT_FORWARD = "WAIT_FORWARD"
    SEND_BACKWARD = "SEND_BACKWARD"
    RECV_BACKWARD = "RECV_BACKWARD"
    WAIT_BACKWARD = "WAIT_BACKWARD"
    POST_VALIDATION = "POST_VALIDATION"
    SEND_POST_VALIDATION = "SEND_POST_VALIDATION"
    RECV_POST_VALIDATION = "RECV_POST_VALIDATION"

    action: str  #: `SEND`, `RECV` or `WAIT`; empty for a node that does not communicate
    subject: str  #: what is sent: `FORWARD`, `BACKWARD` or `POST_VALIDATION`; without a message, the type
    is_compute: bool  #: whether the node is an operation: F, B, W or BW

    def __new__(cls, value: str) -> NodeType:
        """Return the member with the attributes that follow from its name, which is split only here, once."""
        member = str.__new__(cls, value)
        member._value_ = value
        prefix, _, rest = value.partition("_")
        member.action = prefix if rest and prefix != "POST" else ""
        member.subject = rest if member.action else value
        member.is_compute = value in OpKind.__members__
        return member


class Message(NamedTuple):
    """A message, identified by what it carries, the stage that made it, its microbatch and both devices."""

    subject: str
    stage: int
    microbatch: int
    sender: int
    receiver: int


@dataclass(frozen=True, slots=True)
class Node:
    """One entry of a device's program: an operation, a send, a receive, a wait or a post-validation."""

    type: NodeType  #: what the node does
    device: int  #: device that runs it
    chunk: int  #: index of its stage among those of the device
    stage: int  #: number of its stage in the model
    microbatch: int
    start: int  #: tick at which the lowering placed it
    end: int  #: tick at which it then ends: `start` unless it is an operation
    peer: int | None = None  #: the other device of a send, a receive or a wait; None for other nodes
    #: whether a receive is repeated when post-validation fails, because its message was sent before the
    #: sender validated
    rollback: bool = False
    joined: bool = False  #: whether a compute node runs together with the next node, as in DualPipe

    def __str__(self) -> str:
        return f"{self.type}.{self.chunk}.{self.microbatch}.{int(self.rollback)}"

    @property
    def operation(self) -> Operation:
        """The operation that a compute node runs."""
        return Operation(OpKind[self.type.value], self.stage, self.microbatch)

    @property
    def message(self) -> Message:
        """The message of a communication node, which is the same for its send, its receive and its wait."""
        assert self.peer is not None
        subject = self.type.subject
        if self.type.action == "SEND":
            return Message(subject, self.stage, self.microbatch, self.device, self.peer)
        made_at = self.stage + _STEP_BACK[subject]
        return Message(subject, made_at, self.microbatch, self.peer, self.device)


_STEP_BACK = {"FORWARD": -1, "BACKWARD": 1, "POST_VALIDATION": 0}
"""Difference between the stage that made a message and the stage in the node of its receive.

A receive of post-validation names the stage of the sender.
"""


@lru_cache(maxsize=64)
def chunks(placement: Placement) -> tuple[dict[int, int], ...]:
    """Return for each device a dictionary from the stages that it holds to their chunks."""
    return tuple(
        {stage: chunk for chunk, stage in enumerate(placement.stages_on(device))}
        for device in range(placement.devices)
    )


@dataclass(frozen=True, slots=True)
class Program:
    """The sequence of nodes that each device runs."""

    instance: Instance  #: whose operations the program runs
    devices: tuple[tuple[Node, ...], ...]  #: the nodes of each device, in sequence

    def __str__(self) -> str:
        return "\n".join(" ".join(map(str, nodes)) for nodes in self.devices)

    @property
    def sha256(self) -> str:
        """SHA-256 hash of the program's text form.

        The text has one line per device, with a word ``<TYPE>.<chunk>.<microbatch>.<rollback>`` per node.
        """
        return hashlib.sha256(str(self).encode()).hexdigest()

    @property
    def order(self) -> Order:
        """The sequence of operations on each device, without communication."""
        return Order.from_slots([list(_slots(nodes)) for nodes in self.devices])


def _slots(nodes: tuple[Node, ...]) -> Iterator[list[Operation]]:
    together: list[Operation] = []
    for node in nodes:
        if not node.type.is_compute:
            continue
        together.append(node.operation)
        if not node.joined:
            yield together
            together = []


_FIELDS = ("type", "chunk", "stage", "microbatch", "start", "end", "peer", "rollback", "joined")
_NUMBERS = ("chunk", "stage", "microbatch", "start", "end")


def save_program(program: Program, path: str | Path) -> None:
    """Write a program as a JSON file."""
    write_text(path, json.dumps(program_to_dict(program)) + "\n")


def refuse_empty_stages(instance: Instance) -> None:
    """Raise an InputError if a stage is empty: it has no time at which its messages could be sent."""
    for stage, c in product(range(instance.stages), range(len(instance.class_counts))):
        if not instance.duration(OpKind.F, stage, c):
            raise InputError("must be above 0 at every stage of a program", key="forward", value=0)


def load_program(path: str | Path) -> Program:
    """Return the program of a file.

    Raise an InputError if the file does not hold a complete program; the message names the wrong entry or the
    missing part.
    """
    with about_file(path):
        program = _from_dict(read_json(path))
        refuse_empty_stages(program.instance)
        check_program(program)
    return program


def program_to_dict(program: Program) -> dict[str, Any]:
    """Return the content of a program's file as plain data."""
    return {
        "instance": instance_to_dict(program.instance),
        "nodes": list(_FIELDS),
        "devices": [
            [[str(node.type), *(getattr(node, name) for name in _FIELDS[1:])] for node in nodes]
            for nodes in program.devices
        ],
    }


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
