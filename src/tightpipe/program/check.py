"""A check that a program has everything it needs to run: all operations, and both ends of every message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product, zip_longest

from ..core.errors import InputError
from ..core.operation import OpKind
from ..core.schedule import is_pair
from .node import Message, Node, chunks
from .program import Program


def check_program(program: Program) -> None:
    """Raise an error if a part of the program is missing or misplaced.

    Deadlocks are not found here, but by `replay`.

    Raises
    ------
    InputError
        If the number of devices is wrong, an operation is missing, runs twice or is not of the instance, or a
        node is in the list of a wrong device or has a wrong peer or chunk. Also if two nodes are joined that
        cannot run together, or a message lacks its send or its receive or has several sends, receives or
        waits.
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
        f, b, w, bw = (ran[kind, stage, m] for kind in OpKind)  # type: ignore[index]  # equal tuples
        if not f:
            yield f"F{stage}.{m} is missing"
        split = int(instance.has(OpKind.B, stage)), int(instance.has(OpKind.W, stage)), 0
        if (b, w, bw) not in (split, (0, 0, 1) if instance.has(OpKind.BW, stage) else split):
            needs = " and ".join(kind.name for kind in (OpKind.B, OpKind.W) if instance.has(kind, stage))
            words = f"either {needs} or BW" if instance.has(OpKind.BW, stage) else needs or "no backward"
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
