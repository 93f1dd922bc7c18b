"""Measurements of runs from their traces: schedule, costs, and idle time by cause."""

from .accounts import Account, Cause, Cost, variation_table
from .measurement import TOLERANCE, Measurement, measure
from .megatron_timers import DeviceTotals, TimerTotals, read_timers
from .recordings import is_timer_log, read_chrome_trace

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
    "read_chrome_trace",
    "read_timers",
    "variation_table",
]
