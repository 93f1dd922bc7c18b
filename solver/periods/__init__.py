"""The method ``block``: the least period of repeating blocks, and schedules that repeat them."""

from .block_method import solve_block
from .block_search import BlockSearch
from .period_search import PeriodSearch, search_period
from .steady import steady_block

__all__ = ["BlockSearch", "PeriodSearch", "search_period", "solve_block", "steady_block"]
