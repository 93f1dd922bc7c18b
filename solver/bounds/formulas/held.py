"""The most work that the memory of a device allows before its first B, and after its last F has begun."""

from __future__ import annotations

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind

from .knapsack import Choice, most_work
from .routes import visits


def most_forwards(instance: Instance, device: int) -> int:
    """Return an upper bound on the work of F's that have begun on `device` before its first B, in ticks.

    No memory is freed until then, so the device holds all of them at once.
    """
    choices = [
        Choice(visit.microbatches, ((instance.memory_delta(OpKind.F, s), instance.duration(OpKind.F, s)),))
        for visit in visits(instance, device)
        for s in visit.stages
    ]
    return most_work(choices, instance.memory_limit(device))


def most_held(instance: Instance, device: int) -> int:
    """Return an upper bound on the work that is left on `device` when all its F's have begun, in ticks.

    A microbatch whose F has begun holds the memory of F and leaves B and W to do. A microbatch whose B is
    done holds the memory that W frees, and leaves W to do.
    """
    choices = [
        Choice(visit.microbatches, _forms(instance, s))
        for visit in visits(instance, device)
        for s in visit.stages
    ]
    return most_work(choices, instance.memory_limit(device))


def _forms(instance: Instance, stage: int) -> tuple[tuple[int, int], ...]:
    w = instance.duration(OpKind.W, stage)
    before_b = (instance.memory_delta(OpKind.F, stage), instance.duration(OpKind.B, stage) + w)
    before_w = (-instance.memory_delta(OpKind.W, stage), w)
    return (before_b, before_w)
