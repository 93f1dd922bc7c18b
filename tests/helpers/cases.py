"""Instances, orders and Hypothesis strategies that several tests share."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import pytest
from hypothesis import strategies as st

from helpers.small_instances import without_diagonal
from tightpipe import (
    DeadlockError,
    Instance,
    Memory,
    Objective,
    Operation,
    OpKind,
    Order,
    Placement,
    simulate,
)
from tightpipe.model.costs import MicrobatchClass, MicrobatchSlice, Step
from tightpipe.model.schedule import is_pair
from tightpipe.solver.queues import rules_of

SPLIT = (OpKind.F, OpKind.B, OpKind.W)
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
not_as_root = pytest.mark.skipif(IS_ROOT, reason="root may write everywhere")


def uniform(devices: int, microbatches: int | None, times: tuple[int, int, int], **entries: Any) -> Instance:
    """The durations of F, B and W in a row; other entries as `Instance.uniform` takes them."""
    forward, backward, weight = times
    return Instance.uniform(
        devices=devices,
        microbatches=microbatches,
        forward=forward,
        backward=backward,
        weight=weight,
        **entries,
    )


def serial_order(instance: Instance) -> Order:
    """Microbatch after microbatch, each W right after its B: needs the least memory of all orders."""
    lists: list[list[tuple[int, int, int]]] = [[] for _ in range(instance.devices)]
    k = max(1, len(instance.slices))
    for m in range(instance.microbatches):
        units = range(m * k, m * k + k)
        for stage, u in product(range(instance.stages), units):
            lists[instance.device(stage, u)].append((OpKind.F, stage, u))
        for stage, u in product(reversed(range(instance.stages)), reversed(units)):
            kinds = [kind for kind in (OpKind.B, OpKind.W) if instance.has(kind, stage, instance.mb_class(u))]
            lists[instance.device(stage, u)] += [(kind, stage, u) for kind in kinds]
    return Order.from_lists(lists)


def random_order(instance: Instance, seed: int) -> Order:
    """Start a random ready operation again and again, whatever the memory."""
    if instance.slices:
        return random_order_of_slices(instance, seed)
    rng = random.Random(seed)
    lists: list[list[tuple[int, int, int]]] = [[] for _ in range(instance.devices)]
    last = instance.stages - 1
    ready = [(OpKind.F, 0, m) for m in range(instance.microbatches)]
    while ready:
        kind, stage, m = ready.pop(rng.randrange(len(ready)))
        lists[instance.device(stage, m)].append((kind, stage, m))
        if kind is OpKind.F and stage < last:
            ready.append((OpKind.F, stage + 1, m))
        elif kind is OpKind.F:
            ready += gradients(instance, last, m)
        elif kind is OpKind.B:
            ready += [(OpKind.W, stage, m)] if instance.duration_of(Operation(OpKind.W, stage, m)) else []
            ready += gradients(instance, stage - 1, m) if stage else []
    return Order.from_lists(lists)


def mixed_order(instance: Instance, seed: int) -> Order:
    """A random order in which some backwards are fused, and some F's are paired with the backward after them."""
    rng, slots = random.Random(seed), random_order(instance, seed).to_slots()
    for device in slots:
        for op in [slot[0] for slot in device if slot[0].kind is OpKind.W and rng.random() < 0.5]:
            if instance.has(OpKind.BW, op.stage, instance.mb_class(op.microbatch)):
                at = device.index((op._replace(kind=OpKind.B),))
                device[at] = (op._replace(kind=OpKind.BW),)
                device.remove((op,))
    for device in slots:
        for k in range(len(device) - 1, 0, -1):
            if (
                rng.random() < 0.5
                and len(device[k]) == 1
                and is_pair(device[k - 1][0].kind, device[k][0].kind)
            ):
                device[k - 1 : k + 1] = [(*device[k - 1], *device[k])]
                try:
                    simulate(instance, Order.from_slots(slots))
                except DeadlockError:
                    device[k - 1 : k] = [(op,) for op in device[k - 1]]
    return Order.from_slots(slots)


def widened(instance: Instance, seed: int) -> Instance:
    """The first stages frozen on half, one of them with a W alone; some W missing; a step around on half."""
    rng = random.Random(seed)
    stages, objective = instance.stages, rng.choice(list(Objective))
    backward, weight = list(instance.costs.backward), list(instance.costs.weight)
    first = rng.randint(0, stages) if rng.random() < 0.6 else 0
    backward[:first] = weight[:first] = [0] * first
    if first < stages and rng.random() < 0.4:
        backward[first] = 0
    for stage in range(first, stages):
        if backward[stage] and rng.random() < 0.3:
            weight[stage] = 0
    step = None
    if instance.iterations == 1 and rng.random() < 0.7:
        times = [[rng.randint(0, 15) * rng.randint(0, 1) for _ in range(stages)] for _ in range(2)]
        step = Step(*times, [rng.randint(0, 9) for _ in range(instance.devices)])
    memory = instance.memory
    if memory is not None:
        costs = zip(memory.forward, memory.weight, backward, weight, strict=True)
        kept = [0 if not w else v if b else -f for f, v, b, w in costs]
        freed = [-f - v if b else 0 for f, v, b in zip(memory.forward, kept, backward, strict=True)]
        memory = replace(memory, backward=freed, weight=kept)
    costs = replace(instance.costs, backward=backward, weight=weight)
    return replace(instance, costs=costs, memory=memory, objective=objective, step=step)


def emptied(instance: Instance, seed: int) -> Instance:
    """The instance with some stages empty, of several at least one and not all: they pass on what comes."""
    stages = range(instance.stages)
    if len(stages) == 1:
        return instance
    rng = random.Random(f"empty {seed}")
    empty = set(rng.sample(stages, rng.randint(1, max(1, instance.stages - 1))))

    def rest(values: Any) -> list[int]:
        return [0 if s in empty else values[s] for s in stages]

    costs, memory = instance.costs, instance.memory
    times = {key: rest(getattr(costs, key)) for key in ("forward", "backward", "weight")}
    if memory is not None:
        deltas = {key: rest(getattr(memory, key)) for key in ("forward", "backward", "weight")}
        memory = replace(memory, **deltas)
    return replace(instance, costs=replace(costs, **times), memory=memory)


SHAPES = (
    *(("linear", 1, 3), ("linear", 2, 2), ("linear", 2, 3), ("linear", 3, 2), ("v", 1, 2), ("v", 1, 3)),
    *(("v", 2, 2), ("loop", 2, 2), ("wave", 1, 2), ("bidirectional", 2, 2)),
)


def random_case(seed: int) -> Instance:
    """Pairs on three of four, shorter than an operation alone now and then; flushes and fused on half."""
    rng = random.Random(seed)
    placement, devices, microbatches = rng.choice(SHAPES)
    stages = uniform(devices, microbatches, (1, 1, 1), placement=placement).stages
    times = [[rng.randint(1, 12) for _ in range(stages)] for _ in range(3)]
    entries: dict[str, Any] = {"placement": placement, "comm": rng.randint(0, 3)}
    entries["objective"] = rng.choice(("device_span", "makespan"))
    if rng.random() < 0.75:
        entries["overlapped"] = [rng.randint(1, 30) for _ in range(devices)]
        own = random.Random(f"pairs {seed}")  # the other draws stay what they are
        if own.random() < 0.5:
            del entries["overlapped"]
            entries["pairs"] = [[own.randint(1, 30) for _ in range(stages)] for _ in range(stages)]
    if microbatches % 2 == 0 and placement != "bidirectional" and rng.random() < 0.5:
        entries |= {"iterations": 2, "flush": rng.random() < 0.8}
    if rng.random() < 0.6:
        kept = rng.randint(0, 2)
        free = Memory(kept + 1, -1, -kept, None)
        unlimited = uniform(devices, microbatches, (1, 1, 1), placement=placement, memory=free)
        limit = [unlimited.smallest_limit(d) + rng.randint(0, kept + 1) for d in range(devices)]
        entries["memory"] = Memory(kept + 1, -1, -kept, limit)
    if rng.random() < 0.6:  # from a single tick to longer than B and W
        entries["fused"] = [rng.randint(1, b + w + 2) for b, w in zip(*times[1:], strict=True)]
    return Instance.uniform(
        devices=devices,
        microbatches=microbatches,
        forward=times[0],
        backward=times[1],
        weight=times[2],
        **entries,
    )


def wide_case(seed: int) -> Instance:
    return widened(random_case(seed), seed)


def entries_of_its_own(instance: Instance, rng: random.Random) -> dict[str, Any]:
    """What a class or a slice says: some of its times, a fused backward or its memory."""
    entries: dict[str, Any] = {}
    for key, low in (("forward", 1), ("backward", 0), ("weight", 0)):
        if rng.random() < 0.7:
            entries[key] = [max(low, t and rng.randint(1, 2 * t)) for t in getattr(instance.costs, key)]
    if rng.random() < 0.4:
        entries["fused"] = rng.randint(1, 24)
    memory: Any = instance.memory
    if memory is not None and rng.random() < 0.5:
        times = rng.randint(1, 3)
        held = (tuple(v * times for v in d) for d in (memory.forward, memory.backward, memory.weight))
        entries["memory"] = Memory(*held)
    return entries


def with_room(instance: Instance, **entries: Any) -> Instance:
    """The instance with other entries, and limits that have room for each of its microbatches."""
    memory: Any = instance.memory
    if memory is not None and memory.limit is not None:
        free = replace(instance, memory=replace(memory, limit=None), **entries)
        limit = [max(memory.limit[d], free.smallest_limit(d)) for d in range(instance.devices)]
        memory = replace(memory, limit=limit)
    return replace(instance, memory=memory, **entries)


def classed(instance: Instance, seed: int) -> Instance:
    """The microbatches divided into classes at random: some with their own times, fused backwards or memory.

    On a third there are as many classes as microbatches. Some classes cost the same as others. A class lacks
    the same operations as the instance.
    """
    rng = random.Random(seed)
    n = instance.microbatches
    instance = replace(instance, costs=replace(instance.costs, overlapped=None, pairs=None), iterations=1)
    cuts = (
        range(1, n) if rng.random() < 0.35 else sorted(rng.sample(range(1, n), rng.randint(0, min(n - 1, 2))))
    )
    counts = [after - before for before, after in pairwise([0, *cuts, n])]
    classes = list[MicrobatchClass]()
    for count in counts:
        if classes and rng.random() < 0.2:
            classes.append(replace(rng.choice(classes), count=count))
            continue
        classes.append(MicrobatchClass(count, **entries_of_its_own(instance, rng)))
    return with_room(instance, classes=classes)


def waits_of(instance: Instance, op: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """What an F, B or W of an instance with slices waits for, by the rules as they are stated."""
    kind, s, u = op
    k, last = len(instance.slices), instance.stages - 1
    if kind == OpKind.F:
        return [(kind, s - 1, u)] * (s > 0) + [(kind, s, u - 1)] * (u % k > 0)
    if kind == OpKind.W and instance.duration_of(Operation(OpKind.B, s, u)):
        return [(OpKind.B, s, u)]
    found = [(OpKind.B, s + 1, u)] if s < last else [(OpKind.F, last, u - u % k + k - 1)]
    return found + [(kind, s, u + 1)] * (u % k < k - 1)


def random_order_of_slices(instance: Instance, seed: int) -> Order:
    rng = random.Random(seed)
    named = product(SPLIT, range(instance.stages), range(instance.microbatches * len(instance.slices)))
    left = [op for op in named if op[0] is OpKind.F or instance.duration_of(Operation(*op))]
    lists: list[list[tuple[int, int, int]]] = [[] for _ in range(instance.devices)]
    done = set[tuple[int, int, int]]()
    while left:
        op = rng.choice([op for op in left if done.issuperset(waits_of(instance, op))])
        lists[instance.device(op[1], op[2])].append(op)
        done.add(op)
        left.remove(op)
    return Order.from_lists(lists)


def sliced(instance: Instance, seed: int, most: int = 3, least: int = 1) -> Instance:
    """The microbatches cut into slices at random: some with their own times, fused backwards or memory."""
    rng = random.Random(seed)
    slices = list[MicrobatchSlice]()
    for _ in range(rng.randint(least, most)):
        slices.append(MicrobatchSlice(**entries_of_its_own(instance, rng)))
    return with_room(instance, iterations=1, slices=slices)


def cases_of_every_rule(seeds: Iterable[int], most: int = 20) -> list[Instance]:
    """Instances of every rule but offload, and of most rules at once.

    They have at most so many operations, and half as many again where microbatches have slices.
    """
    found = []
    for seed in seeds:
        plain, wide = random_case(seed), wide_case(seed)
        found += [plain, wide, sliced(wide if seed % 2 else plain, seed, 2), classed(wide, seed)]
    return [
        case
        for case in found
        if rules_of(case) and 3 * case.stages * case.units <= (most * 3 // 2 if case.slices else most)
    ]


def gradients(instance: Instance, stage: int, microbatch: int) -> list[tuple[int, int, int]]:
    """What waits for the gradient at a stage: B, without one W, without both nothing."""
    kinds = [
        kind for kind in (OpKind.B, OpKind.W) if instance.duration_of(Operation(kind, stage, microbatch))
    ]
    return [(kind, stage, microbatch) for kind in kinds[:1]]


@st.composite
def instances(
    draw: st.DrawFn,
    max_devices: int = 3,
    max_microbatches: int = 4,
    most_occupancy: int = 0,
    most_operations: int = 1000,
    overlapped: bool = False,
    fused: bool = False,
) -> Instance:
    """Small instances of every placement: uniform or per-stage, both objectives, all kinds of limits.

    Where `most_operations` asks for it, placements with many stages have fewer microbatches. With
    `overlapped`, pairs have times of their own, one for all, one per device or one per pair of stages; with
    `fused`, so have fused backwards.
    """
    placement = draw(st.sampled_from(["linear", "v", "loop", "wave", "bidirectional"]))
    devices = draw(st.integers(1, max_devices))
    microbatches = draw(st.integers(1, max_microbatches))
    if placement == "bidirectional":
        devices, microbatches = 2 * ((devices + 1) // 2), 2 * ((microbatches + 1) // 2)
    else:
        stages = Placement(placement, devices).stages
        microbatches = min(microbatches, most_operations // (3 * stages))
    probe = Instance.uniform(
        devices=devices, microbatches=microbatches, forward=1, backward=1, weight=1, placement=placement
    )
    stages = probe.stages
    ticks: Any = st.integers(1, 12)
    if draw(st.booleans()):
        ticks = st.lists(ticks, min_size=stages, max_size=stages)
    comm: Any = st.integers(0, 4)
    if draw(st.booleans()):
        comm = st.lists(
            st.lists(comm, min_size=devices, max_size=devices), min_size=devices, max_size=devices
        ).map(without_diagonal)
    pairs: Any = st.integers(1, 36)
    given = draw(st.sampled_from(["one", "per device", "per stages"])) if overlapped else ""
    if given == "per device":
        pairs = st.lists(pairs, min_size=devices, max_size=devices)
    elif given == "per stages":
        pairs = st.lists(st.lists(pairs, min_size=stages, max_size=stages), min_size=stages, max_size=stages)
    together = {"pairs" if given == "per stages" else "overlapped": draw(pairs)} if given else {}
    return Instance.uniform(
        devices=devices,
        microbatches=microbatches,
        **together,
        fused=draw(st.integers(1, 24)) if fused else None,
        forward=draw(ticks),
        backward=draw(ticks),
        weight=draw(ticks),
        comm=draw(comm),
        placement=placement,
        memory=draw(memories(probe)),
        objective=draw(st.sampled_from(["device_span", "makespan"])),
        link_occupancy=draw(st.integers(0, most_occupancy)),
    )


def wide_instances(**options: Any) -> st.SearchStrategy[Instance]:
    """Small instances with joint operations, stages without B or W, and a step around the operations."""
    return st.builds(widened, instances(overlapped=True, fused=True, **options), st.integers(0, 9999))


@st.composite
def memories(draw: st.DrawFn, probe: Instance) -> Memory | None:
    """None, no limit, or limits from the smallest feasible one up, per stage and per device or uniform."""
    if draw(st.booleans()):
        return None
    if draw(st.booleans()):
        weight = draw(st.integers(0, 3))
        backward = draw(st.integers(0, 3))
        forward: Any = weight + backward
        deltas: tuple[Any, Any, Any] = (forward, -backward, -weight)
    else:
        pairs = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(probe.stages)]
        deltas = ([b + w for b, w in pairs], [-b for b, _ in pairs], [-w for _, w in pairs])
    unlimited = Memory(*deltas, None)
    if draw(st.booleans()):
        return unlimited
    needs = Instance.uniform(
        devices=probe.devices,
        microbatches=probe.microbatches,
        forward=1,
        backward=1,
        weight=1,
        placement=probe.placement.name,
        memory=unlimited,
    )
    least = [needs.smallest_limit(d) for d in range(probe.devices)]
    extra = draw(st.integers(0, 8))
    limit: Any = [value + extra for value in least] if draw(st.booleans()) else max(least) + extra
    return Memory(*deltas, limit)
