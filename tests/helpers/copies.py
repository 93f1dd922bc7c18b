"""Instances and orders with copies of activations, and their times by a simulation without queues or arrays."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from helpers.cases import mixed_order
from tightpipe import Instance, Memory, Offload, Operation, OpKind, Order

F, B, W, BW, O, L = OpKind  # noqa: E741
Slot = tuple[Operation, ...]


def offloading(instance: Instance, seed: int) -> Instance:
    """The instance without limits, of whose activations a part may leave; as they are at most stages of all."""
    rng = random.Random(seed)
    instance = replace(instance, iterations=1, flush=True)
    if instance.memory is None:
        instance = replace(instance, classes=(), slices=())
        has_b, has_w = ([instance.has(k, s, 0) for s in range(instance.stages)] for k in (B, W))
        taken = [int(b) + int(w) for b, w in zip(has_b, has_w, strict=True)]
        instance = replace(instance, memory=Memory(taken, [-int(b) for b in has_b], [-int(w) for w in has_w]))
    memory = instance.memory
    assert memory is not None
    instance = replace(instance, memory=replace(memory, limit=None))
    classes = range(len(instance.class_counts))
    away = []
    for stage in range(instance.stages):
        most = min(instance.memory_delta(F, stage, c) for c in classes)
        fits = all(instance.has_backward(stage, c) for c in classes)
        away.append(rng.randint(0, most) if fits and rng.random() < 0.9 else 0)
    out, back = ([rng.randint(1, 15) for _ in away] for _ in range(2))
    return replace(instance, offload=Offload(away, out, back, rng.random() < 0.6))


def order_with_copies(instance: Instance, seed: int, pairs: bool = True) -> Order:
    """A random order, with copies of a random part of what may leave, anywhere between F and backward."""
    rng = random.Random(seed)
    slots = mixed_order(instance, seed).to_slots()
    for device in slots:
        if not pairs:
            device[:] = [(op,) for slot in device for op in slot]
        for forward in [op for slot in device for op in slot if op.kind is F]:
            if instance.offloads(forward.stage) and rng.random() < 0.6:
                insert_copies(instance, device, forward, rng)
    return Order.from_slots(slots)


def insert_copies(instance: Instance, device: list[Slot], forward: Operation, rng: random.Random) -> None:
    _, stage, unit = forward
    begin = next(i for i, slot in enumerate(device) if forward in slot)
    waits = backward_of(instance, stage, unit)
    end = next(i for i, slot in enumerate(device) if set(slot) & set(waits))
    first, second = sorted(rng.randint(begin + 1, end) for _ in range(2))
    device.insert(second, (Operation(L, stage, unit),))
    device.insert(first, (Operation(O, stage, unit),))


def backward_of(instance: Instance, stage: int, unit: int) -> list[Operation]:
    """What waits for the gradient at a stage, of which one runs."""
    has_b = instance.has(B, stage, instance.mb_class(unit))
    return [Operation(kind, stage, unit) for kind in ((B, BW) if has_b else (W,))]


def slow_times(instance: Instance, order: Order) -> dict[Operation, tuple[int, int]]:
    """The earliest start and end of each operation, by raising starts until every rule is kept."""
    lines = order.to_slots()
    took = {op: _ticks(instance, d, slot) for d, line in enumerate(lines) for slot in line for op in slot}
    start = dict.fromkeys(took, 0)
    for _ in range(100_000):
        end = {op: start[op] + took[op] for op in took}
        arrives = _arrivals(instance, lines, end)
        later = {}
        for line in lines:
            for i, slot in enumerate(line):
                least = [_least(instance, line, i, op, end, arrives) for op in slot]
                later |= dict.fromkeys(slot, max(least))
        if later == start:
            return {op: (start[op], end[op]) for op in took}
        start = later
    raise AssertionError("some operations wait for each other")


def _ticks(instance: Instance, device: int, slot: Slot) -> int:
    alone = sum(map(instance.duration_of, slot))
    if len(slot) == 1 or slot[1].kind is not BW:
        return alone
    together = instance.together(device, slot[0].stage, slot[1].stage)
    return alone if together is None else together


def _arrivals(
    instance: Instance, lines: list[list[Slot]], end: dict[Operation, int]
) -> dict[tuple[Operation, int], int]:
    """When the result of each operation is at each device."""
    found = {}
    for device, line in enumerate(lines):
        free: dict[int, int] = {}
        for op in (op for slot in line for op in slot):
            for other in range(len(lines)):
                found[op, other] = end[op]
            if op.kind in (F, B, BW):
                stage = op.stage + (1 if op.kind is F else -1)
                waits = 0 <= stage < instance.stages and (
                    op.kind is F or instance.has_backward(stage, instance.mb_class(op.microbatch))
                )
                there = instance.device(stage, op.microbatch) if waits else device
                if there != device:
                    left = max(end[op], free.get(there, 0))
                    free[there] = left + instance.costs.link_occupancy
                    found[op, there] = left + instance.comm(device, there)
    return found


def _least(
    instance: Instance,
    line: list[Slot],
    i: int,
    op: Operation,
    end: dict[Operation, int],
    arrives: dict[tuple[Operation, int], int],
) -> int:
    """The least start that the rules allow an operation of slot `i` of a line if others end at `end`."""
    times = [0]
    if op.kind is F and instance.barrier is not None:
        times.append(instance.barrier.ready[op.stage])
    here = instance.device(op.stage, op.microbatch)
    times += [arrives[other, here] for other in inputs(instance, op) if other in end]
    mine = engine(instance, op)
    takes = op.kind is L or (op.kind is F and activation(instance, op) > 0)
    for other in (other for slot in line[:i] for other in slot):
        if engine(instance, other) == mine or (takes and gives(instance, other)):
            times.append(end[other])
    return max(times)


def engine(instance: Instance, op: Operation) -> str:
    if op.kind not in (O, L):
        return "compute"
    assert instance.offload is not None
    return op.kind.name if instance.offload.duplex else "copy"


def activation(instance: Instance, op: Operation) -> int:
    passing = instance.memory_while_running(op.stage, instance.mb_class(op.microbatch))
    return instance.memory_of(op) + passing


def gives(instance: Instance, op: Operation) -> bool:
    passes = op.kind is F and instance.memory_while_running(op.stage, instance.mb_class(op.microbatch)) > 0
    return passes or instance.memory_of(op) < 0


def inputs(instance: Instance, op: Operation) -> Iterator[Operation]:
    """The operations that an operation may wait for, those that are in no order included."""
    kind, stage, unit = op
    k, last = instance.slice_count, instance.stages - 1
    if kind is F:
        yield from [Operation(F, stage - 1, unit)] * (stage > 0)
        yield from [Operation(F, stage, unit - 1)] * (unit % k > 0)
    elif kind is O:
        yield Operation(F, stage, unit)
    elif kind is L:
        yield Operation(O, stage, unit)
    elif kind is W and instance.has(B, stage, instance.mb_class(unit)):
        yield Operation(B, stage, unit)
    else:
        yield Operation(L, stage, unit)
        if stage < last:
            yield from (Operation(other, stage + 1, unit) for other in (B, BW))
        elif unit % k == k - 1:
            yield Operation(F, last, unit)
        if unit % k < k - 1:
            yield from backward_of(instance, stage, unit + 1)


def slow_peaks(instance: Instance, order: Order, times: dict[Operation, tuple[int, int]]) -> list[int]:
    """The most memory that each device holds at any time, tick by tick where something changes."""
    peaks = []
    for line in order.to_lists():
        moments = sorted({time for op in line for time in times[op]})
        peaks.append(max(sum(_held(instance, op, times[op], moment) for op in line) for moment in moments))
    return peaks


def _held(instance: Instance, op: Operation, times: tuple[int, int], moment: int) -> int:
    """What an operation has added to the memory right after a moment."""
    (start, end), delta = times, instance.memory_of(op)
    passing = activation(instance, op) - delta if op.kind is F else 0
    return delta * ((start if delta > 0 else end) <= moment) + passing * (start <= moment < end)
