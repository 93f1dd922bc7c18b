"""Repeating blocks: what they are, how small their period can be, and the schedules that they unroll to."""

from ..or_tools import import_cp_model

import_cp_model()  # before the modules below, which would raise a bare ImportError after highspy

from .block import Block, Shape, period_bound, repeated, serial_block  # noqa: E402
from .block_search import KNOWN, BlockSearch, PeriodSearch, search_period, solve_block  # noqa: E402
from .unroll import compressed, shortened, steady_block, unrolled  # noqa: E402

__all__ = [
    "KNOWN",
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
