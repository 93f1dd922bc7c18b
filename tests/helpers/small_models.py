"""Small planning problems by seed, and all their candidates by enumeration, without the search for plans.

The schedules of candidates are those of `best`, and candidates whose formulas are too high are skipped.
"""

from __future__ import annotations

import csv
import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import NamedTuple

from tightpipe import Instance, Placement, solve
from tightpipe.base.errors import InputError
from tightpipe.model.costs import Objective
from tightpipe.planning import (
    Batch,
    Candidate,
    Cluster,
    Layer,
    Model,
    PlanningProblem,
    Recomputation,
    SearchSpace,
)
from tightpipe.planning.candidate import StageNumbers, instance_of, stage_numbers
from tightpipe.planning.cluster import Gradients, Network
from tightpipe.planning.layered_model import Recomputed
from tightpipe.planning.problem_file import problem_to_dict
from tightpipe.solver.bounds.formulas import best_bound

Cuts = tuple[int, ...]
BEST_PLANS = Path(__file__).parents[1] / "data" / "small_plans.csv"


class KnownPlan(NamedTuple):
    """The least cost of a plan of the problem with this seed, None if nothing fits; its digest tells changes."""

    seed: int
    digest: str
    cost: int | None


def known_plans() -> list[KnownPlan]:
    """Return every line of the file that `benchmarks/small_plans.py` wrote."""
    with BEST_PLANS.open(newline="") as file:
        return [
            KnownPlan(int(row["seed"]), row["digest"], int(row["cost"]) if row["cost"] else None)
            for row in csv.DictReader(file)
        ]


def digest(problem: PlanningProblem) -> str:
    """Return a short name of the problem's content."""
    text = json.dumps(problem_to_dict(problem), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def all_cuts(layers: int, stages: int, *, empty: bool = False) -> list[Cuts]:
    """Return all cuts; with `empty`, stages but the first and the last one may have no layers."""
    found = (
        product(range(1, layers), repeat=stages - 1) if empty else combinations(range(1, layers), stages - 1)
    )
    return [(0, *inner, layers) for inner in found if list(inner) == sorted(inner)]


def recomputable(problem: PlanningProblem, first: int, end: int) -> list[Recomputed]:
    """Return every choice of a kind of recomputation, or none, for the layers of a stage."""
    layers, allowed = problem.model.layers, problem.space.recompute
    if not any(layer.backward for layer in layers[first:end]):
        return [()]
    kinds = [[None, *(k.name for k in layer.recompute if k.name in allowed)] for layer in layers[first:end]]
    return [
        tuple((first + i, kind) for i, kind in enumerate(chosen) if kind is not None)
        for chosen in product(*kinds)
    ]


def candidates(problem: PlanningProblem, placement: Placement) -> Iterator[Candidate]:
    """Yield all candidates; of those whose stages take the same times and bytes, one."""
    ways: dict[tuple[int, int], dict[StageNumbers, Recomputed]] = {}
    for cuts in all_cuts(len(problem.model.layers), placement.stages, empty=problem.space.empty):
        for stage in pairwise(cuts):
            if stage not in ways:
                ways[stage] = {
                    stage_numbers(problem, *stage, again): again for again in recomputable(problem, *stage)
                }
        for chosen in product(*(ways[stage].values() for stage in pairwise(cuts))):
            yield Candidate(placement, cuts, chosen)


def instances(problem: PlanningProblem) -> set[Instance]:
    """Return the scheduling problems of all candidates that fit, in all placements."""
    found = set()
    for name, devices in product(problem.space.placements, problem.cluster.devices):
        for candidate in candidates(problem, Placement(name, devices)):
            try:
                instance = instance_of(problem, candidate)
            except InputError:
                continue
            if instance.infeasibility() is None:
                found.add(instance)
    return found


class TooHardError(Exception):
    """No optimum was proven with so much effort."""


def optimum(problem: PlanningProblem, effort: float = 60) -> int | None:
    """Return the least cost of a plan, by exact schedules of every candidate that may be cheaper."""
    best = None
    bounded = ((best_bound(instance).value, instance) for instance in instances(problem))
    for bound, instance in sorted(bounded, key=lambda pair: pair[0]):
        if best is None or bound < best:
            found = solve(instance, "best", effort=effort, workers=1)
            if found.status != "optimal" or found.cost is None:
                raise TooHardError
            best = found.cost if best is None else min(best, found.cost)
    return best


def random_problem(seed: int) -> PlanningProblem:
    """Return a problem of up to 10 layers on 2 or 3 devices; half have scarce memory, a third recompute."""
    rng = random.Random(seed)
    devices, recompute = rng.choice((2, 3)), rng.random() < 1 / 3
    kinds = [_layer(rng, f"kind {k}") for k in range(rng.randint(1, 3))]
    count = rng.randint(devices, 7 if recompute else 10)
    names = [name for name in ("linear", "v", "loop") if count >= devices * (1 if name == "linear" else 2)]
    placements = tuple(rng.sample(names, rng.randint(1, len(names))))
    most = 6 if devices == 2 or placements == ("linear",) else 4  # six stages are much to enumerate
    model = Model(tuple(rng.choice(kinds) for _ in range(count)))
    state = rng.randint(0, 5), Fraction(rng.randint(0, 4), 2), _comm(rng, devices)
    reduced = Gradients(2, Fraction(2), Fraction(1), Fraction(1, 2), Fraction(1, 4), Fraction(3, 8))
    cluster = Cluster((devices,), None, *state, reduced if rng.random() < 1 / 3 else None)
    free = PlanningProblem(
        model,
        cluster,
        Batch(rng.randint(4, most), data_parallel=1 if cluster.gradients is None else 2),
        SearchSpace(
            placements, recompute=model.kinds if recompute else (), objective=rng.choice(list(Objective))
        ),
    )
    return with_memory(free, rng) if rng.random() < 1 / 2 else free


def with_memory(problem: PlanningProblem, rng: random.Random) -> PlanningProblem:
    """Limit memory to some of what all layers take on one device; little of it may be too little."""
    layers = problem.model.layers
    static = problem.cluster.static_bytes(sum(layer.parameters for layer in layers))
    whole = static + 2 * sum(layer.activation for layer in layers)
    share = rng.uniform(0.6, 1.4) / problem.cluster.devices[0]
    memory = problem.cluster.reserve + 1 + int(whole * share)
    return replace(problem, cluster=replace(problem.cluster, memory=memory))


def _layer(rng: random.Random, name: str) -> Layer:
    activation = rng.randint(1, 30)
    forward = rng.randint(0 if rng.random() < 0.2 else 1, 9)
    return Layer(
        name,
        forward,
        *(rng.randint(0 if rng.random() < 0.2 else 1, 9) for _ in range(2)),
        activation=activation,
        weight_activation=rng.randint(0, activation),
        recompute=_full(rng, forward, activation),
        output=rng.randint(1, 5),
        parameters=rng.randint(0, 10),
        fused=rng.choice((None, None, rng.randint(1, 16))),
    )


def _full(rng: random.Random, forward: int, activation: int) -> tuple[Recomputation, ...]:
    kept = rng.choice((None, rng.randint(0, activation)))
    return () if kept is None else (Recomputation("full", forward, kept),)


def _comm(rng: random.Random, devices: int) -> int | tuple[tuple[int, ...], ...] | Network:
    matrix = tuple(tuple(rng.randint(0, 4) * (i != j) for j in range(devices)) for i in range(devices))
    return rng.choice((0, rng.randint(1, 7), matrix, Network(Fraction(1, 2), Fraction(rng.randint(1, 3), 2))))
