"""Orders for instances with slices or without some B's or W's, and orders from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import accumulate
from typing import Any, cast

import numpy as np

from ..base.errors import DeadlockError, InputError, NoScheduleError
from .costs import Memory, MicrobatchClass, Part, PerStage, sums
from .instance import Instance
from .operation import Operation, OpKind
from .schedule import Order, Schedule, is_pair
from .simulate import retime
from .validate import Violation, validate


def order_of(instance: Instance, make: Callable[[Instance], Order], *, slices: bool = False) -> Order:
    """Return the order that a function makes for an instance, if need be for a counterpart that it knows.

    Heuristics schedule F, B and W of every stage. Where a stage has no B or no W, they schedule the instance
    in which such an operation takes one tick and no memory, and the operation is then left out.

    Most heuristics know no slices. They schedule the instance with whole microbatches, each of whose
    operations is then cut into its slices, which run one after another. Raise a NoScheduleError if the
    complete counterpart has too little memory.

    - `make`: returns an order of a complete instance.
    - `slices`: whether the function knows slices.
    """
    if instance.slices and not slices:
        return _cut(instance, order_of(_uncut(instance), make))
    if instance.complete:
        return make(instance)
    return without_absent(instance, make(_completed(instance)))


def _uncut(instance: Instance) -> Instance:
    """Return the instance whose microbatches are whole: an operation takes as long as its slices together.

    It takes and frees as much memory as they do. An F that holds memory only while it runs takes as much as
    that of the largest slice, as the slices do one after another.
    """
    parts, memory, together = instance.slices, instance.memory, instance.costs.overlapped

    def sums(values: Iterable[Any]) -> PerStage:
        return tuple(map(sum, zip(*values, strict=True)))

    forward, backward, weight, fused = (
        sums(getattr(one, key) for one in parts) for key in ("forward", "backward", "weight", "fused")
    )
    if memory is not None:
        held = {
            key: sums(getattr(one.memory, key) for one in parts) for key in ("forward", "backward", "weight")
        }
        classes = range(len(parts))
        passing = (max(instance.memory_while_running(s, c) for c in classes) for s in range(instance.stages))
        held["forward"] = tuple(
            take if b + w else alone
            for take, alone, b, w in zip(held["forward"], passing, backward, weight, strict=True)
        )
        memory = replace(memory, **held)
    if together is not None:
        together = tuple(len(parts) * pair for pair in together)  # type: ignore[union-attr]
    rows: Any = instance.costs.pairs or ()
    pairs = [[len(parts) * pair for pair in row] for row in rows] or None
    costs = replace(instance.costs, forward=forward, backward=backward, weight=weight)
    costs = replace(costs, fused=fused, overlapped=together, pairs=pairs)
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
    costs, memory = instance.costs, instance.memory
    if memory is not None:
        memory = replace(memory, limit=_lower_limits(instance))
    if not (instance.classes or instance.slices):
        backward, weight, fused, held = _completed_costs(instance, 0)
        apart = [[f + b for b in fused] for f in costs.forward]  # type: ignore[union-attr]
        pairs = costs.pairs and [
            [known or sums for known, sums in zip(*rows, strict=True)]
            for rows in zip(costs.pairs, apart, strict=True)  # type: ignore[arg-type]
        ]
        costs = replace(costs, backward=backward, weight=weight, fused=fused, pairs=pairs)
        memory = memory and replace(memory, forward=held)
        return replace(instance, costs=costs, memory=memory, offload=None)
    firsts = accumulate((one.count for one in instance.classes), initial=0)
    classes = [_completed_part(instance, one, m) for one, m in zip(instance.classes, firsts, strict=False)]
    slices = [_completed_part(instance, one, j) for j, one in enumerate(instance.slices)]
    return replace(instance, costs=costs, memory=memory, classes=classes, slices=slices, offload=None)


def _completed_part(instance: Instance, one: Part, unit: int) -> Part:
    """Return a class or a slice with all operations; `unit` is one of its units."""
    backward, weight, fused, held = _completed_costs(instance, instance.mb_class(unit))
    kept = one.memory and replace(one.memory, forward=held)
    return replace(one, backward=backward, weight=weight, fused=fused, memory=kept)


def _completed_costs(instance: Instance, mb_class: int) -> tuple[PerStage, PerStage, PerStage, PerStage]:
    """Return the times of B, W and BW of a class with all of them, and the memory that its F's hold."""
    stages = range(instance.stages)
    backward, weight = (
        tuple(max(1, instance.duration(kind, s, mb_class)) for s in stages) for kind in (OpKind.B, OpKind.W)
    )
    fused = tuple(
        instance.duration(OpKind.BW, s, mb_class)
        if instance.has(OpKind.BW, s, mb_class)
        else backward[s] + weight[s]
        for s in stages
    )
    return backward, weight, fused, tuple(instance.memory_delta(OpKind.F, s, mb_class) for s in stages)


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
    costs, memory = instance.costs, instance.memory
    together = (costs.fused or sums(_stages(costs.backward), _stages(costs.weight)))[0]  # type: ignore[index]
    backward, weight = _without_first(costs.backward, costs.weight, together)
    costs = replace(costs, backward=backward, weight=weight)
    firsts = accumulate((one.count for one in instance.classes), initial=0)
    classes = [_torch_part(instance, one, m) for one, m in zip(instance.classes, firsts, strict=False)]
    return replace(instance, costs=costs, memory=memory and _at_weight(memory), classes=classes)


def _torch_part(instance: Instance, one: MicrobatchClass, first: int) -> MicrobatchClass:
    """Return a class without a B at stage 0; `first` is its first microbatch."""
    together = instance.duration_of(Operation(OpKind.BW, 0, first))
    backward, weight = _without_first(one.backward, one.weight, together)
    return replace(one, backward=backward, weight=weight, memory=one.memory and _at_weight(one.memory))


def _stages(values: object) -> PerStage:
    return cast(PerStage, values)  # expanded by the instance


def _without_first(backward: object, weight: object, together: int) -> tuple[PerStage, PerStage]:
    """Return the times of B and W with no B at stage 0, where the W takes `together`."""
    return (0, *_stages(backward)[1:]), (together, *_stages(weight)[1:])


def _at_weight(memory: Memory) -> Memory:
    """Return the memory that the operations take and free if at stage 0 the W frees all."""
    freed, kept = _stages(memory.backward), _stages(memory.weight)
    return replace(memory, backward=(0, *freed[1:]), weight=(freed[0] + kept[0], *kept[1:]))


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
    """Give an order its best start times and check the schedule against every rule of the model.

    Return the schedule of least cost that runs the operations in this order. Raise an InputError if the order
    breaks a rule: operations are missing, run twice, run on a device that is not theirs, or wait for each
    other, or a memory limit is exceeded. The message names the first rule that is broken.

    - `instance`: the problem that the order is meant for.
    - `order`: any order, which may be invalid.
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
    """Return the first violation of the rules `complete` and `placement`, which do not depend on times.

    There is none if the order obeys both rules.
    """
    never = np.zeros(len(order), np.int64)
    violations = validate(instance, Schedule(instance, order, never, never))
    return next((v for v in violations if v.rule in ("complete", "placement")), None)
