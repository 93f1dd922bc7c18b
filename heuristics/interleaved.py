"""Interleaved 1F1B: each device holds several chunks and changes between them every group of microbatches.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", arXiv:2104.04473, section 2.2, with Megatron-LM's microbatch group, by default p microbatches.
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
    """Return the order of interleaved 1F1B with the instance's chunks.

    Where the group does not divide n the last one has the microbatches that are left.

    Parameters
    ----------
    instance
        In loop placement.
    group
        Microbatches that run on one chunk before the next chunk's turn, at least p; None takes p.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not loop, the group below p, the memory limit too small, or the last group
        so small that the warm-up, which counts on whole groups, deadlocks.
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
    """Return the number of forwards of the warm-up, which may exceed all that there are."""
    chunks = instance.placement.stages_per_device
    return 2 * (instance.devices - 1 - device) + (chunks - 1) * group


def chunk_steps(instance: Instance, device: int, group: int) -> tuple[list[Step], list[Step]]:
    """Return the forwards and the fused backwards of a device, each in its sequence."""
    stages = instance.placement.stages_on(device)
    turns = _turns(instance.microbatches, len(stages), group)
    forwards: list[Step] = [[(OpKind.F, stages[chunk], m)] for chunk, m in turns]
    backwards: list[Step] = [[(OpKind.BW, stages[-1 - chunk], m)] for chunk, m in turns]
    return forwards, backwards


def _turns(microbatches: int, chunks: int, group: int) -> list[tuple[int, int]]:
    """Return (chunk, microbatch) in the order of the forwards: a group on each chunk, the next group."""
    return [
        (chunk, m)
        for first in range(0, microbatches, group)
        for chunk in range(chunks)
        for m in range(first, min(first + group, microbatches))
    ]
