"""The library of instances: what is known about each of them, who found it, and how to submit better."""

from .folder import Library, default_library
from .record import Claim, Difficulty, Record, State
from .submit import submit
from .verify import check_record

__all__ = [
    "Claim",
    "Difficulty",
    "Library",
    "Record",
    "State",
    "check_record",
    "default_library",
    "submit",
]
