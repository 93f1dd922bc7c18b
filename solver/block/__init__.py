"""Repeating blocks: what they are, how small their period can be, and the schedules that they unroll to."""

from .block import Block, Shape, repeated, serial_block
from .compress import compressed, shortened
from .least_period import period_bound
from .unroll import unrolled

__all__ = [
    "Block",
    "Shape",
    "compressed",
    "period_bound",
    "repeated",
    "serial_block",
    "shortened",
    "unrolled",
]
