"""The bound by the length of a single microbatch's path."""

from __future__ import annotations

from time import perf_counter

from tightpipe.core.instance import Instance, Objective
from tightpipe.core.result import Bound

from .routes import Visit, visits


def chain_bound(instance: Instance) -> Bound:
    """Bound the cost by the longest path of one microbatch that starts and ends on one device.

    Notes
    -----
    A device starts no later than the F of a microbatch at the device's first stage of the route, and ends no
    earlier than the W that follows the B of the microbatch there. All operations of the microbatch between
    these two run one after another. For the makespan the path begins with F at stage 0, and ends with W at
    stage 0 or at the device's first stage of the route, whichever path is longer.
    """
    begun = perf_counter()
    value, device = max(
        (_longest(instance, visit), -d) for d in range(instance.devices) for visit in visits(instance, d)
    )
    argument = f"one microbatch takes {value} ticks from device {-device} back to it"
    return Bound(value, "chain", argument, perf_counter() - begun)


def _longest(instance: Instance, visit: Visit) -> int:
    inner = visit.until_highest + visit.until_last_backward
    if instance.objective is Objective.MAKESPAN:
        return visit.arrival + inner + max(visit.backward_and_weight, visit.departure)
    return inner + visit.backward_and_weight
