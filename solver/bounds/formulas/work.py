"""The work bound."""

from __future__ import annotations

from time import perf_counter

from tightpipe.core.instance import Instance
from tightpipe.core.metrics import largest_work
from tightpipe.core.result import Bound


def work_bound(instance: Instance) -> Bound:
    """Bound the cost by the largest work of a device.

    Notes
    -----
    A device runs one operation at a time, so its span is at least the sum of their durations; a
    fused backward takes as long as its two parts.
    """
    begun = perf_counter()
    value = largest_work(instance)
    device = next(d for d in range(instance.devices) if instance.work(d) == value)
    argument = f"device {device} works {value} ticks, one operation at a time"
    return Bound(value, "work", argument, perf_counter() - begun)
