"""Functions that the fixed schedule families share.

They check the placement and the memory limit of an instance, and build sequences in the manner of 1F1B.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from tightpipe.core.errors import InfeasibleError, InputError, NoScheduleError
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order
from tightpipe.core.simulate import memory_trace

Step = list[tuple[OpKind, int, int]]
_Item = TypeVar("_Item")


def check_placement(instance: Instance, family: str, placement: str) -> None:
    """Raise an error unless the instance has the placement of a family, and a schedule.

    Parameters
    ----------
    instance
        The instance to check.
    family
        Name of the family, for the message of the error.
    placement
        Name of the placement that the family can schedule.

    Raises
    ------
    InputError
        If the instance has another placement.
    InfeasibleError
        If the instance has no schedule at all.
    """
    if instance.placement.name != placement:
        raise InputError(
            f"{family} is for the placement {placement}", key="placement", value=instance.placement.name
        )
    reason = instance.infeasibility()
    if reason:
        raise InfeasibleError(reason)


def within_limits(instance: Instance, family: str, order: Order) -> Order:
    """Return `order` if it keeps within the memory limits of the instance.

    Raises
    ------
    NoScheduleError
        If a device needs more memory than its limit; the message says which limits would be enough.
    """
    trace = memory_trace(instance, order)
    peaks = [int(trace[order.rows(d)].max(initial=0)) for d in range(instance.devices)]
    limits = [instance.memory_limit(d) for d in range(instance.devices)]
    if all(limit is None or peak <= limit for peak, limit in zip(peaks, limits, strict=True)):
        return order
    one_limit = len(set(limits)) == 1
    needed, given = (max(peaks), limits[0]) if one_limit else (f"{peaks} (per device)", limits)
    raise NoScheduleError(f"{family} needs a memory limit of at least {needed}, and has {given}")


def step(instance: Instance, kind: OpKind, device: int, microbatch: int) -> Step:
    """Return the operations of one kind and microbatch on a device, each before those that wait for it.

    A device of the linear placement may hold several consecutive stages, which run as if they were one.
    """
    stages = instance.placement.stages_on(device)
    along = stages if kind is OpKind.F else reversed(stages)
    return [(kind, stage, microbatch) for stage in along]


def one_forward_one_backward(
    forwards: Sequence[_Item], backwards: Sequence[_Item], warm_up: int
) -> list[_Item]:
    """Return `warm_up` forwards, then one forward and one backward in turn, then the remaining backwards."""
    steady = len(forwards) - warm_up
    turns = zip(forwards[warm_up:], backwards[:steady], strict=True)
    return [*forwards[:warm_up], *(item for turn in turns for item in turn), *backwards[steady:]]


def order_of_steps(devices: Sequence[Sequence[Step]]) -> Order:
    """Return the order in which each device runs its steps one after another.

    A step is a list of operations that run in sequence, each given as (kind, stage, microbatch). `devices`
    has one sequence of steps for each device.
    """
    operations = np.array([op for steps in devices for step in steps for op in step], dtype=np.int64)
    lengths = [sum(map(len, steps)) for steps in devices]
    return Order(operations, np.cumsum([0, *lengths]))
