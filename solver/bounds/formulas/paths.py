"""The bounds by the work of a device and by the path of one microbatch, and least ticks along such paths.

On a path every operation counts with the least time that any schedule can give it. That is its own duration,
unless the device may run an F together with a BW in a shorter time; then it is the time of that pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import NamedTuple

import numpy as np

from tightpipe.kernels.arrays import Ints
from tightpipe.model.graph import NO_LIMIT
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import works
from tightpipe.model.operation import OpKind
from tightpipe.model.placement import Route
from tightpipe.model.result import Bound


def work_bound(instance: Instance) -> Bound:
    """Bound the cost by the largest work of a device.

    Notes
    -----
    A device runs one operation at a time, or an F together with a BW, and its work already counts what such
    pairs can save. So the span of a device is at least its work. The backward of a microbatch counts with the
    ticks of a BW or with the sum of those of B and W, whichever is less.
    """
    begun, work = perf_counter(), works(instance)
    value = max(work)
    device = work.index(value)
    argument = f"device {device} works {value} ticks, one operation at a time"
    return Bound(value, "work", argument, perf_counter() - begun)


@dataclass(frozen=True, slots=True)
class Visit:
    """The stages of one class of microbatches on one device, and the least ticks between their operations.

    - `microbatches`: number of microbatches of the class.
    - `mb_class`: number of the class.
    - `stages`: the device's stages on the route of the class, ascending; the first one is called lo, the last
      one hi.
    - `arrival`: ticks from the start of F at stage 0 to the earliest start of F at lo.
    - `until_highest`: ticks from the start of F at lo to the earliest end of F at hi.
    - `until_backward`: ticks from the start of F at lo to the earliest start of B at hi.
    - `until_last_backward`: ticks from the end of F at hi to the earliest start of B at lo.
    - `backward_and_weight`: ticks from the start of B at lo to the earliest end of W at lo.
    - `departure`: ticks from the start of B at lo to the earliest time at which B and W at stage 0 have
      ended.
    """

    microbatches: int
    mb_class: int
    stages: tuple[int, ...]
    arrival: int
    until_highest: int
    until_backward: int
    until_last_backward: int
    backward_and_weight: int
    departure: int

    @property
    def nodes(self) -> list[tuple[int, int]]:
        """Each of the stages with the class, as `Instance.duration` takes them."""
        return [(stage, self.mb_class) for stage in self.stages]


@lru_cache(maxsize=16)  # every bound asks for the visits of every device
def all_visits(instance: Instance) -> tuple[tuple[Visit, ...], ...]:
    """Return for each device a `Visit` of each class of microbatches."""
    paths, last = paths_of(instance), instance.stages - 1
    each, (lo, hi) = np.arange(len(paths.route))[:, None], (paths.lowest, paths.highest)
    f_lo, f_hi_end = paths.start[each, lo], paths.start[each, hi] + paths.forward[each, hi]
    b_hi, b_lo = (paths.start[each, 2 * last + 1 - stage] for stage in (hi, lo))
    departure = (paths.start[:, -1] + paths.both[:, 0])[:, None] - b_lo
    ticks = f_lo, f_hi_end - f_lo, b_hi - f_lo, b_lo - f_hi_end, paths.both[each, lo], departure
    table = np.stack(ticks, axis=-1).tolist()
    held = [stages_by_device(instance, route) for route in instance.class_routes]
    counts = instance.class_counts
    return tuple(
        tuple(Visit(n, c, held[c][d], *table[c][d]) for c, n in enumerate(counts))
        for d in range(instance.devices)
    )


def visits(instance: Instance, device: int) -> tuple[Visit, ...]:
    """Return a `Visit` of each class of microbatches on a device."""
    return all_visits(instance)[device]


def stages_by_device(instance: Instance, route: Route) -> list[tuple[int, ...]]:
    """Return the stages of each device on a route, ascending."""
    found: list[list[int]] = [[] for _ in range(instance.devices)]
    for stage, device in enumerate(route):
        found[device].append(stage)
    return list(map(tuple, found))


class Paths(NamedTuple):
    """The paths of C classes of microbatches over S stages on p devices, in ticks, as arrays.

    On a path an operation takes its least time, alone or in a pair. `both` is the time of a B and the W that
    follows it, fused or not.
    """

    route: Ints  # (C, S) device of each stage
    start: Ints  # (C, 2 S) earliest starts of a microbatch's F's from stage 0 up, then of its B's down to it
    forward: Ints  # (C, S)
    backward: Ints  # (C, S)
    both: Ints  # (C, S)
    lowest: Ints  # (C, p) lowest stage of each device
    highest: Ints  # (C, p) highest stage of each device


@lru_cache(maxsize=16)
def paths_of(instance: Instance) -> Paths:
    """Return the paths of all classes of microbatches."""
    routes = np.array(instance.class_routes)
    kinds = OpKind.F, OpKind.B, OpKind.BW
    times = [
        [[instance.duration(k, s, c) for s in range(instance.stages)] for c in range(len(routes))]
        for k in kinds
    ]
    forward, backward, both = np.array(times)
    if instance.has_pairs:  # whose microbatches have no classes of their own
        forward, backward, both = (
            np.minimum(alone, [[_shortest_pair(instance, k, s, d) for s, d in enumerate(r)] for r in routes])
            for k, alone in zip(kinds, (forward, backward, both), strict=True)
        )
    comm = np.array(instance.costs.comm)
    down, up = comm[routes[:, :-1], routes[:, 1:]], comm[routes[:, 1:], routes[:, :-1]]
    nothing = np.zeros((len(routes), 1), np.int64)
    steps = [nothing, forward[:, :-1] + down, forward[:, -1:], (backward[:, 1:] + up)[:, ::-1]]
    held = [stages_by_device(instance, route) for route in instance.class_routes]
    lowest, highest = (np.array([[stages[end] for stages in each] for each in held]) for end in (0, -1))
    start = np.concatenate(steps, axis=1).cumsum(axis=1)
    return Paths(routes, start, forward, backward, both, lowest, highest)


def _shortest_pair(instance: Instance, kind: OpKind, stage: int, device: int) -> int:
    ticks = instance.shortest_pair(kind, stage, device)
    return NO_LIMIT if ticks is None else ticks


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
