"""Orders lowered to what each device does: computations, sends, receives, waits, post-validation."""

from .check import check_program
from .lowering import lower
from .node import Message, Node, NodeType
from .program import Program
from .replay import Replay, Semantics, replay

__all__ = [
    "Message",
    "Node",
    "NodeType",
    "Program",
    "Replay",
    "Semantics",
    "check_program",
    "lower",
    "replay",
]
