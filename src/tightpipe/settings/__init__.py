"""Instances from data files: the profiled settings of the papers, and a suite of realistic instances."""

from .median import with_median_costs
from .paper_settings import Setting, load_settings
from .realistic import Realistic, load_realistic
from .table5 import Table5Row, load_table5

__all__ = [
    "Realistic",
    "Setting",
    "Table5Row",
    "load_realistic",
    "load_settings",
    "load_table5",
    "with_median_costs",
]
