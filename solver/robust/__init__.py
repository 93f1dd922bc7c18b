"""Local search for robust schedules, whose cost is to be least in random samples, not without noise."""

from .robust_search import Measure, robust_search

__all__ = ["Measure", "robust_search"]
