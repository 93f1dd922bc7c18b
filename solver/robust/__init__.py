"""Schedules that stand noise: local search for the least cost in random samples instead of without noise."""

from .robust_search import Measure, robust_search

__all__ = ["Measure", "robust_search"]
