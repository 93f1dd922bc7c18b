"""Replay: run a program node by node, find deadlocks, time it with its waits.

Nothing here looks at `simulate`: the program alone says what happens when, so that the two check
each other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ..core import metrics
from ..core.errors import DeadlockError, InputError
from ..core.integers import check_int
from ..core.schedule import Schedule
from .check import check_program
from .node import Message, Node
from .program import Program
from .steps import Step, device_steps


class Semantics(StrEnum):
    """What a send and a receive wait for."""

    BLOCKING = "blocking"  #: both ends wait for each other and for the transfer
    BUFFERED = "buffered"  #: a send returns at once, a receive waits for its message
    ASYNCHRONOUS = "asynchronous"  #: both return at once, the operation that needs the message waits


@dataclass(frozen=True, slots=True)
class Replay:
    """When everything happened, in ticks.

    Parameters
    ----------
    program
        What ran.
    start, end
        For each device one time per node: when it began (an operation: when it had its input) and
        when the device went on.
    """

    program: Program
    start: tuple[tuple[int, ...], ...]
    end: tuple[tuple[int, ...], ...]

    @property
    def schedule(self) -> Schedule:
        """The operations with the times at which they ran."""
        computes = np.array([node.type.is_compute for nodes in self.program.devices for node in nodes])
        start, end = (np.array([t for row in times for t in row]) for times in (self.start, self.end))
        return Schedule(self.program.instance, self.program.order, start[computes], end[computes])

    @property
    def waited(self) -> tuple[int, ...]:
        """How long each device stood still between its first and its last operation."""
        return tuple(metrics.idle_times(self.schedule).tolist())

    @property
    def cost(self) -> int:
        """The instance's objective."""
        return metrics.cost(self.schedule)


def replay(
    program: Program,
    semantics: Semantics | str = Semantics.ASYNCHRONOUS,
    *,
    fuse: bool = False,
    link_occupancy: int | None = None,
    hold_first: bool = True,
) -> Replay:
    """Run a program.

    Parameters
    ----------
    program
        What to run.
    semantics
        How sends and receives wait. A receive with a wait of its own never blocks: its wait does.
    fuse
        Whether neighbouring sends and receives of a device are issued as one batch, which ends with
        the last of them.
    link_occupancy
        Ticks for which a message keeps its directed link from the next one, at least 0; None takes the
        instance's. With another number than the instance's the replay shows what contention costs a
        schedule that did not expect it.
    hold_first
        Whether the first operation of a device waits for the start that the schedule gave it.

    Raises
    ------
    DeadlockError
        If devices wait for each other; the message names the cycle.
    InputError
        If the program lacks something, or an operation stands before its input on its own device.
    """
    try:
        semantics = Semantics(semantics)
    except ValueError:
        rule = f"must be one of {', '.join(Semantics)}"
        raise InputError(rule, key="semantics", value=semantics) from None
    if link_occupancy is None:
        link_occupancy = program.instance.costs.link_occupancy
    check_int("link_occupancy", link_occupancy, 0)
    check_program(program)
    machine = _Machine(program, semantics, fuse, link_occupancy, hold_first)
    machine.run()
    return machine.result()


class _Machine:
    """The devices' positions and clocks, the messages and the links."""

    def __init__(
        self, program: Program, semantics: Semantics, fuse: bool, occupancy: int, hold_first: bool
    ) -> None:
        self.program, self.semantics, self.occupancy = program, semantics, occupancy
        devices = program.devices
        self.steps = [device_steps(program.instance, d, nodes, fuse) for d, nodes in enumerate(devices)]
        self.release = [_first_start(nodes) if hold_first else 0 for nodes in devices]
        self.has_wait = {n.message for nodes in devices for n in nodes if n.type.action == "WAIT"}
        self.head = [0] * len(devices)
        self.clock = [0] * len(devices)
        self.began: list[int | None] = [None] * len(devices)  # when the step at the head began
        self.sent: dict[Message, int] = {}
        self.received: dict[Message, int] = {}
        self.arrival: dict[Message, int] = {}
        self.link_free: dict[tuple[int, int], int] = {}
        self.start: list[list[int]] = [[] for _ in devices]
        self.end: list[list[int]] = [[] for _ in devices]

    def run(self) -> None:
        """Let each device run until it has to wait, and again whenever a peer has done its part."""
        queue = deque(range(len(self.steps)))
        while queue:
            device = queue.popleft()
            while self.head[device] < len(self.steps[device]) and self._advance(device, queue):
                pass
        if any(len(times) < len(nodes) for times, nodes in zip(self.end, self.program.devices, strict=True)):
            raise DeadlockError(self._describe_deadlock())

    def result(self) -> Replay:
        return Replay(self.program, tuple(map(tuple, self.start)), tuple(map(tuple, self.end)))

    def _advance(self, device: int, queue: deque[int]) -> bool:
        """Begin and end the device's next step as far as it can; say whether it ended."""
        step = self.steps[device][self.head[device]]
        if self.began[device] is None:
            if any(message not in self.arrival for message in step.needs):
                return False
            self._begin(device, step)
            queue.extend(node.peer for node in step.nodes if node.peer is not None)
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
            now = max(now, self.release[device])
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
        """Set the message's arrival if all that it depends on has happened."""
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
        """Return when the message departs: a link carries messages in the order in which they are ready."""
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
        """Follow 'waits for' from a stuck device to the next until one repeats."""
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
        name = f"{node.operation}" if node.type.is_compute else _name(node)
        return f"device {device} at {name} waits for device {self._waits_for(device)} to {action} it"


def _name(node: Node) -> str:
    return f"{node.type} of stage {node.stage}, microbatch {node.microbatch},"


def _first_start(nodes: tuple[Node, ...]) -> int:
    return min((node.start for node in nodes if node.type.is_compute), default=0)
