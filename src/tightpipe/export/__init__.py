"""Schedules are written as files of other programs, and read back from them."""

from .registry import EXPORTS, export, export_text, import_order
from .target import Target
from .torch_costs import merge_adjacent, torch_stage0_instance, with_torch_stage0

__all__ = [
    "EXPORTS",
    "Target",
    "export",
    "export_text",
    "import_order",
    "merge_adjacent",
    "torch_stage0_instance",
    "with_torch_stage0",
]
