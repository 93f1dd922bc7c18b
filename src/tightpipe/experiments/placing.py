"""The same model is placed anew: its stages are joined or cut, with equal work, memory and messages.

So methods of different placements solve one model. Joining adds up what consecutive stages take, and cutting
divides a stage into parts that add up to it, so that the work of the whole model and its memory stay the same
to the tick and to the unit. The memory limit of a device stays, too.

An instance can also be changed such that a method finds only fused or only split backwards, or no copies,
although it knows nothing of this restriction. `restricted` returns that instance, and `restored` turns an
order for it into one for the instance itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from typing import Any, TypeVar

from ..base.errors import InputError
from ..model.costs import Costs, Memory, MicrobatchClass, MicrobatchSlice, Offload, Step, sums
from ..model.instance import Instance
from ..model.instance_file import instance_from_dict, instance_to_dict
from ..model.microbatches import ClassTimes, with_times
from ..model.operation import Operation, OpKind
from ..model.placement import Placement
from ..model.schedule import Order


class Backwards(StrEnum):
    """How the backwards of a schedule may run."""

    ANY = "any"  #: some fused and some split
    FUSED = "fused"  #: all fused
    SPLIT = "split"  #: all split into B and W


class Copies(StrEnum):
    """Whether activations may leave in a schedule."""

    ANY = "any"  #: those that the schedule chooses, where the instance lets them
    NONE = "none"  #: none, whatever the instance says


def placed(instance: Instance, placement: Placement) -> Instance:
    """Return the model of an instance in another placement on as many devices.

    Where stages are joined, a pair runs their parts in turn: the F of the first with the BW of the last, and
    so on. Raise an InputError if the stages can be neither joined nor cut into as many as the placement has,
    or if times of pairs would have to be cut, or are those of devices.
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
    def parts(kind: str, whole: Sequence[int]) -> tuple[int, ...]:
        found = split(whole)
        if len(found) > len(whole) and any(0 < ticks < len(found) // len(whole) for ticks in whole):
            rule = f"cuts each stage into {len(found) // len(whole)}, and a {kind} has fewer ticks"
            raise InputError(rule, key="placement", value=_said(placement))
        return found

    def times(one: Any) -> dict[str, Any]:
        found = {key: parts(kind, getattr(one, key)) for key, kind in _KINDS.items()}
        return found | {"fused": None if one.fused is None else parts("BW", one.fused)}

    def part(one: Any) -> Any:
        return replace(one, **times(one), memory=_memory(one, one.memory, split))

    pairs = _joined_pairs(instance.costs.pairs, instance.stages // placement.stages)
    memory = _memory(instance.costs, instance.memory, split)
    return replace(
        instance,
        placement=placement,
        costs=replace(instance.costs, **times(instance.costs), pairs=pairs),
        memory=memory,
        step=_step(instance, placement, split),
        offload=_offload(instance, memory, split),
        classes=list(map(part, instance.classes)),
        slices=list(map(part, instance.slices)),
    )


def _joined_pairs(pairs: Any, count: int) -> list[list[int]] | None:
    """Return the times of pairs of stages each of which has `count` stages, whose parts run in turn."""
    if pairs is None:
        return None
    firsts = range(0, len(pairs), count)
    return [[sum(pairs[f + k][b + count - 1 - k] for k in range(count)) for b in firsts] for f in firsts]


_KINDS = {"forward": "F", "backward": "B", "weight": "W"}


def _memory(one: Any, memory: Any, split: Split) -> Memory | None:
    """Return the memory of an instance, a class or a slice, whose costs `one` has, with other stages."""
    if memory is None:
        return None
    freed = [[-part for part in split([-v for v in deltas])] for deltas in (memory.backward, memory.weight)]
    trained = [b + w > 0 for b, w in zip(one.backward, one.weight, strict=True)]
    passing = split([0 if t else f for f, t in zip(memory.forward, trained, strict=True)])
    forward = [-b - w or while_running for b, w, while_running in zip(*freed, passing, strict=True)]
    return Memory(forward, freed[0], freed[1], memory.limit)


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


def _offload(instance: Instance, memory: Any, split: Split) -> Offload | None:
    """Return what may leave with other stages, whose memory is given: of a part, at most what its F adds."""
    offload: Any = instance.offload
    if offload is None:
        return None
    away = tuple(map(min, split(offload.memory), memory.forward))
    return Offload(away, split(offload.out), split(offload.back), offload.duplex)


def dealt(instance: Instance, devices: str) -> Instance:
    """Return a model by layers, which has one stage for each layer, on a number of devices."""
    if not devices.isdecimal() or instance.stages % int(devices):
        raise InputError(f"must be a number that divides the {instance.stages} layers")
    p = int(devices)
    return instance_from_dict({**instance_to_dict(instance), "devices": p, "chunks": instance.stages // p})


def discounted(instance: Instance, discount: Fraction) -> Instance:
    """Return the instance in which a fused backward takes a share less than B and W apart, rounded."""
    return _with_fused(instance, lambda apart: max(1, round((1 - discount) * apart)))


def _with_fused(instance: Instance, fused: Callable[[int], int]) -> Instance:
    """Return the instance with BW's of other times; `fused` is given those of B and W together."""

    def times(mb_class: int) -> ClassTimes:
        forward, backward, weight, _ = instance.class_costs[mb_class].duration
        return forward, backward, weight, tuple(map(fused, sums(backward, weight)))

    return with_times(instance, times)


def restricted(instance: Instance, backwards: Backwards, copies: Copies = Copies.ANY) -> Instance:
    """Return the instance in whose schedules backwards and copies are as asked.

    Where all are fused, a backward is one B that takes as long as the BW and frees as much, and no stage has
    a W. Where all are split, fusing saves no time. Without copies, nothing may leave. Costs of a schedule in
    this instance are its costs in the other one, after `restored`.
    """
    if copies is Copies.NONE:
        instance = replace(instance, offload=None)
    if backwards is Backwards.ANY:
        return instance
    if backwards is Backwards.SPLIT:
        return _with_fused(instance, lambda apart: apart)

    def part(one: Any) -> Any:
        merged, held = _all_fused(one, one.memory)
        return replace(merged, memory=held)

    costs, memory = _all_fused(instance.costs, instance.memory)
    classes, slices = map(part, instance.classes), map(part, instance.slices)
    return replace(instance, costs=costs, memory=memory, classes=list(classes), slices=list(slices))


_Priced = TypeVar("_Priced", Costs, MicrobatchClass, MicrobatchSlice)


def _all_fused(one: _Priced, memory: Memory | None) -> tuple[_Priced, Memory | None]:
    """Return the costs and the memory in which a B stands for each BW, and its W is gone."""
    costs: Any = one
    apart = list(zip(costs.backward, costs.weight, strict=True))
    both = [b > 0 and w > 0 for b, w in apart]
    fused = costs.fused or [b + w for b, w in apart]
    backward = [f if t else b for f, t, (b, _) in zip(fused, both, apart, strict=True)]
    weight = [0 if t else w for t, (_, w) in zip(both, apart, strict=True)]
    if memory is not None:
        deltas: Any = memory
        freed = list(zip(both, deltas.backward, deltas.weight, strict=True))
        merged, nothing = [b + w if t else b for t, b, w in freed], [0 if t else w for t, _, w in freed]
        memory = Memory(memory.forward, merged, nothing, memory.limit)
    return replace(costs, backward=backward, weight=weight, fused=None), memory


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
    kind, stage, microbatch = operation
    both = kind is OpKind.B and instance.has(OpKind.BW, stage, instance.mb_class(microbatch))
    return operation._replace(kind=OpKind.BW) if both else operation


def _apart(kind: OpKind) -> tuple[OpKind, ...]:
    return (OpKind.B, OpKind.W) if kind is OpKind.BW else (kind,)


def shown_order(order: Order, backwards: Backwards) -> Order:
    """Return the order that `restored` was given, from the one that it returned."""
    if backwards is not Backwards.FUSED:
        return order
    operations = order.operations.copy()
    operations[operations[:, 0] == OpKind.BW, 0] = OpKind.B
    return Order(operations, order.offsets, order.pairs)
