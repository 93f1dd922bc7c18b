"""Better schedules by search, from any start, at any size."""

from .solve import improve

__all__ = ["improve"]
