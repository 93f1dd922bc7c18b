"""Instances with offload and scarce memory, for tests of searches and heuristics."""

from __future__ import annotations

import random
from dataclasses import replace

from helpers.copies import offloading
from helpers.exact_cases import v_instance
from tightpipe import Instance, Memory, Offload


def copying(instance: Instance, seed: int) -> Instance:
    """The instance with activations that may leave, and with limits near the smallest ones without copies."""
    free, rng = offloading(instance, seed), random.Random(seed)
    assert free.memory is not None
    stays = replace(free, offload=None)
    limit = [stays.smallest_limit(d) + rng.randint(0, 3) for d in range(free.devices)]
    return replace(free, memory=replace(free.memory, limit=limit))


def copying_v(devices: int, microbatches: int, limit: int, ticks: int) -> Instance:
    """F, B and W of 10, 10 and 8 on a V, half of each activation may leave, and copies take `ticks`."""
    instance = v_instance(devices, microbatches, (10, 10, 8, 0), Memory(2, -1, -1, limit))
    return replace(instance, objective="makespan", offload=Offload(1, ticks, ticks))
