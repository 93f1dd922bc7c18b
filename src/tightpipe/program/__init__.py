"""Programs: schedules turned into the computations, sends, receives and waits of each device.

A program may also contain post-validation, in which the devices check the last optimizer step.
"""

from .lowering import MessageOrder, lower
from .program import (
    Message,
    Node,
    NodeType,
    Program,
    check_program,
    load_program,
    program_to_dict,
    save_program,
)
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
