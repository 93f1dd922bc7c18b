"""Measurements of runs from their traces: schedule, costs, and idle time by cause."""

from .accounts import Account, Cause
from .costs import Cost
from .measurement import TOLERANCE, Measurement, measure
from .megatron_timers import DeviceTotals, TimerTotals, read_timers
from .recordings import is_timer_log
from .variation import variation_table

__all__ = [
    "TOLERANCE",
    "Account",
    "Cause",
    "Cost",
    "DeviceTotals",
    "Measurement",
    "TimerTotals",
    "is_timer_log",
    "measure",
    "read_timers",
    "variation_table",
]
