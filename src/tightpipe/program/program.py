"""A program says all that each device does, in sequence: nodes that compute, communicate or validate."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from ..base.errors import InputError
from ..model.instance import Instance
from ..model.operation import Operation, OpKind
from ..model.placement import Placement
from ..model.schedule import Order


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


_POINT_TO_POINT = {
    NodeType[f"{action}_{subject}"] for action in ("SEND", "RECV") for subject in ("FORWARD", "BACKWARD")
}
_NORM = (NodeType.SEND_POST_VALIDATION, NodeType.POST_VALIDATION)


@dataclass(frozen=True, slots=True)
class Step:
    """One node, two operations that run together, or a batch of sends and receives."""

    nodes: tuple[Node, ...]  #: the nodes that begin together
    needs: tuple[Message, ...]  #: the messages that must have arrived before the step begins
    duration: int = 0  #: duration of the computations in ticks; 0 if the step only communicates
    ready: int = 0  #: the tick before which the step does not begin, because a stage is not ready


def device_steps(instance: Instance, device: int, nodes: tuple[Node, ...], fuse: bool) -> list[Step]:
    """Return the nodes of a device as steps; with `fuse`, neighbouring sends and receives form one step."""
    available: set[object] = set()  # operations that have run and messages whose receive is issued
    steps = []
    for group in _groups(nodes, fuse):
        needs = [message for node in group for message in _needs(instance, node, available)]
        ready = max(_ready(instance, node) for node in group)
        steps.append(Step(group, tuple(needs), _duration(instance, device, group), ready))
        for node in group:
            if node.type.is_compute:
                available.add(tuple(node.operation))
            elif node.type.action == "RECV":
                available.add(node.message)
    return steps


def _groups(nodes: tuple[Node, ...], fuse: bool) -> Iterator[tuple[Node, ...]]:
    group: list[Node] = []
    for node in nodes:
        batches = fuse and group and {node.type, group[-1].type} <= _POINT_TO_POINT
        if group and not group[-1].joined and not batches:
            yield tuple(group)
            group = []
        group.append(node)
    if group:
        yield tuple(group)


def _duration(instance: Instance, device: int, group: tuple[Node, ...]) -> int:
    if not group[0].type.is_compute:
        return 0
    if len(group) == 2 and group[1].type is NodeType.BW:
        together = instance.together(device, group[0].stage, group[1].stage)
        if together is not None:
            return together
    return sum(instance.duration_of(node.operation) for node in group)


def _ready(instance: Instance, node: Node) -> int:
    if instance.barrier is None or node.type is not NodeType.F:
        return 0
    return instance.barrier.ready[node.stage]  # type: ignore[index]  # expanded by the instance


def _needs(instance: Instance, node: Node, available: set[object]) -> Iterator[Message]:
    if node.type.action == "WAIT":
        yield node.message
    elif node.type in _NORM:
        yield from (m for m in available if isinstance(m, Message) and m.subject == "POST_VALIDATION")
    elif node.type.is_compute:
        yield from _inputs(instance, node, available)


def _inputs(instance: Instance, node: Node, available: set[object]) -> Iterator[Message]:
    """Yield the message that an operation needs; nothing if its input comes from no other device."""
    source = _source(instance, node)
    if source is None:
        return
    kind, stage = source
    maker = instance.device(stage, node.microbatch)
    if maker == node.device:
        kinds = (kind, OpKind.BW) if kind is OpKind.B and stage != node.stage else (kind,)
        if not any((k, stage, node.microbatch) in available for k in kinds):
            rule = f"stands before {kind.name}{stage}.{node.microbatch} of its own device, which it needs"
            raise InputError(rule, value=str(node.operation))
        return
    subject = "FORWARD" if kind is OpKind.F else "BACKWARD"
    message = Message(subject, stage, node.microbatch, maker, node.device)
    if message not in available:
        raise InputError("stands before the receive of its input", value=str(node.operation))
    yield message


def _source(instance: Instance, node: Node) -> tuple[OpKind, int] | None:
    """Return kind and stage of the operation whose result a compute node needs; None for F at stage 0."""
    if node.type is NodeType.F:
        return (OpKind.F, node.stage - 1) if node.stage else None
    if node.type is NodeType.W and instance.has(OpKind.B, node.stage, instance.mb_class(node.microbatch)):
        return OpKind.B, node.stage
    if node.stage == instance.stages - 1:
        return OpKind.F, node.stage
    return OpKind.B, node.stage + 1
