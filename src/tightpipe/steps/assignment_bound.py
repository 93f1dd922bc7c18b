"""A bound of the cost of a step that holds however its microbatches are divided among replicas."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tightpipe.solver.bounds.formulas import best_bound

from ..kernels.arrays import Ints
from ..model.instance import Instance
from ..model.law import CostLaw, Microbatch
from ..model.operation import OpKind

_ALONE = 4  # microbatches of which a bound alone is computed, the longest ones


class Loads(NamedTuple):
    """What each microbatch takes on each device, in ticks; arrays of shape (microbatches, devices)."""

    work: Ints  # least time of its operations
    until_last_b: Ints  # least time of its F's and B's
    head: Ints  # from when the microbatch may begin until the device may begin with it
    tail: Ints  # from the end of its last B on the device to the end of its last operation


def loads_of(instance: Instance) -> Loads:
    """Return the loads of the microbatches of an instance, whose placement has one route."""
    shape = len(instance.class_counts), instance.devices
    loads = Loads(*(np.zeros(shape, np.int64) for _ in Loads._fields))
    for c in range(shape[0]):
        _add_loads(instance, c, Loads(*(table[c] for table in loads)))
    classes = [instance.mb_class(m) for m in range(instance.microbatches)]
    return Loads(*(table[classes] for table in loads))


def _add_loads(instance: Instance, c: int, loads: Loads) -> None:
    """Set the loads of the microbatches of class `c`, in arrays of shape (devices,)."""
    route, step = instance.placement.routes[0], instance.barrier
    least_b = [
        min(instance.duration(OpKind.B, s, c), instance.duration(OpKind.BW, s, c))
        for s in range(instance.stages)
    ]
    for stage, device in enumerate(route):
        forward = instance.duration(OpKind.F, stage, c)
        loads.work[device] += forward + instance.least_backward(stage, c)
        loads.until_last_b[device] += forward + least_b[stage]
    if not instance.whole:  # the span of a device knows nothing of the others
        return
    first = {device: stage for stage, device in reversed(list(enumerate(route)))}
    begin = 0
    for stage, device in enumerate(route):
        begin = max(begin, step.ready[stage] if step is not None else 0)  # type: ignore[index]
        if stage == first[device]:
            loads.head[device] = begin
        if stage + 1 < len(route):
            begin += instance.duration(OpKind.F, stage, c) + instance.comm(device, route[stage + 1])
    # in place of a BW a B and a W are counted that take no longer together (`solver.bounds.relaxed`)
    after = instance.least_backward(0, c)
    if instance.has(OpKind.B, 0, c):
        loads.tail[route[0]] = after - least_b[0]
    for stage, (before, device) in enumerate(pairwise(route), 1):
        if not instance.has(OpKind.B, stage, c):
            after = instance.least_backward(stage, c)
            continue
        waits = instance.has_backward(stage - 1, c)
        tail = after + instance.comm(device, before) if waits else 0
        if stage == first[device]:
            loads.tail[device] = tail
        after = least_b[stage] + tail


def assignment_bound(law: CostLaw, batch: tuple[Microbatch, ...], replicas: int) -> int:
    """Return a lower bound of the cost of the slowest replica, however microbatches are assigned.

    *One device.* Let x be what each microbatch takes of a device, and let there be R replicas. Some replica
    has at least 1/R of the sum of x, and as x is whole, the sum divided by R and rounded up. Of the kR + 1
    microbatches with the largest x, some replica has k + 1 or more, which take at least as long as the k + 1
    smallest of these (as for bins, Martello and Toth, 1990). Let L(x) be the largest of these numbers. With x
    the least work, L(x) is a bound of the span of the device in some replica. Where the time of all devices
    counts, no device begins before some microbatch has passed the stages before its first one, which takes at
    least the shortest `head`. With x the time of F's and B's alone, the device works L(x) until its last B
    ends. This B is at the device's first stage, since every B at another of its stages has one at the first
    stage after it. Then the B's of all stages before it follow, which take at least the shortest `tail`.

    *One microbatch.* A schedule of a replica without all but one of its microbatches is a schedule of that
    one, and costs no more. So the bound of each microbatch alone holds for the replica that has it.

    An optimizer comes on top, at the end of the device's own operations or of the last ones of all.

    Parameters
    ----------
    law
        The costs.
    batch
        The lengths of each microbatch.
    replicas
        Number of replicas R.
    """
    instance = law.instance(batch)
    loads, step = loads_of(instance), instance.barrier
    optimizer: tuple[int, ...] = (0,) * instance.devices if step is None else step.optimizer  # type: ignore[assignment]
    longest = np.argsort(-loads.work.sum(1), kind="stable")[:_ALONE]
    bounds = [best_bound(law.instance([batch[m]])).value for m in longest]
    for device in range(instance.devices):
        head, tail = int(loads.head[:, device].min()), int(loads.tail[:, device].min())
        bounds.append(head + _largest_share(loads.work[:, device], replicas) + optimizer[device])
        if instance.whole:
            until = _largest_share(loads.until_last_b[:, device], replicas)
            bounds.append(head + until + tail + min(optimizer))
    return max(bounds)


def _largest_share(ticks: Ints, replicas: int) -> int:
    """Return L of `assignment_bound`: what the replica takes at least that has most of these ticks."""
    ordered = np.sort(ticks)[::-1]
    sums = np.concatenate([[0], np.cumsum(ordered)])
    found = -(-int(sums[-1]) // replicas)
    for k in range((len(ordered) - 1) // replicas + 1):
        end = k * replicas + 1
        found = max(found, int(sums[end] - sums[end - k - 1]))
    return found
