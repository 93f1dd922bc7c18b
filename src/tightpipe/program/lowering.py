"""Lowering turns a schedule into a program: it places sends and receives among the computations.

The rules for where sends, receives and post-validation stand follow the zero-bubble runtimes (Qi et al.,
arXiv:2401.10241, section 4 for post-validation; arXiv:2405.15362 for the V schedule).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from ..core.errors import InputError
from ..core.instance import Instance
from ..core.operation import Operation, OpKind
from ..core.schedule import Schedule
from .node import Node, NodeType, chunks
from .post_validation import post_validation
from .program import Program


class MessageOrder(StrEnum):
    """Three ways to place the sends and receives of the same messages.

    Only `published` can deadlock, and only where sends wait for their receives. The proof is in the notes of
    `lower`.
    """

    EARLY_RECEIVES = "early-receives"  #: receives stand before the computation during which the send happens
    IN_ORDER = "in-order"  #: send and receive stand at the time at which the sender's operation ends
    PUBLISHED = "published"  #: as in the zero-bubble runtimes; safe only if sends return at once


_COMMUNICATION, _COMPUTE = 0, 1  # at equal times communication comes first
_COMPUTES = {kind: NodeType[kind.name] for kind in OpKind}
_CARRIES = {  # (end of a message, whether it carries the result of an F and not of a B or BW) -> type
    ("SEND", True): NodeType.SEND_FORWARD,
    ("RECV", True): NodeType.RECV_FORWARD,
    ("SEND", False): NodeType.SEND_BACKWARD,
    ("RECV", False): NodeType.RECV_BACKWARD,
}


class Item(NamedTuple):
    """Nodes that stay together in the sequence of a device, with the key by which they are sorted.

    The key consists of the time in ticks, `_COMMUNICATION` or `_COMPUTE`, and a tuple of numbers, by which
    items are sorted that are equal in the first two.
    """

    key: tuple[int, int, tuple[int, ...]]
    nodes: tuple[Node, ...]


def lower(
    schedule: Schedule,
    *,
    order: MessageOrder | str = MessageOrder.EARLY_RECEIVES,
    validation: bool = True,
    waits: bool = False,
) -> Program:
    """Return the program of a schedule.

    Parameters
    ----------
    schedule
        A valid schedule.
    order
        Where sends and receives stand among the computations; see `MessageOrder` and the notes.
    validation
        Whether the devices validate the previous optimizer step during warm-up (post-validation).
    waits
        Whether each receive of activations or gradients is followed by a wait of its own, which the passes of
        `tightpipe.program.passes` need. Without these waits, an operation itself waits for its input.

    Raises
    ------
    InputError
        If `order` is no `MessageOrder`.

    Notes
    -----
    Programs in the orders `early-receives` and `in-order` never deadlock, whether sends return at once or
    wait for their receives, and whether messages are issued one by one or in batches. For the proof, sort the
    nodes of all devices by time, with messages before computations of the same time. The program of every
    device is a subsequence of that one sequence, the two ends of a message stand next to each other, and
    whatever a node waits for stands before it. So the first node that has not run can always run: all nodes
    before it on its device have run, and so have all nodes before the other end on the device of its peer.
    In a batch, nodes only begin sooner. In the order `early-receives`, a receive is moved before the
    computation during which its message is sent. In the proof, the computation is moved behind both ends of
    the message. No node up to there needs its result, because the computation ends no earlier than the
    message is sent.

    In the order `published`, the two ends of a post-validation message stand at the two times at which their
    devices validate. Between these times, the receiver may have to send to a device that is still busy
    sending to it, so such programs deadlock where sends wait for their receives. They do not deadlock where
    sends return at once, because each node waits only for nodes of an earlier time, or for nodes that stand
    before it at the same time.
    """
    try:
        order = MessageOrder(order)
    except ValueError:
        raise InputError(f"must be one of {', '.join(MessageOrder)}", key="order", value=order) from None
    items = _computations(schedule)
    _add_messages(schedule, items)
    if validation:
        for device, nodes in enumerate(post_validation(schedule, published=order is MessageOrder.PUBLISHED)):
            items[device] += [Item((node.start, _COMMUNICATION, (-1, rank)), (node,)) for rank, node in nodes]
    sequences = [sorted(mine, key=lambda item: item.key) for mine in items]
    if order is not MessageOrder.IN_ORDER:
        sequences = [_receives_before_computations(mine) for mine in sequences]
    devices = [[node for item in mine for node in item.nodes] for mine in sequences]
    devices = _mark_rollback(devices)
    return Program(
        schedule.instance, tuple(tuple(_with_waits(nodes) if waits else nodes) for nodes in devices)
    )


def _computations(schedule: Schedule) -> list[list[Item]]:
    held, row = chunks(schedule.instance.placement), 0
    start, end = schedule.start.tolist(), schedule.end.tolist()
    devices: list[list[Item]] = []
    for device, slots in enumerate(schedule.order.to_slots()):
        mine = []
        for position, slot in enumerate(slots):
            nodes = tuple(
                _node(op, device, held[device][op.stage], (start[row], end[row]), k + 1 < len(slot))
                for k, op in enumerate(slot)
            )
            mine.append(Item((start[row], _COMPUTE, (position,)), nodes))
            row += len(slot)
        devices.append(mine)
    return devices


def _node(op: Operation, device: int, chunk: int, times: tuple[int, int], joined: bool) -> Node:
    return Node(_COMPUTES[op.kind], device, chunk, op.stage, op.microbatch, *times, joined=joined)


def _add_messages(schedule: Schedule, items: list[list[Item]]) -> None:
    """Add the send and the receive of every message, at the time at which the sender's operation ends.

    Messages of equal time are sorted by sender, and then by the sequence of the sender's operations.
    """
    instance = schedule.instance
    held = chunks(instance.placement)
    senders = [[node for item in mine for node in item.nodes] for mine in items]
    for device, nodes in enumerate(senders):
        for position, node in enumerate(nodes):
            target = _receiving_stage(instance, node)
            if target is None:
                continue
            peer = instance.device(target, node.microbatch)
            if peer != device:
                key = (node.end, _COMMUNICATION, (device, position))
                send = _message("SEND", node, (device, peer), node.stage, node.chunk)
                receive = _message("RECV", node, (peer, device), target, held[peer][target])
                items[device].append(Item(key, (send,)))
                items[peer].append(Item(key, (receive,)))


def _receiving_stage(instance: Instance, node: Node) -> int | None:
    """Return the stage that waits for the result of a compute node, or None if no stage does."""
    if node.type is NodeType.F:
        return node.stage + 1 if node.stage + 1 < instance.stages else None
    before = node.stage - 1
    return before if node.type is not NodeType.W and before >= 0 and instance.has_backward(before) else None


def _message(action: str, cause: Node, devices: tuple[int, int], stage: int, chunk: int) -> Node:
    """Return the send or the receive of the message that carries the result of the node `cause`.

    Parameters
    ----------
    action
        `SEND` or `RECV`.
    cause
        The computation whose result is sent; the message leaves when the computation ends.
    devices
        The device of the returned node, and the device at the other end of the message.
    stage, chunk
        The stage that the returned node names, and its index among the stages of the node's device.
    """
    kind = _CARRIES[action, cause.type is NodeType.F]
    here, peer = devices
    return Node(kind, here, chunk, stage, cause.microbatch, cause.end, cause.end, peer)


def _receives_before_computations(items: list[Item]) -> list[Item]:
    """Return a device's items with receives moved before the computation during which their message is sent.

    The device can then compute while the message is on its way. Receives of post-validation stay where they
    are, and so do receives that a send or post-validation separates from the computation.
    """
    items = list(items)
    for i in range(1, len(items)):
        before, here = items[i - 1].nodes[-1], items[i].nodes[0]
        receives = here.type in (NodeType.RECV_FORWARD, NodeType.RECV_BACKWARD)
        if receives and before.type.is_compute and here.start <= before.end:
            items[i - 1], items[i] = items[i], items[i - 1]
    return items


def _mark_rollback(devices: list[list[Node]]) -> list[list[Node]]:
    """Return the nodes with `rollback` set on forward receives whose sender validates only after sending."""
    early = {message for nodes in devices for message in _sent_before_validation(nodes)}
    return [
        [
            replace(node, rollback=True)
            if node.type is NodeType.RECV_FORWARD and node.message in early
            else node
            for node in nodes
        ]
        for nodes in devices
    ]


def _sent_before_validation(nodes: list[Node]) -> list[object]:
    types = [node.type for node in nodes]
    if NodeType.POST_VALIDATION not in types:
        return []
    before = nodes[: types.index(NodeType.POST_VALIDATION)]
    return [node.message for node in before if node.type is NodeType.SEND_FORWARD]


def _with_waits(nodes: list[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        if node.type in (NodeType.RECV_FORWARD, NodeType.RECV_BACKWARD):
            yield replace(node, type=NodeType[f"WAIT_{node.type.subject}"])
