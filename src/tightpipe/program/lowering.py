"""Lowering turns a schedule into a program, with sends, receives and validations among the computations.

A program may have post-validation: each device takes the optimizer step before the global gradient norm is
known. During the next warm-up, the partial norms are sent from the last device to the first, and each device
then confirms its step or rolls it back.

References
----------
The places of sends, receives and post-validation follow the zero-bubble runtimes: Qi et al.,
arXiv:2401.10241, section 4, for post-validation; arXiv:2405.15362 for the V schedule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from ..base.errors import check_choice
from ..model.graph_arrays import inputs_of
from ..model.instance import Instance
from ..model.operation import COMPUTES, OpKind
from ..model.schedule import Schedule
from .program import Node, NodeType, Program, chunks, refuse_empty_stages

Ranked = tuple[int, Node]  # (rank, node): nodes of equal time, on all devices, are sorted by rank


def post_validation(schedule: Schedule, *, published: bool) -> list[list[Ranked]]:
    """Return for each device the nodes that receive the norm, send it on and validate, with their ranks."""
    times = _times(schedule)
    return [_of_device(schedule.instance, device, times, published) for device in range(len(times))]


def _times(schedule: Schedule) -> list[int]:
    """Return when each device validates, in ticks.

    Device d of p validates one communication time before the device's first stage on route 0 begins F number
    2(p - 1 - d), counted from 0; if the first iteration has fewer microbatches on this route, its last F
    counts. The device is then still in its warm-up, and computes while the norm arrives. No device validates
    before tick 0, or before the next device, which sends it the norm.
    """
    instance = schedule.instance
    starts = defaultdict[int, list[int]](list)
    count = instance.microbatches // instance.iterations // len(instance.placement.routes)
    for (k, s, m), t in zip(schedule.order.operations.tolist(), schedule.start.tolist(), strict=True):
        if k == OpKind.F and m < count:  # of the first iteration, on the first route
            starts[s].append(t)
    times, latest = [0] * instance.devices, 0
    for device in reversed(range(instance.devices)):
        begins = sorted(starts[_first_stage(instance, device)])
        number = min(2 * (instance.devices - 1 - device), len(begins) - 1)
        latest = max(latest, begins[number] - _comm_from_next(instance, device))
        times[device] = latest
    return times


def _first_stage(instance: Instance, device: int) -> int:
    return instance.placement.routes[0].index(device)


def _comm_from_next(instance: Instance, device: int) -> int:
    """Return how many ticks a message takes from the next device to `device`."""
    if device + 1 < instance.devices:
        return instance.comm(device + 1, device)
    return instance.comm(device, device - 1) if device else 0


def _of_device(instance: Instance, device: int, times: list[int], published: bool) -> list[Ranked]:
    stage, time, last = _first_stage(instance, device), times[device], instance.devices - 1
    chunk = chunks(instance.placement)[device][stage]
    rank = 3 * (last - device)
    nodes: list[Ranked] = []

    def add(at: int, kind: NodeType, stage: int, time: int, peer: int | None) -> None:
        nodes.append((at, Node(kind, device, chunk, stage, 0, time, time, peer)))

    if device < last:
        sender = _first_stage(instance, device + 1)
        # Unless `published`, a receive has the time and rank of its send, so that both stand together.
        at, received = (rank, time) if published else (rank - 2, times[device + 1])
        add(at, NodeType.RECV_POST_VALIDATION, sender, received, device + 1)
    if device:
        add(rank + 1, NodeType.SEND_POST_VALIDATION, stage, time, device - 1)
    add(rank + 2, NodeType.POST_VALIDATION, stage, time, None)
    return nodes


class MessageOrder(StrEnum):
    """Three ways to place the sends and receives of the same messages.

    Only `published` can deadlock, and only where sends wait for their receives. The proof is in the notes of
    `lower`.
    """

    EARLY_RECEIVES = "early-receives"  #: receives stand before the computation during which the send happens
    IN_ORDER = "in-order"  #: send and receive stand at the time at which the sender's operation ends
    PUBLISHED = "published"  #: as in the zero-bubble runtimes; safe only if sends return at once


_COMMUNICATION, _COMPUTE = 0, 1  # at equal times communication comes first
_COMPUTES = {kind: NodeType[kind.name] for kind in COMPUTES}
_CARRIES = {  # (end of a message, whether it carries the result of an F and not of a B or BW) -> type
    ("SEND", True): NodeType.SEND_FORWARD,
    ("RECV", True): NodeType.RECV_FORWARD,
    ("SEND", False): NodeType.SEND_BACKWARD,
    ("RECV", False): NodeType.RECV_BACKWARD,
}


class Item(NamedTuple):
    """Nodes that stay together in the sequence of a device, with the key by which they are sorted."""

    key: tuple[int, int, tuple[int, ...]]  #: time, `_COMMUNICATION` or `_COMPUTE`, and what decides ties
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
        `tightpipe.program.program_passes` need. Without these waits, an operation itself waits for its input.

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
    schedule.instance.refuse_slices("a program")
    schedule.refuse_copies("a program")
    refuse_empty_stages(schedule.instance)
    order = MessageOrder(check_choice("order", order, *MessageOrder))
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
                Node(
                    *(_COMPUTES[op.kind], device, held[device][op.stage], op.stage, op.microbatch),
                    *(start[row], end[row]),
                    joined=k + 1 < len(slot),
                )
                for k, op in enumerate(slot)
            )
            mine.append(Item((start[row], _COMPUTE, (position,)), nodes))
            row += len(slot)
        devices.append(mine)
    return devices


def _add_messages(schedule: Schedule, items: list[list[Item]]) -> None:
    """Add the send and the receive of every message, at the time at which the sender's operation ends."""
    inputs = inputs_of(schedule.instance, schedule.order)
    nodes = [node for mine in items for item in mine for node in item.nodes]  # in the rows of the order
    for row in inputs.message.nonzero()[0].tolist():
        source = int(inputs.source[row])
        sender, receiver = nodes[source], nodes[row]
        key = (sender.end, _COMMUNICATION, (sender.device, source))
        for action, here, other in (("SEND", sender, receiver), ("RECV", receiver, sender)):
            kind = _CARRIES[action, sender.type is NodeType.F]
            at, peer = sender.end, other.device
            node = replace(here, type=kind, start=at, end=at, peer=peer, joined=False)
            items[here.device].append(Item(key, (node,)))


def _receives_before_computations(items: list[Item]) -> list[Item]:
    """Return a device's items with receives moved before the computation during which they are sent."""
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
