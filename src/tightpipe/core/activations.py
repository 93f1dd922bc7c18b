"""Memory limits in activations, the unit in which methods are compared, and as shares of what 1F1B takes.

``k p`` of memory are k times p forward activations of one stage of the instance, p being its number of
devices, whatever the placement. A device of the V placement holds two stages, so that a limit of 2p there
is about the memory that 1F1B takes for the same model, with one stage on each device: that is 1p in the
linear placement. The share of 1F1B's memory therefore says which limits of two placements are equal.
"""

from __future__ import annotations

from collections.abc import Iterable

from .instance import Instance
from .operation import OpKind


def limits_of_activations(instance: Instance, activations: int) -> tuple[int, ...]:
    """Return the memory limit of each device that is worth so many forward activations of one stage.

    Parameters
    ----------
    instance
        The instance; it must have memory.
    activations
        Their number, at least 0. Where the stages of a device have unequal activations, one counts as
        their mean; the product is rounded down once, so that it is exact where they are equal.

    Returns
    -------
    tuple of int
        One limit per device, in the instance's unit of memory.
    """
    held = [instance.placement.stages_on(device) for device in range(instance.devices)]
    return tuple(activations * _activations(instance, stages) // len(stages) for stages in held)


def memory_of_1f1b(instance: Instance) -> float | None:
    """Return the largest memory limit of a device over the peak memory that 1F1B has for the same model.

    1F1B is taken with one stage on each device: stages that follow each other are joined, so that each
    device has as many as it holds here of one direction. Device i of p then holds up to min(p - i, n)
    microbatches of its joined stage, n being the microbatches of one iteration; the peak is the largest
    of these. For a V with equal stages that is min(p, n) times the activations of two stages.

    Returns
    -------
    float or None
        1 where the limit is what 1F1B takes; None without a limit, or where activations take no memory.
    """
    limits = [instance.memory_limit(device) for device in range(instance.devices)]
    known = [limit for limit in limits if limit is not None]
    n = instance.microbatches // instance.iterations
    p, chunks = instance.devices, instance.placement.stages_per_device
    joined = [range(device * chunks, (device + 1) * chunks) for device in range(p)]
    peak = max(min(p - device, n) * _activations(instance, stages) for device, stages in enumerate(joined))
    return max(known) / peak if known and peak else None


def _activations(instance: Instance, stages: Iterable[int]) -> int:
    return sum(instance.memory_delta(OpKind.F, stage) for stage in stages)
