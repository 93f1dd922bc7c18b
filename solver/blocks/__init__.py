"""Repeating blocks: what they are, how small their period can be, and the schedules that they unroll to."""

from .block import Block, Shape, period_bound, repeated, serial_block
from .block_search import BlockSearch, solve_block
from .period_search import PeriodSearch, search_period
from .unroll import compressed, shortened, steady_block, unrolled

__all__ = [
    "Block",
    "BlockSearch",
    "PeriodSearch",
    "Shape",
    "compressed",
    "period_bound",
    "repeated",
    "search_period",
    "serial_block",
    "shortened",
    "solve_block",
    "steady_block",
    "unrolled",
]
