"""Better schedules by local search, from any start and for instances of any size."""

from .improve_method import improve

__all__ = ["improve"]
