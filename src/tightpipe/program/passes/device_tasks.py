"""The program of a device is turned into a task list, and a reordered task list back into a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...core.errors import InputError
from ...core.instance import Instance
from ..node import Node, NodeType
from ..program import Program
from ..steps import Step, device_steps
from .tasks import Task, TaskKind, Tasks

_FORMS = {"SEND": TaskKind.START, "RECV": TaskKind.START, "WAIT": TaskKind.WAIT, "": TaskKind.COMPUTE}


def device_tasks(program: Program, device: int, *, message_memory: int = 0) -> Tasks:
    """Return the program of a device as tasks.

    The transfer of a received message does not begin before the sender's operation ends in the schedule that
    was lowered.

    Parameters
    ----------
    program
        A program that was lowered with ``waits=True`` and ``validation=False``.
    device
        Number of the device.
    message_memory
        Memory of the buffer of a receive, in the unit of the instance.

    Raises
    ------
    InputError
        If the program has post-validation, or a receive without a wait of its own.
    """
    nodes = program.devices[device]
    if any("POST_VALIDATION" in node.type for node in nodes):
        raise InputError("overlap passes take programs that are lowered with validation=False")
    waits = {node.message for node in nodes if node.type.action == "WAIT"}
    if any(node.type.action == "RECV" and node.message not in waits for node in nodes):
        raise InputError("overlap passes take programs that are lowered with waits=True")
    steps = device_steps(program.instance, device, nodes, fuse=False)
    owner = {_key(node): _name(step) for step in steps for node in step.nodes}
    return tuple(_task(program.instance, step, owner, message_memory) for step in steps)


def reordered(program: Program, orders: Sequence[Tasks]) -> Program:
    """Return the program with the nodes of each device in the sequence of its task list in `orders`."""
    devices = []
    for device, tasks in enumerate(orders):
        steps = device_steps(program.instance, device, program.devices[device], fuse=False)
        by_name = {_name(step): step.nodes for step in steps}
        devices.append(tuple(node for task in tasks for node in by_name[task.name]))
    return Program(program.instance, tuple(devices))


def _task(instance: Instance, step: Step, owner: dict[str, str], message_memory: int) -> Task:
    node = step.nodes[0]
    action = node.type.action
    keys = (key for n in step.nodes for key in _input_keys(n) if key in owner)
    return Task(
        name=_name(step),
        kind=_FORMS[action],
        duration=_transfer(instance, node) if action else step.duration,
        inputs=tuple(dict.fromkeys(owner[key] for key in keys)),
        peer=f"device {node.peer}" if action else "",
        ready=node.start if action == "RECV" else 0,
        memory=sum(_memory(instance, n) for n in step.nodes),
        buffer=message_memory if action == "RECV" else 0,
    )


def _key(node: Node) -> str:
    return f"{node.type}{node.stage}.{node.microbatch}"


def _name(step: Step) -> str:
    return "+".join(map(_key, step.nodes))


def _transfer(instance: Instance, node: Node) -> int:
    return 0 if node.type.action == "WAIT" else instance.comm(node.message.sender, node.message.receiver)


def _memory(instance: Instance, node: Node) -> int:
    return instance.memory_delta(node.operation.kind, node.stage) if node.type.is_compute else 0


def _input_keys(node: Node) -> Iterator[str]:
    """Yield the keys of all nodes that can be a direct input of a node; a device has only some of them."""
    here, m = node.stage, node.microbatch
    if node.type.action == "WAIT":
        yield f"RECV_{node.type.subject}{here}.{m}"
    elif node.type in (NodeType.F, NodeType.SEND_FORWARD):
        sends = node.type is NodeType.SEND_FORWARD
        yield from (f"F{here}.{m}",) if sends else (f"WAIT_FORWARD{here}.{m}", f"F{here - 1}.{m}")
    elif node.type is NodeType.SEND_BACKWARD:
        yield from (f"B{here}.{m}", f"BW{here}.{m}")
    elif node.type.is_compute:
        if node.type is NodeType.W:
            yield f"B{here}.{m}"  # without a B, a W waits for what a B would wait for
        yield from (f"WAIT_BACKWARD{here}.{m}", f"B{here + 1}.{m}", f"BW{here + 1}.{m}", f"F{here}.{m}")
