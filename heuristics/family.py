"""Fixed schedules with one stage per device: GPipe, 1F1B, eager 1F1B, hand-made zero-bubble schedules.

- **GPipe** runs all forwards and then all backwards.
- **1F1B**: after a warm-up, every device runs one forward and one backward in turn. Device i of p warms up
  with p - 1 - i forwards. In the eager form it warms up with twice as many, which hides communication behind
  computation but takes more memory.
- **ZB-H1 and ZB-H2** are 1F1B with the backward split into B and W, and the W's postponed. A W is *pending*
  when its B has run but the W has not. In ZB-H1, device i of p keeps up to i W's pending, so that every
  device holds about as much memory as device 0 of 1F1B. ZB-H2 doubles the warm-up and the number of pending
  W's. Schedule visualisers draw ZB-H1 under the name "ZB-1P", whereas ZB-1p in the tables of the paper is the
  automatic schedule at a memory limit of p activations.

- **Seq1F1B** is 1F1B in which a microbatch runs slice by slice: forwards from its first slice to its last,
  backwards from its last slice to its first. With k slices, each device warms up with k - 1 forwards more.

A function for a family raises an `InputError` if the placement is not that of the family, an
`InfeasibleError` if the instance has no schedule at all, and a `NoScheduleError` if the memory limit is too
small. The first functions check that, and build sequences in the manner of 1F1B; other files use them too.
The papers of the families stand in `registry`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from tightpipe.base.errors import InfeasibleError, InputError, NoScheduleError
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Order
from tightpipe.model.simulate import memory_trace, retime

Step = list[tuple[OpKind, int, int]]
_Item = TypeVar("_Item")


def check_placement(instance: Instance, family: str, placement: str) -> None:
    """Raise an InputError unless the instance has the placement of a family; also as `refuse_infeasible`."""
    if instance.placement.name != placement:
        raise InputError(
            f"{family} is for the placement {placement}", key="placement", value=instance.placement.name
        )
    refuse_infeasible(instance)


def refuse_infeasible(instance: Instance) -> None:
    """Raise an InfeasibleError if the instance has no schedule at all."""
    reason = instance.infeasibility()
    if reason:
        raise InfeasibleError(reason)


def cheapest(instance: Instance, orders: Sequence[Order]) -> Order:
    """Return the order that costs least at its best start times, the first of several."""
    return orders[0] if len(orders) == 1 else min(orders, key=lambda order: cost(retime(instance, order)))


def within_limits(instance: Instance, family: str, order: Order) -> Order:
    """Return `order` if it keeps within the memory limits of the instance.

    Else raise a NoScheduleError, whose message says which limits would be enough.
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


def backward_units(instance: Instance) -> list[int]:
    """Return the units in the sequence of backwards: of each microbatch in turn, the last slice first."""
    k = instance.slice_count
    return [m * k + j for m in range(instance.microbatches) for j in reversed(range(k))]


def one_forward_one_backward(
    forwards: Sequence[_Item], backwards: Sequence[_Item], warm_up: int
) -> list[_Item]:
    """Return `warm_up` forwards, then one forward and one backward in turn, then the remaining backwards."""
    steady = len(forwards) - warm_up
    turns = zip(forwards[warm_up:], backwards[:steady], strict=True)
    return [*forwards[:warm_up], *(item for turn in turns for item in turn), *backwards[steady:]]


def order_of_steps(devices: Sequence[Sequence[Step]]) -> Order:
    """Return the order in which each device runs its steps, of operations (kind, stage, microbatch)."""
    operations = np.array([op for steps in devices for step in steps for op in step], dtype=np.int64)
    lengths = [sum(map(len, steps)) for steps in devices]
    return Order(operations, np.cumsum([0, *lengths]))


def gpipe_order(instance: Instance) -> Order:
    """Return the order of GPipe, in which every device holds the activations of all microbatches."""
    check_placement(instance, "gpipe", "linear")
    turns = [(kind, m) for kind in (OpKind.F, OpKind.BW) for m in range(instance.microbatches)]
    devices = [[step(instance, kind, device, m) for kind, m in turns] for device in range(instance.devices)]
    return within_limits(instance, "gpipe", order_of_steps(devices))


def one_f_one_b_order(instance: Instance) -> Order:
    """Return the order of 1F1B; device i holds at most min(p - i, n) activations.

    Several iterations run without a flush between them. Two versions of the weights are then enough if an
    iteration has at least as many microbatches as there are devices; else there is a `NoScheduleError`.
    """
    return _order(instance, "1f1b", 1)


def eager_one_f_one_b_order(instance: Instance) -> Order:
    """Return the order of eager 1F1B; device i holds at most min(2(p - i) - 1, n) activations.

    Several iterations run as those of 1F1B do, if each has more microbatches than there are devices.
    """
    return _order(instance, "eager-1f1b", 2)


def seq_one_f_one_b_order(instance: Instance) -> Order:
    """Return the order of Seq1F1B; device i holds at most min(p - i + k - 1, nk) slices.

    With whole microbatches it is the order of 1F1B.
    """
    return _order(instance, "seq-1f1b", 1)


def _order(instance: Instance, family: str, per_hop: int, *, split: bool = False) -> Order:
    check_placement(instance, family, "linear")
    p, n, k = instance.devices, instance.units, instance.slice_count
    least, block = p + per_hop - 1, n // instance.iterations
    if instance.iterations > 1 and least > block:
        rule = f"needs at least {least} microbatches per iteration on {p} devices, not {block}"
        raise NoScheduleError(f"{family} without a flush {rule}: two versions of the weights must do")
    devices = []
    for device in range(p):
        warm_up = min(per_hop * (p - 1 - device) + k - 1, block)
        forwards = [step(instance, OpKind.F, device, unit) for unit in range(n)]
        if split:
            backwards = _split_backwards(instance, device, n - warm_up, per_hop * device)
        else:
            backwards = [step(instance, OpKind.BW, device, unit) for unit in backward_units(instance)]
        devices.append(one_forward_one_backward(forwards, backwards, warm_up))
    return within_limits(instance, family, order_of_steps(devices))


def zb_h1_order(instance: Instance) -> Order:
    """Return the order of ZB-H1; device i holds at most p - i activations and i pending W's."""
    return _order(instance, "zb-h1", 1, split=True)


def zb_h2_order(instance: Instance) -> Order:
    """Return the order of ZB-H2; device i holds at most 2(p - i) - 1 activations and 2i pending W's."""
    return _order(instance, "zb-h2", 2, split=True)


def seq_zero_bubble_order(instance: Instance) -> Order:
    """Return the order of ZB-H1 by slices; device i holds at most p - i + k - 1 slices and i pending W's."""
    return _order(instance, "seq-zb", 1, split=True)


def _split_backwards(instance: Instance, device: int, steady: int, kept_back: int) -> list[Step]:
    """Return one step for each unit: its B, and the W's that run directly after that B.

    Of W's, `kept_back` stay pending in the steady state, which has `steady` B's. In the cool-down one follows
    each B, and the rest follow the last B.
    """
    units, done = backward_units(instance), 0
    steps = []
    for i, unit in enumerate(units):
        turn = step(instance, OpKind.B, device, unit)
        if i >= steady or i - done >= kept_back:
            turn += step(instance, OpKind.W, device, units[done])
            done += 1
        steps.append(turn)
    for unit in units[done:]:
        steps[-1] += step(instance, OpKind.W, device, unit)
    return steps
