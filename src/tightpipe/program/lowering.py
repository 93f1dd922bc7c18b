"""Schedule -> Program: where sends, receives and post-validation stand among the computations.

The order rules are those of the zero-bubble runtimes (Qi et al., arXiv:2401.10241, section 4 for
post-validation; arXiv:2405.15362 for the V schedule).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ..core.errors import InputError
from ..core.instance import Instance
from ..core.operation import Operation
from ..core.schedule import Schedule
from .message_order import MessageOrder
from .node import Node, NodeType, chunks
from .post_validation import post_validation
from .program import Program

_COMMUNICATION, _COMPUTE = 0, 1  # at equal times communication comes first


class Item(NamedTuple):
    """What stays together in a device's sequence, with the key that it is sorted by."""

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
        Where sends and receives stand among the computations. See the notes.
    validation
        Whether the devices validate the previous optimizer step during warm-up (post-validation).
    waits
        Whether each receive of activations or gradients is followed by a wait of its own, for the
        overlap passes; otherwise an operation waits for its input by itself.

    Raises
    ------
    InputError
        If there is no such message order.

    Notes
    -----
    Programs in the orders `early-receives` and `in-order` never deadlock, whether sends return at
    once or wait for their receives, one by one or in batches. Sort all devices' nodes by time,
    messages before computations: every device's program is a subsequence of that one sequence, both
    ends of a message stand at the same place of it, and whatever a node waits for stands before it.
    So the first node that has not run can run: all its device has before it is done, and so is all
    that the peer has before the other end. A batch only begins nodes sooner. A receive that is moved
    before the computation during which its message is sent keeps the argument: that computation moves
    behind the message, and nothing up to there needs its result, as it ends no earlier.

    In the order `published` the two ends of a post-validation message stand at two times, those of its
    two devices. Between them the receiver may have to send to a device that is still busy sending to
    it, so where sends wait for their receives such programs deadlock. Where sends return at once they
    do not: each node waits only for what stands at an earlier time, or at the same time before it.
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
    kind = NodeType[op.kind.name]
    return Node(kind, device, chunk, op.stage, op.microbatch, *times, joined=joined)


def _add_messages(schedule: Schedule, items: list[list[Item]]) -> None:
    """Add send and receive of every message at the time at which its operation ends.

    Messages of equal time keep the sequence of their senders, then the senders' own sequence.
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
    """Return the stage that waits for the node's result, if there is one."""
    if node.type is NodeType.F:
        return node.stage + 1 if node.stage + 1 < instance.stages else None
    return node.stage - 1 if node.type is not NodeType.W and node.stage else None


def _message(action: str, cause: Node, devices: tuple[int, int], stage: int, chunk: int) -> Node:
    """Return one end of the message that `cause` makes; `devices` are that end's and its peer."""
    kind = NodeType[f"{action}_{'FORWARD' if cause.type is NodeType.F else 'BACKWARD'}"]
    here, peer = devices
    return Node(kind, here, chunk, stage, cause.microbatch, cause.end, cause.end, peer)


def _receives_before_computations(items: list[Item]) -> list[Item]:
    """Issue a receive before the computation during which its message is sent, so that both overlap."""
    items = list(items)
    for i in range(1, len(items)):
        before, here = items[i - 1].nodes[-1], items[i].nodes[0]
        receives = here.type in (NodeType.RECV_FORWARD, NodeType.RECV_BACKWARD)
        if receives and before.type.is_compute and here.start <= before.end:
            items[i - 1], items[i] = items[i], items[i - 1]
    return items


def _mark_rollback(devices: list[list[Node]]) -> list[list[Node]]:
    """Flag the forward receives whose message leaves before its sender has validated."""
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
