"""The bound by the length of a single microbatch's path."""

from __future__ import annotations

from time import perf_counter

from tightpipe.core.instance import Instance
from tightpipe.core.result import Bound

from .routes import Visit, visits


def chain_bound(instance: Instance) -> Bound:
    """Bound the cost by the longest path of one microbatch from its first to its last operation on a device.

    Notes
    -----
    Let lo be the lowest of the device's stages on a microbatch's route, and S the number of stages. The
    device starts no later than F lo of the microbatch, and ends no earlier than W lo. In between, the
    operations F lo, ..., F S-1, B S-1, ..., B lo and W lo of the microbatch run one after another. For the
    makespan the path begins with F 0, and ends with W lo or goes on from B lo to W 0, whichever is longer.
    """
    begun = perf_counter()
    value, device = max(
        (_longest(instance, visit), -d) for d in range(instance.devices) for visit in visits(instance, d)
    )
    argument = f"one microbatch takes {value} ticks from device {-device} back to it"
    return Bound(value, "chain", argument, perf_counter() - begun)


def _longest(instance: Instance, visit: Visit) -> int:
    inner = visit.until_highest + visit.until_last_backward
    if instance.whole:
        return visit.arrival + inner + max(visit.backward_and_weight, visit.departure)
    return inner + visit.backward_and_weight
