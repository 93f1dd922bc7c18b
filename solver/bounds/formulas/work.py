"""The bound by the largest work of a device."""

from __future__ import annotations

from time import perf_counter

from tightpipe.core.instance import Instance
from tightpipe.core.metrics import largest_work
from tightpipe.core.result import Bound


def work_bound(instance: Instance) -> Bound:
    """Bound the cost by the largest work of a device.

    Notes
    -----
    A device runs one operation at a time, or an F together with a BW, and its work already counts what such
    pairs can save. So the span of a device is at least its work. The backward of a microbatch counts with the
    ticks of a BW or with the sum of those of B and W, whichever is less.
    """
    begun = perf_counter()
    value = largest_work(instance)
    device = next(d for d in range(instance.devices) if instance.work(d) == value)
    argument = f"device {device} works {value} ticks, one operation at a time"
    return Bound(value, "work", argument, perf_counter() - begun)
