"""Better schedules by search, from any start, at any size."""

from .improve_method import improve

__all__ = ["improve"]
