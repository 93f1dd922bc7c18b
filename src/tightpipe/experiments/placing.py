"""The same model is placed anew: its stages are joined or cut, with equal work, memory and messages.

So methods of different placements solve one model. Joining adds up what consecutive stages take, and cutting
divides a stage into parts that add up to it, so that the work of the whole model and its memory stay the same
to the tick and to the unit. The memory limit of a device stays, too.

An instance can also be changed such that a method finds only fused or only split backwards, although it knows
nothing of this restriction. `restricted` returns that instance, and `restored` turns an order for it into one
for the instance itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from typing import Any

from ..base.errors import InputError
from ..model.costs import Costs, Memory, Step
from ..model.instance import Instance
from ..model.instance_file import instance_from_dict, instance_to_dict
from ..model.operation import Operation, OpKind
from ..model.placement import Placement
from ..model.schedule import Order


class Backwards(StrEnum):
    """How the backwards of a schedule may run."""

    ANY = "any"  #: some fused and some split
    FUSED = "fused"  #: all fused
    SPLIT = "split"  #: all split into B and W


def placed(instance: Instance, placement: Placement) -> Instance:
    """Return the model of an instance in another placement on as many devices.

    Raises
    ------
    InputError
        If the stages can be neither joined nor cut into as many as the placement has, or if times of pairs
        would have to be cut, or are those of devices.

    Notes
    -----
    Where stages are joined, a pair runs their parts in turn: the F of the first with the BW of the last, and
    so on, as a forward goes up through the parts and a backward down.
    """
    if placement == instance.placement:
        return instance
    have, want = instance.stages, placement.stages
    if have == want:
        return replace(instance, placement=placement)
    if have % want and want % have:
        rule = f"{want} stages: the {have} stages of the instance can be neither joined nor cut to that"
        raise InputError(f"has {rule}", key="placement", value=_said(placement))
    if instance.has_pairs and (have < want or instance.costs.pairs is None):
        rule = "needs other stages than the instance has, whose times of pairs hold for these"
        raise InputError(rule, key="placement", value=_said(placement))
    split = _joined(have // want) if have > want else _cut(want // have)
    return _with_stages(instance, placement, split)


def _said(placement: Placement) -> str:
    return placement.name if placement.usual else f"{placement.name} with {placement.chunks} chunks"


Split = Callable[[Sequence[int]], tuple[int, ...]]
"""A function that turns one number per stage of the instance into one per stage of the new placement."""


def _joined(count: int) -> Split:
    return lambda values: tuple(sum(values[i : i + count]) for i in range(0, len(values), count))


def _cut(count: int) -> Split:
    def parts(values: Sequence[int]) -> tuple[int, ...]:
        ends = [[value * k // count for k in range(count + 1)] for value in values]
        return tuple(end - begin for each in ends for begin, end in pairwise(each))

    return parts


def _with_stages(instance: Instance, placement: Placement, split: Split) -> Instance:
    stages = range(instance.stages)

    def times(kind: OpKind) -> tuple[int, ...]:
        whole = [instance.duration(kind, stage) for stage in stages]
        parts = split(whole)
        if len(parts) > len(whole) and any(0 < ticks < len(parts) // len(whole) for ticks in whole):
            rule = f"cuts each stage into {len(parts) // len(whole)}, and a {kind.name} has fewer ticks"
            raise InputError(rule, key="placement", value=_said(placement))
        return parts

    costs = replace(
        instance.costs,
        forward=times(OpKind.F),
        backward=times(OpKind.B),
        weight=times(OpKind.W),
        fused=None if instance.costs.fused is None else times(OpKind.BW),
        pairs=_joined_pairs(instance.costs.pairs, len(stages) // placement.stages),
    )
    return replace(
        instance,
        placement=placement,
        costs=costs,
        memory=_memory(instance, split),
        step=_step(instance, placement, split),
    )


def _joined_pairs(pairs: Any, count: int) -> list[list[int]] | None:
    """Return the times of pairs of stages each of which has `count` stages, whose parts run in turn."""
    if pairs is None:
        return None
    firsts = range(0, len(pairs), count)
    return [[sum(pairs[f + k][b + count - 1 - k] for k in range(count)) for b in firsts] for f in firsts]


def _memory(instance: Instance, split: Split) -> Memory | None:
    if instance.memory is None:
        return None
    stages = range(instance.stages)
    freed = [
        [-part for part in split([-instance.memory_delta(kind, s) for s in stages])]
        for kind in (OpKind.B, OpKind.W)
    ]
    passing = split([instance.memory_while_running(s) for s in stages])
    forward = [-b - w or while_running for b, w, while_running in zip(*freed, passing, strict=True)]
    return Memory(forward, freed[0], freed[1], instance.memory.limit)


def _step(instance: Instance, placement: Placement, split: Split) -> Step | None:
    step = instance.step
    if step is None:
        return None
    ready: Any = step.ready
    have, want = instance.stages, placement.stages
    group = max(1, have // want)
    # parameters of a joined stage are there when those of all its parts are
    late = [max(ready[s * have // want : s * have // want + group]) for s in range(want)]
    return Step(late, split(step.reduce), step.optimizer)  # type: ignore[arg-type]  # expanded by Instance


def dealt(instance: Instance, devices: str) -> Instance:
    """Return a model by layers, which has one stage for each layer, on a number of devices."""
    if not devices.isdecimal() or instance.stages % int(devices):
        raise InputError(f"must be a number that divides the {instance.stages} layers")
    p = int(devices)
    return instance_from_dict({**instance_to_dict(instance), "devices": p, "chunks": instance.stages // p})


def discounted(instance: Instance, discount: Fraction) -> Instance:
    """Return the instance in which a fused backward takes a share less than B and W apart, rounded."""
    costs: Costs = instance.costs
    apart = zip(costs.backward, costs.weight, strict=True)  # type: ignore[arg-type]  # expanded by Instance
    fused = tuple(max(1, round((1 - discount) * (b + w))) for b, w in apart)
    return replace(instance, costs=replace(costs, fused=fused))


def restricted(instance: Instance, backwards: Backwards) -> Instance:
    """Return the instance in whose schedules all backwards are fused, or in which fusing saves no time.

    Where all are fused, a backward is one B that takes as long as the BW and frees as much, and no stage has
    a W. Costs of a schedule in this instance are its costs in the other one, after `restored`.
    """
    if backwards is Backwards.ANY:
        return instance
    if backwards is Backwards.SPLIT:
        return replace(instance, costs=replace(instance.costs, fused=None))
    stages = range(instance.stages)
    both = [instance.has(OpKind.BW, s) for s in stages]

    def merged(value: Callable[[OpKind, int], int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        backward = tuple(value(OpKind.BW if both[s] else OpKind.B, s) for s in stages)
        return backward, tuple(0 if both[s] else value(OpKind.W, s) for s in stages)

    memory = instance.memory
    if memory is not None:
        freed, nothing = merged(instance.memory_delta)
        memory = Memory(memory.forward, freed, nothing, memory.limit)
    backward, weight = merged(instance.duration)
    costs = replace(instance.costs, backward=backward, weight=weight, fused=None)
    return replace(instance, costs=costs, memory=memory)


def restored(instance: Instance, order: Order, backwards: Backwards) -> Order:
    """Return for an instance the order of a schedule of `restricted`, in which backwards have their names."""

    def names(slot: tuple[Operation, ...]) -> list[tuple[Operation, ...]]:
        if backwards is Backwards.FUSED:
            return [tuple(_fused(instance, op) for op in slot)]
        if not any(op.kind is OpKind.BW for op in slot):
            return [slot]
        return [(op._replace(kind=kind),) for op in slot for kind in _apart(op.kind)]

    if backwards is Backwards.ANY:
        return order
    return Order.from_slots([[new for slot in device for new in names(slot)] for device in order.to_slots()])


def _fused(instance: Instance, operation: Operation) -> Operation:
    kind, stage, _ = operation
    return (
        operation._replace(kind=OpKind.BW)
        if kind is OpKind.B and instance.has(OpKind.BW, stage)
        else operation
    )


def _apart(kind: OpKind) -> tuple[OpKind, ...]:
    return (OpKind.B, OpKind.W) if kind is OpKind.BW else (kind,)


def shown_order(order: Order, backwards: Backwards) -> Order:
    """Return the order that `restored` was given, from the one that it returned."""
    if backwards is not Backwards.FUSED:
        return order
    plain = {OpKind.BW: OpKind.B}
    return Order.from_slots(
        [
            [tuple(op._replace(kind=plain.get(op.kind, op.kind)) for op in slot) for slot in device]
            for device in order.to_slots()
        ]
    )
