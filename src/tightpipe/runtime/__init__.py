"""Schedules are run, and stages of models are profiled, with PyTorch (optional extra ``torch``)."""

from .measured import Measured, RunReport, Span
from .profile import (
    DTYPES,
    MOST_STEPS,
    TOLERANCE,
    FittedLaw,
    MeasuredLayers,
    TransformerShape,
    check_lengths,
    fit_law,
    profile_layers,
    profile_stages,
)
from .profile_table import Profile, read_table, read_tables
from .run import MODELS, STEPS, RunError, RunModel, run_in_turn, run_schedule
from .training_logs import read_zero_bubble_log

__all__ = [
    "DTYPES",
    "MODELS",
    "MOST_STEPS",
    "STEPS",
    "TOLERANCE",
    "FittedLaw",
    "Measured",
    "MeasuredLayers",
    "Profile",
    "RunError",
    "RunModel",
    "RunReport",
    "Span",
    "TransformerShape",
    "check_lengths",
    "fit_law",
    "profile_layers",
    "profile_stages",
    "read_table",
    "read_tables",
    "read_zero_bubble_log",
    "run_in_turn",
    "run_schedule",
]
