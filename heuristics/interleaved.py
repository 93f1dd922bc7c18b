"""Interleaved 1F1B, and forms of 1F1B whose steady state runs an F and an earlier BW together.

In interleaved 1F1B, each device holds several stages (chunks) and changes to the next one after each group. A
group is a number of consecutive microbatches. Frameworks run groups of at least p microbatches, because a
smaller one cannot keep p devices busy, and the last group may have fewer than the others, but at least p as
well. Then no order deadlocks. PyTorch's `ScheduleInterleaved1F1B` makes as many groups as it can and refuses
a number of microbatches that cannot be divided into that many equal groups. Megatron-LM takes the number in a
group from ``--microbatch-group-size-per-virtual-pipeline-stage``, by default p, and runs every number of
microbatches of at least p under some value of that option.

The overlapped forms of 1F1B and of interleaved 1F1B run pairs: an F together with the BW of an earlier
microbatch. Their steady state has a pair where the plain form has an F and a BW in turn. A pair starts only
when both of its operations are ready, so the warm-up of every device has one forward more than in eager 1F1B,
or in interleaved 1F1B. Pairs pay off where the instance's `overlapped` duration is below the sum of the two
durations, because the communication of one operation hides behind the computation of the other.

References
----------
Interleaved 1F1B: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM", arXiv:2104.04473, section 2.2, with the microbatch groups of Megatron-LM and PyTorch. Pairs: the
combined 1F1B of Megatron-Core's ``--overlap-moe-expert-parallel-comm``; DeepSeek-AI, arXiv:2412.19437,
section 3.2.1. The functions for families raise errors as those of `family` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import nsmallest

from tightpipe.base.errors import InputError, NoScheduleError, check_int
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.operation import Operation, OpKind
from tightpipe.model.schedule import Order
from tightpipe.model.simulate import simulate
from tightpipe.params.search import InterleavedParams
from tightpipe.params.solve_params import DEFAULTS

from .family import (
    Step,
    backward_units,
    cheapest,
    check_placement,
    one_forward_one_backward,
    order_of_steps,
    step,
    within_limits,
)


def interleaved_order(
    instance: Instance, group: int | None = None, params: InterleavedParams = DEFAULTS.interleaved
) -> Order:
    """Return the order of interleaved 1F1B on the chunks of the instance.

    A `group` is the number of microbatches that run on one chunk before the next chunk has its turn, one of
    `group_sizes`, or all of them together. With None, the number is chosen as `_in_groups` says.
    """
    return _in_groups(instance, "interleaved-1f1b", _order, group, params)


def interleaved_orders(instance: Instance) -> list[Order]:
    """Return the orders of all group sizes among which `interleaved_order` chooses."""
    n = instance.microbatches
    return [_order(instance, size) for size in _sizes_to_try(instance.devices, n, n)]


def _in_groups(
    instance: Instance,
    family: str,
    make: Callable[[Instance, int], Order],
    group: int | None,
    params: InterleavedParams,
) -> Order:
    """Return the order of the group size that a framework takes, or of the best size that it can be told.

    If the microbatches can be divided into n // p equal groups, PyTorch runs these, and so does Megatron-LM
    by default where p divides n. Otherwise the result is the cheapest order, within the memory limit, of
    those that Megatron-LM runs. Of more than `most_sizes`, only the smallest one is tried, and those that
    make half as many groups, a quarter, and so on. Larger groups must not take less memory. A `group` size
    that is asked for is taken.
    """
    check_placement(instance, family, "loop")
    if group is not None:
        return within_limits(instance, family, make(instance, _checked_group(instance, group)))
    first, *larger = _sizes_to_try(instance.devices, instance.microbatches, params.most_sizes)
    orders = [within_limits(instance, family, make(instance, first))]
    for size in larger:
        try:
            orders.append(within_limits(instance, family, make(instance, size)))
        except NoScheduleError:
            break
    if len(orders) == 1:
        return orders[0]
    best = nsmallest(params.retimed, orders, key=lambda order: cost(simulate(instance, order)))
    return cheapest(instance, best)


def group_sizes(devices: int, microbatches: int) -> list[int]:
    """Return the group sizes that Megatron-LM runs, smallest first.

    All groups have at least p microbatches, including the last one. The smallest size is also PyTorch's, if
    PyTorch accepts the number of microbatches. PyTorch also runs fewer than p microbatches; these are one
    group, and its size counts as p.
    """
    sizes = range(devices, microbatches + 1)
    return [size for size in sizes if not 0 < microbatches % size < devices] or [devices]


def _sizes_to_try(p: int, n: int, most: int) -> list[int]:
    sizes = group_sizes(p, n)
    if n % max(1, n // p) == 0:
        return sizes[:1]
    if len(sizes) <= most:
        return sizes
    halved = [len(range(0, n, sizes[0])) >> half for half in range(1, n.bit_length())]
    return sorted({sizes[0], *(-(-n // groups) for groups in halved if groups)} & set(sizes))


def _checked_group(instance: Instance, group: int) -> int:
    p, n = instance.devices, instance.microbatches
    check_int("group", group, p)
    if group < n and group not in group_sizes(p, n):
        rule = f"leaves a last group of {n % group} of the {n} microbatches, which must be 0 or at least {p}"
        raise InputError(rule, key="group", value=group)
    return group


def _order(instance: Instance, group: int) -> Order:
    devices = []
    for device in range(instance.devices):
        forwards, backwards = _chunk_steps(instance, device, group)
        warm_up = min(_warm_up(instance, device, group), len(forwards))
        devices.append(one_forward_one_backward(forwards, backwards, warm_up))
    return order_of_steps(devices)


def _warm_up(instance: Instance, device: int, group: int) -> int:
    """Return the number of forwards in a device's warm-up, even if it has fewer in all."""
    chunks = instance.placement.stages_per_device
    return 2 * (instance.devices - 1 - device) + (chunks - 1) * group + instance.slice_count - 1


def _chunk_steps(instance: Instance, device: int, group: int) -> tuple[list[Step], list[Step]]:
    """Return the forwards, and the fused backwards, of a device in sequence; a group has `group` units."""
    stages, units = instance.placement.stages_on(device), backward_units(instance)
    turns = _turns(instance.units, len(stages), group)
    forwards: list[Step] = [[(OpKind.F, stages[chunk], i)] for chunk, i in turns]
    backwards: list[Step] = [[(OpKind.BW, stages[-1 - chunk], units[i])] for chunk, i in turns]
    return forwards, backwards


def _turns(units: int, chunks: int, group: int) -> list[tuple[int, int]]:
    """Return the chunk and the turn of each forward: the first group on every chunk, then the next group."""
    return [
        (chunk, i)
        for first in range(0, units, group)
        for chunk in range(chunks)
        for i in range(first, min(first + group, units))
    ]


def seq_interleaved_order(instance: Instance) -> Order:
    """Return the order of interleaved 1F1B slice by slice, in groups with a slice for each device or more."""
    family = "seq-interleaved"
    check_placement(instance, family, "loop")
    k = instance.slice_count
    least = -(-instance.devices // k)  # microbatches with a slice for each device
    return within_limits(instance, family, _order(instance, k * group_sizes(least, instance.microbatches)[0]))


Slot = tuple[Operation, ...]


def overlapped_one_f_one_b_order(instance: Instance) -> Order:
    """Return the order of 1F1B with pairs; device i holds at most min(2(p - i), n) activations."""
    family = "1f1b-overlap"
    check_placement(instance, family, "linear")
    p, n = instance.devices, instance.microbatches
    devices = [
        _with_pairs(
            [step(instance, OpKind.F, device, m) for m in range(n)],
            [step(instance, OpKind.BW, device, m) for m in range(n)],
            2 * (p - 1 - device) + 1,
        )
        for device in range(p)
    ]
    return within_limits(instance, family, Order.from_slots(devices))


def overlapped_interleaved_order(
    instance: Instance, group: int | None = None, params: InterleavedParams = DEFAULTS.interleaved
) -> Order:
    """Return the order of interleaved 1F1B with pairs, in groups as those of `interleaved_order`."""
    return _in_groups(instance, "interleaved-overlap", _order_with_pairs, group, params)


def _order_with_pairs(instance: Instance, group: int) -> Order:
    devices = [
        _with_pairs(*_chunk_steps(instance, device, group), _warm_up(instance, device, group) + 1)
        for device in range(instance.devices)
    ]
    return Order.from_slots(devices)


def _with_pairs(forwards: Sequence[Step], backwards: Sequence[Step], warm_up: int) -> list[Slot]:
    """Return `warm_up` forwards, then pairs of a forward and a backward, then the remaining backwards."""
    first, steady = forwards[:warm_up], max(0, len(forwards) - warm_up)
    pairs = [
        (Operation(*forward), Operation(*backward))
        for ahead, behind in zip(forwards[warm_up:], backwards, strict=False)
        for forward, backward in zip(ahead, behind, strict=True)
    ]
    return [*_alone(first), *pairs, *_alone(backwards[steady:])]


def _alone(steps: Sequence[Step]) -> list[Slot]:
    return [(Operation(*op),) for one in steps for op in one]
