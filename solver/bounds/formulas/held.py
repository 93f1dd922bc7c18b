"""Upper bounds on the work that the memory of a device allows before its first B and after its last F."""

from __future__ import annotations

from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind

from .knapsack import Choice, most_work
from .routes import visits


def most_forwards(instance: Instance, device: int) -> int:
    """Return an upper bound on the work of F's that have begun on `device` before its first B, in ticks.

    No memory is freed until then, so all these F's fit into the memory of the device at once.
    """
    choices = [
        Choice(visit.microbatches, ((instance.memory_delta(OpKind.F, s), instance.duration(OpKind.F, s)),))
        for visit in visits(instance, device)
        for s in visit.stages
    ]
    return most_work(choices, instance.memory_limit(device))


def most_held(instance: Instance, device: int, backward: int = 1, weight: int = 1) -> int:
    """Return an upper bound on the ticks of B's and W's left on `device` when all its F's have begun.

    A microbatch whose F has begun holds the memory of F and leaves B and W to do. A microbatch whose B is
    done holds the memory that W frees, and leaves W to do. All that is held fits into the memory of `device`.

    Parameters
    ----------
    instance, device
        The problem, and the device whose work is bounded.
    backward, weight
        Factors by which the ticks of each B and of each W are multiplied in the sum.
    """
    choices = [
        Choice(visit.microbatches, _forms(instance, s, backward, weight))
        for visit in visits(instance, device)
        for s in visit.stages
    ]
    return most_work(choices, instance.memory_limit(device))


def _forms(instance: Instance, stage: int, backward: int, weight: int) -> tuple[tuple[int, int], ...]:
    """Return, as (memory, work in ticks), the two forms in which the device may hold a microbatch.

    The first form is before its B, the second between its B and its W. The ticks of B are multiplied by
    `backward`, and those of W by `weight`.
    """
    w = weight * instance.duration(OpKind.W, stage)
    before_b = (instance.memory_delta(OpKind.F, stage), backward * instance.duration(OpKind.B, stage) + w)
    before_w = (-instance.memory_delta(OpKind.W, stage), w)
    return (before_b, before_w)
