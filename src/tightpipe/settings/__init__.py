"""Settings of the papers, realistic instances, lengths of microbatches, and costs of pairs with experts."""

from .expert_parallel import ExpertCosts, ExpertLayer, pair_ticks
from .instances import (
    DISTRIBUTIONS,
    Realistic,
    Setting,
    Table5Row,
    load_realistic,
    load_settings,
    load_table5,
    relative_lengths,
    with_lengths,
    with_median_costs,
    with_slices,
)

__all__ = [
    "DISTRIBUTIONS",
    "ExpertCosts",
    "ExpertLayer",
    "Realistic",
    "Setting",
    "Table5Row",
    "load_realistic",
    "load_settings",
    "load_table5",
    "pair_ticks",
    "relative_lengths",
    "with_lengths",
    "with_median_costs",
    "with_slices",
]
