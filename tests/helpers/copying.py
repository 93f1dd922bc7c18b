"""Instances whose activations may leave, for several tests."""

from __future__ import annotations

import random
from dataclasses import replace

from helpers.exact_cases import v_instance
from tightpipe import Instance, Memory, OpKind
from tightpipe.model.costs import Offload


def copying(instance: Instance, seed: int) -> Instance:
    """What leaves is drawn at random at each stage, with copies of up to 15 ticks; limits where there are none."""
    rng, stages = random.Random(seed), range(instance.stages)
    instance = replace(instance, iterations=1)
    if instance.memory is None and instance.complete:
        free = replace(instance, memory=Memory(2, -1, -1), classes=(), slices=())
        room = rng.randint(0, 3)
        limit = [free.smallest_limit(d) * instance.slice_count + room for d in range(instance.devices)]
        instance = replace(instance, memory=Memory(2, -1, -1, limit))
    if instance.memory is None:
        return instance
    classes = range(len(instance.class_counts))
    leaves = [
        rng.randint(0, min(instance.memory_delta(OpKind.F, s, c) for c in classes))
        if all(instance.has(OpKind.B, s, c) or instance.has(OpKind.W, s, c) for c in classes)
        else 0
        for s in stages
    ]
    out, back = ([rng.randint(1, 15) for _ in stages] for _ in range(2))
    return replace(instance, offload=Offload(leaves, out, back, rng.random() < 0.7))


def copying_v(devices: int, microbatches: int, limit: int, ticks: int) -> Instance:
    """F, B and W of 10, 10 and 8 on a V, half of each activation may leave, and copies take `ticks`."""
    instance = v_instance(devices, microbatches, (10, 10, 8, 0), Memory(2, -1, -1, limit))
    return replace(instance, objective="makespan", offload=Offload(1, ticks, ticks))
