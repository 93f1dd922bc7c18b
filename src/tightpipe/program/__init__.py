"""Orders lowered to what each device does: computations, sends, receives, waits, post-validation."""

from .check import check_program
from .lowering import lower
from .message_order import MessageOrder
from .node import Message, Node, NodeType
from .program import Program
from .program_file import load_program, program_to_dict, save_program
from .replay import Replay, Semantics, replay

__all__ = [
    "Message",
    "MessageOrder",
    "Node",
    "NodeType",
    "Program",
    "Replay",
    "Semantics",
    "check_program",
    "load_program",
    "lower",
    "program_to_dict",
    "replay",
    "save_program",
]
