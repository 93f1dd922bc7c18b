"""The library of instances: the best schedules and bounds known, who found them, and how to submit others."""

from .folder import Library, default_library
from .record import Claim, Difficulty, Record, RefusedError, State
from .submit import check_record, submit

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
