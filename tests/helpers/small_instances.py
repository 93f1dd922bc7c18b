"""Random small instances by seed, and their proven optima as `benchmarks/small_optima.py` wrote them."""

from __future__ import annotations

import csv
import hashlib
import json
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tightpipe import Instance, Memory, Placement
from tightpipe.model.costs import Costs, Objective
from tightpipe.model.instance_file import instance_to_dict

OPTIMA = Path(__file__).parents[1] / "data" / "small_optima.csv"
_CHUNKS = {"linear": (1, 1, 2), "v": (2,), "loop": (1, 2, 2), "wave": (2, 4), "bidirectional": (1,)}
_MOST_OPERATIONS = 84  # CP-SAT closes most of these in seconds


@dataclass(frozen=True, slots=True)
class Known:
    """An instance and its optimum.

    Parameters
    ----------
    seed
        Of `small_instance`.
    digest
        Of the instance, to notice when the generator has changed.
    optimum
        Its least cost.
    proof
        What proved it: `brute` force, the `plain` model without bounds or windows, or the `lattice` model.
    """

    seed: int
    digest: str
    optimum: int
    proof: str


def known_optima() -> list[Known]:
    """Return every line of the file."""
    with OPTIMA.open(newline="") as file:
        return [
            Known(int(row["seed"]), row["digest"], int(row["optimum"]), row["proof"])
            for row in csv.DictReader(file)
        ]


def digest(instance: Instance) -> str:
    """Return a short name of the instance's content."""
    text = json.dumps(instance_to_dict(instance), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@cache  # several tests ask for all of them
def small_instance(seed: int) -> Instance:
    """Return a random instance that has a schedule, of any placement, objective, and kind of cost and limit."""
    rng = random.Random(seed)
    return random_instance(rng, *_shape(rng))


def random_instance(rng: random.Random, placement: Placement, microbatches: int) -> Instance:
    """Return a random instance of this shape that has a schedule."""
    memory = _memory(rng, placement)
    objective = rng.choice([Objective.DEVICE_SPAN, Objective.MAKESPAN])
    free = Instance(placement, microbatches, _costs(rng, placement), memory, objective)
    return free if memory is None else _limited(rng, free)


def _shape(rng: random.Random) -> tuple[Placement, int]:
    while True:
        name = rng.choice(list(_CHUNKS))
        devices = rng.choice((2, 4)) if name == "bidirectional" else rng.randint(2, 4)
        placement = Placement(name, devices, rng.choice(_CHUNKS[name]))
        microbatches = rng.choice((2, 4)) if name == "bidirectional" else rng.randint(1, 5)
        if 3 * placement.stages * microbatches <= _MOST_OPERATIONS:
            return placement, microbatches


def _costs(rng: random.Random, placement: Placement) -> Costs:
    """Draw W from 1 up to about B; B shorter or longer than F; communication up to half of F; few busy links."""
    f = rng.randint(2, 20)
    b = max(1, int(f * rng.uniform(0.4, 2.2)))
    w = 1 if rng.random() < 0.25 else rng.randint(1, max(1, b))
    c = rng.choice((0, rng.randint(0, f // 2)))
    vary = rng.random() < 0.4

    def per_stage(mean: int) -> Any:
        return [max(1, int(mean * rng.uniform(0.4, 1.8))) for _ in range(placement.stages)] if vary else mean

    comm: Any = c
    if rng.random() < 0.2:
        devices = range(placement.devices)
        comm = without_diagonal([[rng.randint(0, f // 2) for _ in devices] for _ in devices])
    busy = rng.randint(1, 2 * f) if rng.random() < 0.15 else 0
    return Costs(per_stage(f), per_stage(b), per_stage(w), comm, link_occupancy=busy)


def without_diagonal(rows: Any) -> list[list[int]]:
    """The same communication times, of which a device pays none to itself."""
    return [[ticks * (i != j) for j, ticks in enumerate(row)] for i, row in enumerate(rows)]


def _memory(rng: random.Random, placement: Placement) -> Memory | None:
    """Draw deltas without a limit: a pending W holds nothing up to everything."""
    if rng.random() < 0.1:
        return None
    stages = placement.stages if rng.random() < 0.25 else 1
    pairs = [(rng.randint(0, 3), rng.randint(0, 3)) for _ in range(stages)]
    deltas = [[b + w for b, w in pairs], [-b for b, _ in pairs], [-w for _, w in pairs]]
    return Memory(*(delta if stages > 1 else delta[0] for delta in deltas), limit=None)


def _limited(rng: random.Random, instance: Instance) -> Instance:
    """Limit memory to between the least that works and enough for about two more microbatches."""
    memory = instance.memory
    assert memory is not None
    least = [instance.smallest_limit(d) for d in range(instance.devices)]
    room = rng.randint(0, 2 * max(1, *least)) if rng.random() < 0.8 else 0
    limit: Any = [low + room for low in least] if rng.random() < 0.3 else max(least) + room
    limited = Memory(memory.forward, memory.backward, memory.weight, limit)
    return Instance(instance.placement, instance.microbatches, instance.costs, limited, instance.objective)
