"""Repeating blocks: what they are, how small their period can be, and the schedules that they unroll to."""

from ..programs import import_cp_model

import_cp_model()  # before the modules below, which would raise a bare ImportError after highspy

from .block import Block, Shape, repeated  # noqa: E402
from .block_search import KNOWN, BlockSearch, solve_block  # noqa: E402
from .period_search import search_period  # noqa: E402
from .unroll import steady_block, unrolled  # noqa: E402

__all__ = [
    "KNOWN",
    "Block",
    "BlockSearch",
    "Shape",
    "repeated",
    "search_period",
    "solve_block",
    "steady_block",
    "unrolled",
]
