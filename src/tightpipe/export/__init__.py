"""Schedules and cuts of models are written as files of other programs, and read back from them."""

from .formats import EXPORTS, export, export_text, import_order
from .model_split import ModelSplit, split_model
from .split_target import SplitTarget
from .splits import SPLITS, export_split, read_split, split_text
from .target import Target
from .torch_costs import merge_adjacent, torch_stage0_instance, with_torch_stage0

__all__ = [
    "EXPORTS",
    "SPLITS",
    "ModelSplit",
    "SplitTarget",
    "Target",
    "export",
    "export_split",
    "export_text",
    "import_order",
    "merge_adjacent",
    "read_split",
    "split_model",
    "split_text",
    "torch_stage0_instance",
    "with_torch_stage0",
]
