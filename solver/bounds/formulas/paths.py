"""The bounds by the work of a device and by the path of one microbatch, and least ticks along such paths.

On a path every operation counts with the least time that any schedule can give it. That is its own duration,
unless the device may run an F together with a BW in a shorter time; then it is the time of that pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from time import perf_counter

from tightpipe.model.instance import Instance
from tightpipe.model.metrics import largest_work
from tightpipe.model.operation import OpKind
from tightpipe.model.result import Bound


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


@dataclass(frozen=True, slots=True)
class Visit:
    """The stages of one route on one device, and the least ticks between operations at these stages.

    Parameters
    ----------
    microbatches
        Number of microbatches that take this route.
    stages
        The device's stages on the route, ascending; the first one is called lo, the last one hi.
    arrival
        Ticks from the start of F at stage 0 to the earliest start of F at lo.
    until_highest
        Ticks from the start of F at lo to the earliest end of F at hi.
    until_backward
        Ticks from the start of F at lo to the earliest start of B at hi.
    until_last_backward
        Ticks from the end of F at hi to the earliest start of B at lo.
    backward_and_weight
        Ticks from the start of B at lo to the earliest end of W at lo.
    departure
        Ticks from the start of B at lo to the earliest time at which B and W at stage 0 have ended.
    """

    microbatches: int
    stages: tuple[int, ...]
    arrival: int
    until_highest: int
    until_backward: int
    until_last_backward: int
    backward_and_weight: int
    departure: int


@lru_cache(maxsize=256)  # every bound asks for the visits of every device
def visits(instance: Instance, device: int) -> tuple[Visit, ...]:
    """Return a `Visit` for each route that has stages on `device`."""
    count = instance.microbatches // len(instance.placement.routes)
    found = []
    for route in instance.placement.routes:
        stages = tuple(s for s, d in enumerate(route) if d == device)
        if stages:
            found.append(_visit(instance, route, stages, count))
    return tuple(found)


def _visit(instance: Instance, route: tuple[int, ...], stages: tuple[int, ...], count: int) -> Visit:
    start = earliest_starts(instance, route)
    last, lo, hi = instance.stages - 1, stages[0], stages[-1]
    f_lo, f_hi_end = start[lo], start[hi] + least_time(instance, OpKind.F, hi, route)
    b_hi, b_lo = start[2 * last + 1 - hi], start[2 * last + 1 - lo]
    return Visit(
        count,
        stages,
        arrival=f_lo,
        until_highest=f_hi_end - f_lo,
        until_backward=b_hi - f_lo,
        until_last_backward=b_lo - f_hi_end,
        backward_and_weight=least_time(instance, OpKind.BW, lo, route),
        departure=start[-1] - b_lo + least_time(instance, OpKind.BW, 0, route),
    )


@lru_cache(maxsize=16)  # every device of the route asks for the same starts
def earliest_starts(instance: Instance, route: tuple[int, ...]) -> tuple[int, ...]:
    """Return the earliest starts, in ticks, of the F's and B's of a microbatch that starts at 0 on a route.

    The F's come first, from stage 0 up, then the B's, from the last stage down.
    """
    stages = range(instance.stages)
    steps = [(OpKind.F, s) for s in stages] + [(OpKind.B, s) for s in reversed(stages)]
    start = [0]
    for (kind, here), (_, there) in pairwise(steps):
        lag = instance.comm(route[here], route[there])
        start.append(start[-1] + least_time(instance, kind, here, route) + lag)
    return tuple(start)


def least_time(instance: Instance, kind: OpKind, stage: int, route: tuple[int, ...]) -> int:
    """Return the least time, in ticks, from the start of an operation to its end, alone or in a pair.

    The kind BW stands for a B and the W that follows it, fused or not.
    """
    alone, together = instance.duration(kind, stage), instance.shortest_pair(kind, stage, route[stage])
    return alone if together is None else min(alone, together)


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
