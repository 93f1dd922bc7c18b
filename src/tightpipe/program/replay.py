"""A replay runs a program node by node, to find deadlocks and the times at which its nodes begin and end.

The replay does not use `simulate`: the program alone determines when each node runs, so that the replay and
the simulator check each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ..base.errors import DeadlockError, InputError, check_choice, check_int
from ..model import metrics
from ..model.instance import Instance
from ..model.operation import OpKind
from ..model.schedule import Schedule
from .program import Message, Node, NodeType, Program, check_program


class Semantics(StrEnum):
    """What a send and a receive wait for."""

    BLOCKING = "blocking"  #: a send and its receive wait for each other and for the transfer
    BUFFERED = "buffered"  #: a send returns at once, and a receive waits for its message
    ASYNCHRONOUS = "asynchronous"  #: both return at once, and the operation that needs the message waits


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
        if node.message not in available:
            raise InputError("stands before its receive", value=str(node.type))
        yield node.message
    elif node.type in (NodeType.SEND_FORWARD, NodeType.SEND_BACKWARD):
        kinds = (OpKind.F,) if node.type is NodeType.SEND_FORWARD else (OpKind.B, OpKind.BW)
        if not any((kind, node.stage, node.microbatch) in available for kind in kinds):
            rule = f"stands before {kinds[0].name}{node.stage}.{node.microbatch}, whose result it sends"
            raise InputError(rule, value=str(node.type))
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


@dataclass(frozen=True, slots=True)
class Replay:
    """The times at which the nodes of a program run, in ticks.

    An operation begins once its input is there; every other node begins when the device reaches it.
    """

    program: Program  #: what was replayed
    start: tuple[tuple[int, ...], ...]  #: for each node of each device, when it began
    end: tuple[tuple[int, ...], ...]  #: when the device went on to the next node

    @property
    def schedule(self) -> Schedule:
        """The operations of the program with the times at which they ran."""
        computes = np.array([node.type.is_compute for nodes in self.program.devices for node in nodes])
        start, end = (np.array([t for row in times for t in row]) for times in (self.start, self.end))
        return Schedule(self.program.instance, self.program.order, start[computes], end[computes])

    @property
    def waited(self) -> tuple[int, ...]:
        """Ticks for which each device stood still between its first and its last operation."""
        return tuple(metrics.idle_times(self.schedule).tolist())

    @property
    def cost(self) -> int:
        """Value of the instance's objective, in ticks."""
        return metrics.cost(self.schedule)


def replay(
    program: Program,
    semantics: Semantics | str = Semantics.ASYNCHRONOUS,
    *,
    fuse: bool = False,
    link_occupancy: int | None = None,
    hold_first: bool = True,
) -> Replay:
    """Run a program on simulated devices and return its times.

    Parameters
    ----------
    program
        The program to run.
    semantics
        What sends and receives wait for. If a receive has a wait node of its own, the wait blocks and the
        receive does not.
    fuse
        Whether neighbouring sends and receives of a device are issued as one batch, which ends when the last
        of them ends.
    link_occupancy
        Ticks for which a message keeps its directed link busy, at least 0; None takes the value of the
        instance. A larger value shows how contention slows down a schedule that did not expect it.
    hold_first
        Whether the first operation of a device waits for the start that the schedule gave it.

    Returns
    -------
    Replay
        The times of all nodes.

    Raises
    ------
    DeadlockError
        If devices wait for each other; the message names those devices.
    InputError
        If the program is incomplete, an operation stands before its input or the receive of its input, or
        `semantics` or `link_occupancy` has a wrong value.
    """
    semantics = Semantics(check_choice("semantics", semantics, *Semantics))
    if link_occupancy is None:
        link_occupancy = program.instance.costs.link_occupancy
    check_int("link_occupancy", link_occupancy, 0)
    check_program(program)
    machine = _Machine(program, semantics, fuse, link_occupancy, hold_first)
    machine.run()
    return Replay(program, tuple(map(tuple, machine.start)), tuple(map(tuple, machine.end)))


class _Machine:
    """The state of a replay: position and clock of each device, and the times of messages and links."""

    def __init__(
        self, program: Program, semantics: Semantics, fuse: bool, occupancy: int, hold_first: bool
    ) -> None:
        self.program, self.semantics, self.occupancy = program, semantics, occupancy
        devices = program.devices
        self.steps = [device_steps(program.instance, d, nodes, fuse) for d, nodes in enumerate(devices)]
        firsts = [min((n.start for n in nodes if n.type.is_compute), default=0) for nodes in devices]
        self.release = [first if hold_first else 0 for first in firsts]
        self.has_wait = {n.message for nodes in devices for n in nodes if n.type.action == "WAIT"}
        self.head = [0] * len(devices)
        self.clock = [0] * len(devices)
        self.began: list[int | None] = [None] * len(devices)  # when the current step of each device began
        self.sent: dict[Message, int] = {}
        self.received: dict[Message, int] = {}
        self.arrival: dict[Message, int] = {}
        self.link_free: dict[tuple[int, int], int] = {}
        self.start: list[list[int]] = [[] for _ in devices]
        self.end: list[list[int]] = [[] for _ in devices]

    def run(self) -> None:
        """Run each device until it has to wait, and again whenever a peer has begun a send or a receive."""
        awake = deque(range(len(self.steps)))
        while awake:
            device = awake.popleft()
            while self.head[device] < len(self.steps[device]) and self._advance(device, awake):
                pass
        if any(len(times) < len(nodes) for times, nodes in zip(self.end, self.program.devices, strict=True)):
            raise DeadlockError(self._describe_deadlock())

    def _advance(self, device: int, awake: deque[int]) -> bool:
        """Begin and end the current step of a device, as far as possible; return whether it has ended."""
        step = self.steps[device][self.head[device]]
        if self.began[device] is None:
            if any(message not in self.arrival for message in step.needs):
                return False
            self._begin(device, step)
            awake.extend(node.peer for node in step.nodes if node.peer is not None)
        blockers = self._blockers(step)
        if any(message not in self.arrival for message in blockers):
            return False
        began = self.began[device]
        assert began is not None
        ended = max([began + step.duration, *(self.arrival[message] for message in blockers)])
        arrived_at, self.clock[device] = self.clock[device], ended
        self.start[device] += [began if step.duration else arrived_at] * len(step.nodes)
        self.end[device] += [ended] * len(step.nodes)
        self.head[device] += 1
        self.began[device] = None
        return True

    def _begin(self, device: int, step: Step) -> None:
        now = max([self.clock[device], *(self.arrival[message] for message in step.needs)])
        if step.duration:
            now = max(now, self.release[device], step.ready)
            self.release[device] = 0
        self.began[device] = now
        for node in step.nodes:
            if node.type.action == "SEND":
                self._send(node.message, now)
            elif node.type.action == "RECV":
                self.received[node.message] = now
                self._meet(node.message)

    def _send(self, message: Message, now: int) -> None:
        blocking = self.semantics is Semantics.BLOCKING
        self.sent[message] = now if blocking else self._take_link(message, now)
        self._meet(message)

    def _meet(self, message: Message) -> None:
        """Set the arrival time of a message if it is known by now.

        It is known once the message is sent and, unless sends are buffered, its receive has begun.
        """
        if message not in self.sent or message in self.arrival:
            return
        departs = self.sent[message]
        if self.semantics is not Semantics.BUFFERED:
            if message not in self.received:
                return
            departs = max(departs, self.received[message])
        if self.semantics is Semantics.BLOCKING:
            departs = self._take_link(message, departs)
        self.arrival[message] = departs + self.program.instance.comm(message.sender, message.receiver)

    def _take_link(self, message: Message, ready: int) -> int:
        """Return when a message that is ready at tick `ready` departs, and keep its link busy from then."""
        link = (message.sender, message.receiver)
        departs = max(ready, self.link_free.get(link, 0))
        self.link_free[link] = departs + self.occupancy
        return departs

    def _blockers(self, step: Step) -> list[Message]:
        """Return the messages that must arrive before the step ends."""
        if self.semantics is Semantics.ASYNCHRONOUS:
            return []
        blocking = self.semantics is Semantics.BLOCKING
        return [
            node.message
            for node in step.nodes
            if (node.type.action == "SEND" and blocking)
            or (node.type.action == "RECV" and node.message not in self.has_wait)
        ]

    def _describe_deadlock(self) -> str:
        """Return a sentence that names the devices that wait for each other in a circle."""
        stuck = [d for d, steps in enumerate(self.steps) if self.head[d] < len(steps)]
        device, seen = stuck[0], [stuck[0]]
        while True:
            device = self._waits_for(device)
            if device in seen:
                break
            seen.append(device)
        cycle = seen[seen.index(device) :]
        return "devices wait for each other: " + "; ".join(map(self._describe_stuck, cycle))

    def _missing(self, device: int) -> tuple[Node, Message]:
        step = self.steps[device][self.head[device]]
        for message in (*step.needs, *self._blockers(step)):
            if message not in self.arrival:
                owners = [n for n in step.nodes if n.peer is not None and n.message == message]
                return (owners or step.nodes)[0], message
        raise AssertionError("a device without a missing message is not stuck")

    def _waits_for(self, device: int) -> int:
        _, message = self._missing(device)
        return message.receiver if device == message.sender else message.sender

    def _describe_stuck(self, device: int) -> str:
        node, message = self._missing(device)
        action = "receive" if device == message.sender else "send"
        place = f"{node.type} of stage {node.stage}, microbatch {node.microbatch},"
        name = f"{node.operation}" if node.type.is_compute else place
        return f"device {device} at {name} waits for device {self._waits_for(device)} to {action} it"
