"""Local search for robust schedules: it minimises the mean or a percentile of the cost in random samples."""

from .robust_search import Measure, robust_search

__all__ = ["Measure", "robust_search"]
