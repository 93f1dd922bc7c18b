"""The library of instances: the best schedules and bounds known, who found them, and how to submit others."""

from .folder import Library, check_record, default_library, submit
from .record import Claim, Difficulty, Record, RefusedError, State

__all__ = [
    "Claim",
    "Difficulty",
    "Library",
    "Record",
    "RefusedError",
    "State",
    "check_record",
    "default_library",
    "submit",
]
