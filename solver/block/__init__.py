"""Repeating blocks: what they are, how small their period can be, and the schedules that they unroll to."""

from .block import Block, Shape
from .compress import compressed, shortened
from .least_period import period_bound
from .repeated import repeated
from .serial import serial_block
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
