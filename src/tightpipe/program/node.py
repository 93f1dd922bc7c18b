"""Nodes of a program: each is one computation, communication or validation of a device."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from ..core.operation import Operation, OpKind
from ..core.placement import Placement


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
        """Return the member named `value`, with the attributes that follow from the name.

        The name is split here, only once, because every step of a replay reads the attributes.
        """
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
    """One entry of a device's program: an operation, a send, a receive, a wait or a post-validation.

    Parameters
    ----------
    type
        What the node does.
    device
        Device that runs the node.
    chunk, stage
        Stage that the node belongs to, as its index among the stages of the device and as its number in the
        model.
    microbatch
        Microbatch that the node belongs to.
    start, end
        Times in ticks at which the lowering placed the node; they are equal unless the node is an operation.
    peer
        The other device of a send, a receive or a wait; None for other nodes.
    rollback
        Whether a receive is repeated when post-validation fails, because its message was sent before the
        sender validated.
    joined
        Whether a compute node runs together with the next node, as in DualPipe.
    """

    type: NodeType
    device: int
    chunk: int
    stage: int
    microbatch: int
    start: int
    end: int
    peer: int | None = None
    rollback: bool = False
    joined: bool = False

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
