"""Memory limits are counted in activations, or as shares of the peak memory of 1F1B.

With p devices, the limit ``k p`` means k times p forward activations of one stage, whatever the placement.
A device of the V placement holds two stages, each half as large as the one stage that a device of the linear
placement holds. So 2p in the V placement is about as much memory as 1p in the linear one, which is what
1F1B takes. Limits of two placements can be compared as shares of the peak memory of 1F1B.
"""

from __future__ import annotations

from collections.abc import Iterable

from .instance import Instance
from .operation import OpKind


def limits_of_activations(instance: Instance, activations: int) -> tuple[int, ...]:
    """Return the memory of a number of forward activations of one stage, as a limit for each device.

    Parameters
    ----------
    instance
        The instance. It must have memory, because without it an activation has no size.
    activations
        Number of activations, at least 0. Where the stages of a device have unequal activations, the size of
        one is their mean. Only the limit itself is rounded down, so it is exact where the stages are equal.

    Returns
    -------
    tuple of int
        One limit per device, in the instance's unit of memory.
    """
    held = [instance.placement.stages_on(device) for device in range(instance.devices)]
    return tuple(activations * _activations(instance, stages) // len(stages) for stages in held)


def memory_of_1f1b(instance: Instance) -> float | None:
    """Return the ratio of the largest memory limit to the peak memory that 1F1B takes for the same model.

    The 1F1B schedule has one stage on each device. So that it runs the same model, consecutive stages of the
    instance are joined until one stage per device is left. Device i of p then holds up to min(p - i, n)
    microbatches of its joined stage, where n is the number of microbatches of one iteration, and the peak is
    the largest memory of a device. For a V with equal stages the peak is min(p, n) times the activations of
    two stages.

    Returns
    -------
    float or None
        1 where the limit equals the peak memory of 1F1B. None where the instance has no limit or its
        activations take no memory.
    """
    limits = [instance.memory_limit(device) for device in range(instance.devices)]
    known = [limit for limit in limits if limit is not None]
    peak = peak_of_1f1b(instance)
    return max(known) / peak if known and peak else None


def peak_of_1f1b(instance: Instance) -> int:
    """Return the largest memory of a device under 1F1B with one stage per device, as in `memory_of_1f1b`."""
    n = instance.microbatches // instance.iterations
    p, chunks = instance.devices, instance.placement.stages_per_device
    joined = [range(device * chunks, (device + 1) * chunks) for device in range(p)]
    return max(min(p - device, n) * _activations(instance, stages) for device, stages in enumerate(joined))


def _activations(instance: Instance, stages: Iterable[int]) -> int:
    return sum(instance.memory_delta(OpKind.F, stage) for stage in stages)
