"""Instances with proven optima, and random tiny ones, for the tests of bounds and exact methods."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from helpers.cases import uniform
from tightpipe import Instance, Memory

TINY_SHAPES = (
    ("linear", 1, 2),
    ("linear", 2, 2),
    ("linear", 3, 2),
    ("v", 1, 2),
    ("v", 2, 2),
    ("v", 3, 1),
    ("v", 3, 2),
    ("loop", 2, 2),
    ("loop", 3, 1),
    ("wave", 1, 1),
    ("wave", 2, 1),
    ("bidirectional", 2, 2),
)


def plain_memory(limit: int) -> Memory:
    """+2 per F, -1 per B and W: a pending W holds half an activation."""
    return Memory(2, -1, -1, limit)


def table_memory(devices: int) -> Memory:
    """Proportions of the settings table's first models, at 2p activations."""
    return Memory(74, -42, -32, 74 * 2 * devices)


def v_instance(p: int, n: int, costs: tuple[int, int, int, int], memory: Memory) -> Instance:
    """V placement, device spans."""
    return uniform(p, n, costs[:3], comm=costs[3], memory=memory)


def one_stage(p: int, n: int, costs: tuple[int, int, int, int], limit: int) -> Instance:
    """One stage per device, device spans."""
    return uniform(p, n, costs[:3], comm=costs[3], placement="linear", memory=plain_memory(limit))


ONE_STAGE_COSTS = {
    "2x4 (10,10,10,0)": (one_stage(2, 4, (10, 10, 10, 0), 8), 120),
    "2x4 (10,12,8,1)": (one_stage(2, 4, (10, 12, 8, 1), 4), 138),
    "3x6 (10,12,8,1)": (one_stage(3, 6, (10, 12, 8, 1), 6), 216),
    "4x4 (10,12,8,1)": (one_stage(4, 4, (10, 12, 8, 1), 8), 168),
    "4x8 (10,12,8,1)": (one_stage(4, 8, (10, 12, 8, 1), 8), 294),
}
"""Instances with one stage per device and their proven optimal costs."""


def tiny_instance(shape: tuple[str, int, int], seed: int, objective: str, *, limited: bool) -> Instance:
    """Random costs and deltas, per stage or uniform, and a limit from the smallest feasible one up."""
    placement, devices, microbatches = shape
    rng = random.Random(f"{shape} {seed} {objective} {limited}")
    sizes: dict[str, Any] = {"devices": devices, "microbatches": microbatches, "placement": placement}
    stages = Instance.uniform(**sizes, forward=1, backward=1, weight=1).stages
    per_stage = rng.random() < 0.5

    def ticks(largest: int) -> Any:
        values = [rng.randint(1, largest) for _ in range(stages)]
        return values if per_stage else values[0]

    costs = {"forward": ticks(9), "backward": ticks(14), "weight": ticks(6), "comm": rng.randint(0, 3)}
    b, w = rng.randint(-2, 0), rng.randint(-2, 0)
    free = Instance.uniform(**sizes, **costs, memory=Memory(-b - w, b, w, None), objective=objective)
    if not limited:
        return free
    least = max(free.smallest_limit(d) for d in range(devices))
    memory = Memory(-b - w, b, w, least + rng.randint(0, 4))
    return Instance.uniform(**sizes, **costs, memory=memory, objective=objective)


def with_busy_links(instance: Instance, occupancy: int) -> Instance:
    """Let every message keep its link busy for `occupancy` ticks."""
    costs = dataclasses.replace(instance.costs, link_occupancy=occupancy)
    return dataclasses.replace(instance, costs=costs)
