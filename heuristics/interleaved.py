"""Interleaved 1F1B: each device holds several stages (chunks) and changes to the next one after each group.

A group is a number of consecutive microbatches, by default as many as there are devices.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", arXiv:2104.04473, section 2.2, with the microbatch group of Megatron-LM.
"""

from __future__ import annotations

from tightpipe.core.instance import Instance
from tightpipe.core.integers import check_int
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order

from .family import (
    Step,
    check_placement,
    one_forward_one_backward,
    order_of_steps,
    runnable,
    within_limits,
)


def interleaved_order(instance: Instance, group: int | None = None) -> Order:
    """Return the order of interleaved 1F1B on the chunks of the instance.

    If the number of microbatches is not a multiple of the group, the last group is smaller.

    Parameters
    ----------
    instance
        The problem, in the placement loop.
    group
        Number of microbatches that run on one chunk before the next chunk has its turn, at least p; None
        takes p, the number of devices.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not loop, the group is below p, the memory limit is too small, or the last group
        is so small that the order deadlocks, because the warm-up assumes whole groups.
    """
    family = "interleaved-1f1b"
    check_placement(instance, family, "loop")
    group = instance.devices if group is None else check_int("group", group, instance.devices)
    devices = [
        one_forward_one_backward(*steps, min(interleaved_warm_up(instance, device, group), len(steps[0])))
        for device in range(instance.devices)
        for steps in [chunk_steps(instance, device, group)]
    ]
    return within_limits(instance, family, runnable(instance, family, order_of_steps(devices), group))


def interleaved_warm_up(instance: Instance, device: int, group: int) -> int:
    """Return the number of forwards in a device's warm-up.

    In a warm-up, `group` microbatches run through one chunk before the next chunk begins. The result is not
    cut to the number of forwards that the device has in all.
    """
    chunks = instance.placement.stages_per_device
    return 2 * (instance.devices - 1 - device) + (chunks - 1) * group


def chunk_steps(instance: Instance, device: int, group: int) -> tuple[list[Step], list[Step]]:
    """Return the forwards of a device in sequence, and its fused backwards in sequence."""
    stages = instance.placement.stages_on(device)
    turns = _turns(instance.microbatches, len(stages), group)
    forwards: list[Step] = [[(OpKind.F, stages[chunk], m)] for chunk, m in turns]
    backwards: list[Step] = [[(OpKind.BW, stages[-1 - chunk], m)] for chunk, m in turns]
    return forwards, backwards


def _turns(microbatches: int, chunks: int, group: int) -> list[tuple[int, int]]:
    """Return (chunk, microbatch) of each forward: the first group on every chunk, then the next group."""
    return [
        (chunk, m)
        for first in range(0, microbatches, group)
        for chunk in range(chunks)
        for m in range(first, min(first + group, microbatches))
    ]
