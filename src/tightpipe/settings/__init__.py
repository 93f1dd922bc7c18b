"""Instances from data files: the profiled settings of the papers, and a suite of realistic instances."""

from .paper_settings import Setting, Table5Row, load_settings, load_table5
from .realistic import Realistic, load_realistic, with_median_costs

__all__ = [
    "Realistic",
    "Setting",
    "Table5Row",
    "load_realistic",
    "load_settings",
    "load_table5",
    "with_median_costs",
]
