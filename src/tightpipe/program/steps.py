"""The program of a device as steps, each of which consists of the nodes that begin together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..core.errors import InputError
from ..core.instance import Instance
from ..core.operation import OpKind
from .node import Message, Node, NodeType

_POINT_TO_POINT = {
    NodeType[f"{action}_{subject}"] for action in ("SEND", "RECV") for subject in ("FORWARD", "BACKWARD")
}
_NORM = (NodeType.SEND_POST_VALIDATION, NodeType.POST_VALIDATION)


@dataclass(frozen=True, slots=True)
class Step:
    """One node, two operations that run together, or a batch of sends and receives.

    Parameters
    ----------
    nodes
        The nodes that begin together.
    needs
        The messages that must have arrived before the step begins.
    duration
        Duration of the computations in ticks; 0 if the step only communicates.
    ready
        The tick before which the step does not begin, because a stage is not ready.
    """

    nodes: tuple[Node, ...]
    needs: tuple[Message, ...]
    duration: int = 0
    ready: int = 0


def device_steps(instance: Instance, device: int, nodes: tuple[Node, ...], fuse: bool) -> list[Step]:
    """Return the nodes of a device as steps; with `fuse`, neighbouring sends and receives form one step.

    The sends and receives of post-validation always form steps of their own.

    Raises
    ------
    InputError
        If an operation stands before the receive of its input, or before the operation of the same device
        whose result it needs.
    """
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
    together = instance.overlapped(device)
    if len(group) == 2 and together is not None and group[1].type is NodeType.BW:
        return together
    return sum(instance.duration(node.operation.kind, node.stage) for node in group)


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
    """Yield the message that an operation needs; nothing if its input comes from no other device.

    `available` has the operations before it on its device, and the messages whose receives stand before it.

    Raises
    ------
    InputError
        If the operation stands before the receive of its message, or before the operation of the same device
        whose result it needs.
    """
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
    if node.type is NodeType.W and instance.has(OpKind.B, node.stage):
        return OpKind.B, node.stage
    if node.stage == instance.stages - 1:
        return OpKind.F, node.stage
    return OpKind.B, node.stage + 1
