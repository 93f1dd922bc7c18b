"""Stage 0 in PyTorch, which has no B, and the fusion of adjacent backwards.

The input of the first stage needs no gradient. In torch.distributed.pipelining, the operation ``I`` of stage
0 (our B) therefore does nothing, and its ``W`` runs the whole backward: stage 0 has a W alone.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.absent import without_absent
from ..core.errors import InputError
from ..core.instance import Instance
from ..core.operation import Operation, OpKind
from ..core.retime import retime
from ..core.schedule import Order, Schedule
from ..core.validate import validate


def torch_stage0_instance(instance: Instance) -> Instance:
    """Return the instance without a B at stage 0: its W takes the time of a BW, and frees all memory."""
    costs, memory = instance.costs, instance.memory
    backward, weight = list(_stages(costs.backward)), list(_stages(costs.weight))
    backward[0], weight[0] = 0, instance.duration(OpKind.BW, 0)
    if memory is not None:
        freed, kept = list(_stages(memory.backward)), list(_stages(memory.weight))
        freed[0], kept[0] = 0, freed[0] + kept[0]
        memory = replace(memory, backward=tuple(freed), weight=tuple(kept))
    return replace(
        instance, costs=replace(costs, backward=tuple(backward), weight=tuple(weight)), memory=memory
    )


def with_torch_stage0(schedule: Schedule) -> Schedule:
    """Return the schedule of the same order, with the best start times, without the B's of stage 0.

    Raises
    ------
    InputError
        If the order exceeds a memory limit in PyTorch, because stage 0 holds its activations until W.
    """
    instance = torch_stage0_instance(schedule.instance)
    retimed = retime(instance, without_absent(instance, schedule.order))
    for violation in validate(instance, retimed):
        raise InputError(f"without a B at stage 0, as in PyTorch, the schedule is invalid: {violation}")
    return retimed


def merge_adjacent(order: Order) -> Order:
    """Return the order with each B fused with the W that follows it, if their stage and microbatch agree.

    PyTorch runs the fused backward faster than the two operations apart, but the previous stage then waits
    for the end of both.
    """
    return Order.from_slots([_merged(slots) for slots in order.to_slots()])


def _merged(slots: list[tuple[Operation, ...]]) -> list[tuple[Operation, ...]]:
    merged: list[tuple[Operation, ...]] = []
    for slot in slots:
        last = slot[-1]
        if last.kind is OpKind.W and merged and merged[-1] == (last._replace(kind=OpKind.B),):
            merged[-1] = (last._replace(kind=OpKind.BW),)
        else:
            merged.append(slot)
    return merged


def _stages(values: object) -> tuple[int, ...]:
    assert isinstance(values, tuple)  # an instance expands its costs to tuples
    return values
