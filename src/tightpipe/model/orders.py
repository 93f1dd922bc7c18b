"""Orders for instances with slices or without some B's or W's, and orders from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..base.errors import DeadlockError, InputError, NoScheduleError
from .costs import Memory, PerStage, sums
from .instance import Instance
from .microbatches import ClassTimes, with_times
from .operation import COMPUTES, Operation, OpKind
from .schedule import Order, Schedule, is_pair
from .simulate import retime
from .validate import Violation, validate


def order_of(
    instance: Instance,
    make: Callable[[Instance], Order],
    *,
    slices: bool = False,
    otherwise: Callable[[Instance], Order] | None = None,
) -> Order:
    """Return the order that a function makes for an instance, if need be for a counterpart that it knows.

    Heuristics schedule F, B and W of every stage. Where a stage has no B or no W, they schedule the instance
    in which such an operation takes one tick and no memory, and the operation is then left out.

    Most heuristics know no slices. They schedule the instance with whole microbatches, each of whose
    operations is then cut into its slices, which run one after another; `slices` says that the function knows
    them. Where the complete counterpart has too little memory, the order is that of the function `otherwise`;
    raise a NoScheduleError if there is none.
    """
    if instance.slices and not slices:
        return _cut(instance, order_of(_uncut(instance), make, otherwise=otherwise))
    if instance.complete:
        return make(instance)
    try:
        known = _completed(instance)
    except NoScheduleError:
        if otherwise is None or instance.infeasibility() is not None:
            raise
        return otherwise(instance)
    return without_absent(instance, make(known))


def _uncut(instance: Instance) -> Instance:
    """Return the instance whose microbatches are whole: an operation takes as long as its slices together.

    It takes and frees as much memory as they do. An F that holds memory only while it runs takes as much as
    that of the largest slice, as the slices do one after another.
    """
    slices = [one for one in instance.class_costs if one.route == 0]
    costs: Any = instance.costs

    def total(values: Iterable[PerStage]) -> PerStage:
        return tuple(map(sum, zip(*values, strict=True)))

    forward, backward, weight, fused = (total(one.duration[kind] for one in slices) for kind in COMPUTES)
    memory = instance.memory
    if memory is not None:
        held, freed, kept = (total(one.delta[kind] for one in slices) for kind in COMPUTES[:3])
        passing = tuple(map(max, zip(*(one.passing for one in slices), strict=True)))
        memory = Memory(sums(held, passing), freed, kept, memory.limit)
    overlapped = costs.overlapped and total([costs.overlapped] * len(slices))
    pairs = costs.pairs and [total([row] * len(slices)) for row in costs.pairs]
    costs = replace(costs, forward=forward, backward=backward, weight=weight)
    costs = replace(costs, fused=fused, overlapped=overlapped, pairs=pairs)
    return replace(instance, costs=costs, memory=memory, slices=(), offload=None)


def _cut(instance: Instance, order: Order) -> Order:
    """Return an order of whole microbatches with each operation cut into its slices, one after another.

    F's run from the first slice to the last, all others from the last to the first. Of a pair, the slices run
    in pairs.
    """
    k, rows = instance.slice_count, np.arange(len(order))
    second = np.append(0, order.pairs[:-1])  # 1 at the second operation of a slot
    turn = np.tile(np.arange(k), len(order))
    row = np.repeat(rows, k)
    kind, stage, microbatch = order.operations[row].T
    unit = microbatch * k + np.where(kind == OpKind.F, turn, k - 1 - turn)
    sequence = np.lexsort((second[row], turn, (rows - second)[row]))
    operations = np.stack([kind, stage, unit], axis=1)[sequence]
    return Order(operations, order.offsets * k, order.pairs[row][sequence])


def without_absent(instance: Instance, order: Order) -> Order:
    """Return an order without the operations of stages that have no B or no W.

    Of a BW at a stage without B, the W is left, or the reverse. Operations of stages that the instance does
    not have stay.
    """
    if instance.complete:
        return order
    slots = [[left for slot in device for left in _left(instance, slot)] for device in order.to_slots()]
    return Order.from_slots(slots)


def _completed(instance: Instance) -> Instance:
    """Return the instance with a B and a W at every stage; those that were absent take one tick each.

    An F that holds memory only while it runs holds none in the result. The limit of its device is lower by
    that memory instead, so that it fits beside whatever the device holds.
    """

    def times(c: int) -> ClassTimes:
        forward, b, w, fused = instance.class_costs[c].duration
        forward, backward, weight = (tuple(max(1, ticks) for ticks in kind) for kind in (forward, b, w))
        both = [x > 0 and y > 0 for x, y in zip(b, w, strict=True)]
        apart = sums(backward, weight)
        together = (f if x else a for f, x, a in zip(fused, both, apart, strict=True))
        return forward, backward, weight, tuple(together)

    def held(c: int) -> Memory:
        return replace(instance.class_costs[c].memory, forward=instance.class_costs[c].delta[OpKind.F])

    costs: Any = instance.costs
    if costs.pairs:
        forward, _, _, fused = times(0)
        rows = zip(costs.pairs, forward, strict=True)
        pairs = [[known or f + b for known, b in zip(row, fused, strict=True)] for row, f in rows]
        costs = replace(costs, pairs=pairs)
    memory = instance.memory and replace(instance.memory, limit=_lower_limits(instance))
    return with_times(instance, times, held, costs=costs, memory=memory, offload=None)


def _lower_limits(instance: Instance) -> tuple[int, ...] | None:
    limits = []
    for device in range(instance.devices):
        limit, held = instance.memory_limit(device), instance.placement.stages_on(device)
        if limit is None:
            return None
        classes = range(len(instance.class_counts))
        passing = max(instance.memory_while_running(s, c) for s in held for c in classes)
        needed = instance.held_by_one(device)
        if limit - passing < needed:
            raise NoScheduleError(
                f"device {device} needs {passing} for an F alone, beside {needed} for one microbatch, "
                f"and its limit is {limit}"
            )
        limits.append(limit - passing)
    return tuple(limits)


def torch_stage0_instance(instance: Instance) -> Instance:
    """Return the instance as PyTorch runs it, without a B at stage 0.

    The W there takes the time of a BW, and frees all memory.
    """

    def times(c: int) -> ClassTimes:
        forward, backward, weight, fused = instance.class_costs[c].duration
        return forward, (0, *backward[1:]), (fused[0], *weight[1:]), fused

    def memory(c: int) -> Memory:
        _, freed, kept, all_freed = instance.class_costs[c].delta
        held = instance.class_costs[c].memory
        return replace(held, backward=(0, *freed[1:]), weight=(all_freed[0], *kept[1:]))

    return with_times(instance, times, memory)


def _left(instance: Instance, slot: tuple[Operation, ...]) -> list[tuple[Operation, ...]]:
    """Return what is left of a slot if the instance lacks operations, as slots.

    Of a BW whose stage has no B, the W is left, or the reverse. An F does not run together with a W.
    """
    found = []
    for op in slot:
        kinds = (OpKind.B, OpKind.W) if op.kind is OpKind.BW else (op.kind,)
        known = op.stage < instance.stages and op.microbatch < instance.units
        there = [
            kind
            for kind in kinds
            if not known or instance.has(kind, op.stage, instance.mb_class(op.microbatch))
        ]
        if len(there) == len(kinds):
            found.append(op)
        elif there:
            found.append(op._replace(kind=there[0]))
    together = len(found) == 2 and is_pair(found[0].kind, found[1].kind)
    return [tuple(found)] if together else [(op,) for op in found]


def accepted(instance: Instance, order: Order) -> Schedule:
    """Return the schedule of least cost that runs an order, checked against every rule of the model.

    Raise an InputError if operations are missing, run twice or on a device that is not theirs, or wait for
    each other, or a memory limit is exceeded; the message names the first rule that is broken.
    """
    try:
        schedule = retime(instance, order)
    except (DeadlockError, InputError) as error:
        broken = _misplaced(instance, order) or error  # a missing operation explains a deadlock
        raise InputError(f"the order is invalid: {broken}") from None
    for violation in validate(instance, schedule):
        raise InputError(f"the order is invalid: {violation}")
    return schedule


def _misplaced(instance: Instance, order: Order) -> Violation | None:
    """Return the first violation of the rules `complete` and `placement`, which do not depend on times."""
    never = np.zeros(len(order), np.int64)
    violations = validate(instance, Schedule(instance, order, never, never))
    return next((v for v in violations if v.rule in ("complete", "placement")), None)
