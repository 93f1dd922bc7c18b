"""What the fixed schedule families share: where they apply, which limit they need, 1F1B sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from tightpipe.core.errors import DeadlockError, InfeasibleError, InputError, NoScheduleError
from tightpipe.core.instance import Instance
from tightpipe.core.operation import OpKind
from tightpipe.core.schedule import Order
from tightpipe.core.simulate import memory_trace, simulate

Step = list[tuple[OpKind, int, int]]
_Item = TypeVar("_Item")


def check_placement(instance: Instance, family: str, placement: str) -> None:
    """Refuse an instance that has no schedule, or none of this family.

    Raises
    ------
    InputError
        If the instance has another placement than the family's.
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
    """Return `order` if its memory fits the instance's limits.

    Raises
    ------
    NoScheduleError
        If it does not; the message says which limits would do.
    """
    trace = memory_trace(instance, order)
    peaks = [int(trace[order.rows(d)].max(initial=0)) for d in range(instance.devices)]
    limits = [instance.memory_limit(d) for d in range(instance.devices)]
    if all(limit is None or peak <= limit for peak, limit in zip(peaks, limits, strict=True)):
        return order
    one_limit = len(set(limits)) == 1
    needed, given = (max(peaks), limits[0]) if one_limit else (f"{peaks} (per device)", limits)
    raise NoScheduleError(f"{family} needs a memory limit of at least {needed}, and has {given}")


def runnable(instance: Instance, family: str, order: Order, group: int) -> Order:
    """Return `order` if it runs to its end.

    Raises
    ------
    NoScheduleError
        If it deadlocks because the last of its groups of microbatches is too small.
    """
    try:
        simulate(instance, order)
    except DeadlockError as error:
        n = instance.microbatches
        raise NoScheduleError(
            f"{family} deadlocks where the last group is too small: {n} microbatches in groups of "
            f"{group} leave {n % group}; take a multiple of {group}"
        ) from error
    return order


def step(instance: Instance, kind: OpKind, device: int, microbatch: int) -> Step:
    """Return the operations of one kind and microbatch on a device, in the order of their stages.

    A device of the linear placement may hold several stages in a row; they run as if they were one.
    """
    stages = instance.placement.stages_on(device)
    along = stages if kind is OpKind.F else reversed(stages)
    return [(kind, stage, microbatch) for stage in along]


def one_forward_one_backward(
    forwards: Sequence[_Item], backwards: Sequence[_Item], warm_up: int
) -> list[_Item]:
    """Run `warm_up` forwards, then forwards and backwards in turn, then the backwards that are left."""
    steady = len(forwards) - warm_up
    turns = zip(forwards[warm_up:], backwards[:steady], strict=True)
    return [*forwards[:warm_up], *(item for turn in turns for item in turn), *backwards[steady:]]


def order_of_steps(devices: Sequence[Sequence[Step]]) -> Order:
    """Join the steps of each device."""
    operations = np.array([op for steps in devices for step in steps for op in step], dtype=np.int64)
    lengths = [sum(map(len, steps)) for steps in devices]
    return Order(operations, np.cumsum([0, *lengths]))
