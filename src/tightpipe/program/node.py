"""Nodes of a program: one compute, communication or validation step of a device."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from ..core.operation import Operation, OpKind
from ..core.placement import Placement


class NodeType(StrEnum):
    """What a node does; the values are the types of the zero-bubble runtimes, and our waits."""

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

    action: str  #: `SEND`, `RECV` or `WAIT`; empty for a node that is no communication
    subject: str  #: what is sent: `FORWARD`, `BACKWARD` or `POST_VALIDATION`; else the type itself
    is_compute: bool  #: whether the node is an operation of the order

    def __new__(cls, value: str) -> NodeType:
        """Take the value apart once: every step of a replay asks for its parts."""
        member = str.__new__(cls, value)
        member._value_ = value
        prefix, _, rest = value.partition("_")
        member.action = prefix if rest and prefix != "POST" else ""
        member.subject = rest if member.action else value
        member.is_compute = value in OpKind.__members__
        return member


class Message(NamedTuple):
    """What identifies a message: the payload's kind, the stage that made it, its microbatch, both ends."""

    subject: str
    stage: int
    microbatch: int
    sender: int
    receiver: int


@dataclass(frozen=True, slots=True)
class Node:
    """One step of a device's program.

    Parameters
    ----------
    type
        What it does.
    device, chunk, stage, microbatch
        Where it runs and on what. `stage` is global; `chunk` is its index among the device's stages.
    start, end
        Ticks at which the lowering placed it; communication has ``start == end``.
    peer
        The other device of a communication, else None.
    rollback
        Whether a receive is repeated when post-validation fails: its message was sent before that.
    joined
        Whether a compute node runs together with the next node (DualPipe).
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
        """The operation of a compute node."""
        return Operation(OpKind[self.type.value], self.stage, self.microbatch)

    @property
    def message(self) -> Message:
        """The message of a communication node, the same for its send, receive and wait."""
        assert self.peer is not None
        subject = self.type.subject
        if self.type.action == "SEND":
            return Message(subject, self.stage, self.microbatch, self.device, self.peer)
        made_at = self.stage + _STEP_BACK[subject]
        return Message(subject, made_at, self.microbatch, self.peer, self.device)


# from the receiving stage to the one that made the payload; validation carries the sender's stage as it is
_STEP_BACK = {"FORWARD": -1, "BACKWARD": 1, "POST_VALIDATION": 0}


@lru_cache(maxsize=64)
def chunks(placement: Placement) -> tuple[dict[int, int], ...]:
    """Return for each device the chunk of each of its stages."""
    return tuple(
        {stage: chunk for chunk, stage in enumerate(placement.stages_on(device))}
        for device in range(placement.devices)
    )
