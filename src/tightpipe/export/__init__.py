"""Schedules and cuts of models are written as files of other programs, and read back from them."""

from ..model.orders import torch_stage0_instance
from .formats import EXPORTS, SPLITS, data_sequence, export, export_text, import_order, read_split
from .model_split import ModelSplit, split_model
from .runtime_orders import merge_adjacent, with_torch_stage0

__all__ = [
    "EXPORTS",
    "SPLITS",
    "ModelSplit",
    "data_sequence",
    "export",
    "export_text",
    "import_order",
    "merge_adjacent",
    "read_split",
    "split_model",
    "torch_stage0_instance",
    "with_torch_stage0",
]
