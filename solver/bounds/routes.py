"""Paths of one microbatch through its route: how long it is away from a device."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tightpipe.instance import Instance
from tightpipe.operation import OpKind


@dataclass(frozen=True, slots=True)
class Visit:
    """The stages of one route on one device, and the times of the paths between them.

    Parameters
    ----------
    microbatches
        How many take this route.
    stages
        The device's stages on the route, ascending; the first is called lo, the last hi.
    arrival
        Ticks from the start of F0 to the earliest start of F at lo.
    until_highest
        Ticks from the start of F at lo to the earliest start of F at hi.
    until_backward
        Ticks from the start of F at lo to the earliest start of B at hi.
    until_last_backward
        Ticks from the end of F at hi to the earliest end of B at lo.
    departure
        Ticks from the end of B at lo to the earliest end of B0 and its W.
    """

    microbatches: int
    stages: tuple[int, ...]
    arrival: int
    until_highest: int
    until_backward: int
    until_last_backward: int
    departure: int


def visits(instance: Instance, device: int) -> list[Visit]:
    """Return one visit per route that has a stage on `device`."""
    count = instance.microbatches // len(instance.placement.routes)
    found = []
    for route in instance.placement.routes:
        stages = tuple(s for s, d in enumerate(route) if d == device)
        if stages:
            found.append(_visit(instance, route, stages, count))
    return found


def _visit(instance: Instance, route: tuple[int, ...], stages: tuple[int, ...], count: int) -> Visit:
    start = _earliest_starts(instance, route)
    last, lo, hi = instance.stages - 1, stages[0], stages[-1]
    f_lo, f_hi_end = start[lo], start[hi] + instance.duration(OpKind.F, hi)
    b_hi, b_lo_end = start[2 * last + 1 - hi], start[2 * last + 1 - lo] + instance.duration(OpKind.B, lo)
    b_first_end = start[-1] + instance.duration(OpKind.B, 0)
    return Visit(
        count,
        stages,
        arrival=f_lo,
        until_highest=start[hi] - f_lo,
        until_backward=b_hi - f_lo,
        until_last_backward=b_lo_end - f_hi_end,
        departure=b_first_end - b_lo_end + instance.duration(OpKind.W, 0),
    )


def _earliest_starts(instance: Instance, route: tuple[int, ...]) -> list[int]:
    """Start times of one microbatch alone: F of all stages upwards, then B of all stages downwards."""
    stages = range(instance.stages)
    steps = [(OpKind.F, s) for s in stages] + [(OpKind.B, s) for s in reversed(stages)]
    start = [0]
    for (kind, here), (_, there) in pairwise(steps):
        lag = instance.comm(route[here], route[there])
        start.append(start[-1] + instance.duration(kind, here) + lag)
    return start
