"""Interleaved 1F1B: each device holds several chunks and changes between them every p microbatches.

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", arXiv:2104.04473, section 2.2, with the microbatch group of one chunk that Megatron-LM
uses by default, p microbatches.
"""

from __future__ import annotations

from tightpipe.errors import DeadlockError, NoScheduleError
from tightpipe.instance import Instance
from tightpipe.operation import OpKind
from tightpipe.schedule import Order
from tightpipe.simulate import simulate

from .family import Step, check_placement, one_forward_one_backward, order_of_steps, within_limits


def interleaved_order(instance: Instance) -> Order:
    """Return the order of interleaved 1F1B with the instance's chunks.

    Where p does not divide n the last group has the microbatches that are left.

    Raises
    ------
    InputError, InfeasibleError, NoScheduleError
        If the placement is not loop, the memory limit too small, or the last group so small that the
        warm-up, which counts on whole groups, deadlocks.
    """
    check_placement(instance, "interleaved-1f1b", "loop")
    order = order_of_steps([_device(instance, device) for device in range(instance.devices)])
    try:
        simulate(instance, order)
    except DeadlockError as error:
        n, p = instance.microbatches, instance.devices
        raise NoScheduleError(
            f"interleaved-1f1b deadlocks where the last group is too small: {n} microbatches in groups of "
            f"{p} leave {n % p}; take a multiple of {p}"
        ) from error
    return within_limits(instance, "interleaved-1f1b", order)


def _device(instance: Instance, device: int) -> list[Step]:
    p, stages = instance.devices, instance.placement.stages_on(device)
    turns = _turns(instance.microbatches, len(stages), p)
    forwards: list[Step] = [[(OpKind.F, stages[chunk], m)] for chunk, m in turns]
    backwards: list[Step] = [[(OpKind.BW, stages[-1 - chunk], m)] for chunk, m in turns]
    warm_up = 2 * (p - 1 - device) + (len(stages) - 1) * p
    return one_forward_one_backward(forwards, backwards, min(warm_up, len(turns)))


def _turns(microbatches: int, chunks: int, group: int) -> list[tuple[int, int]]:
    """Return (chunk, microbatch) in the order of the forwards: a group on each chunk, the next group."""
    return [
        (chunk, m)
        for first in range(0, microbatches, group)
        for chunk in range(chunks)
        for m in range(first, min(first + group, microbatches))
    ]
