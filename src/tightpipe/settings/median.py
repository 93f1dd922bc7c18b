"""Median costs of an instance, for tools that take only one number for each kind of cost."""

from __future__ import annotations

from dataclasses import replace
from statistics import median_low

from ..core.instance import Instance, Memory
from ..core.operation import OpKind

_KINDS = ("forward", "backward", "weight")


def with_median_costs(instance: Instance) -> Instance:
    """Return the instance with one number for each of F, B, W, BW, communication and memory limit.

    F, B, W and BW each take the median of their durations at all stages. A message between any two devices
    takes the median of the times from each device to the next. Of two numbers in the middle, the median is
    the smaller one. Every device has the smallest of the memory limits. Where stages have unequal
    activations, the limits stay as they are, since the smallest limit might be too small for the activation
    of some stage.
    """
    kinds = _KINDS if instance.costs.fused is None else (*_KINDS, "fused")
    times = {kind: median_low(getattr(instance.costs, kind)) for kind in kinds}
    neighbours = [instance.comm(device, device + 1) for device in range(instance.devices - 1)]
    comm = median_low(neighbours) if neighbours else instance.costs.comm
    costs = replace(instance.costs, comm=comm, **times)
    return replace(instance, costs=costs, memory=_with_smallest_limit(instance))


def _with_smallest_limit(instance: Instance) -> Memory | None:
    limits = [instance.memory_limit(device) for device in range(instance.devices)]
    known = [limit for limit in limits if limit is not None]
    activations = {instance.memory_delta(OpKind.F, stage) for stage in range(instance.stages)}
    if instance.memory is None or not known or len(activations) > 1:
        return instance.memory
    return replace(instance.memory, limit=min(known))
