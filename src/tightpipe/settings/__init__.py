"""The profiled settings of the papers, a suite of realistic instances, and costs of pairs with experts."""

from .expert_parallel import ExpertCosts, pair_ticks
from .instances import (
    Realistic,
    Setting,
    Table5Row,
    load_realistic,
    load_settings,
    load_table5,
    with_median_costs,
)

__all__ = [
    "ExpertCosts",
    "Realistic",
    "Setting",
    "Table5Row",
    "load_realistic",
    "load_settings",
    "load_table5",
    "pair_ticks",
    "with_median_costs",
]
