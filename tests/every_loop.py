"""Everything that runs compiled loops, in one process; prints as JSON which it called and which it had to compile."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tightpipe import InputError, Instance, Memory, Schedule, bound, certify, retime, simulate, solve
from tightpipe.core.budget import Budget
from tightpipe.core.instance import Objective
from tightpipe.core.placement import PLACEMENTS
from tightpipe.core.progress import ignore
from tightpipe.drawing import draw_text
from tightpipe.explain import explain
from tightpipe.kernels.compiled import LOOPS
from tightpipe.noise import Jitter, run_noisy
from tightpipe.planning import Batch, Cluster, Layer, Model, PlanningProblem, SearchSpace, plan
from tightpipe.program import lower, replay
from tightpipe.solver.bound import bound_searches
from tightpipe.solving.methods import METHODS
from tightpipe.solving.starts import warm_starts

TICKS: dict[str, Any] = {"devices": 2, "microbatches": 4, "forward": 10, "backward": 12, "weight": 8}
HARD: dict[str, Any] = {"devices": 4, "microbatches": 8, "forward": 8, "backward": 14, "weight": 8, "comm": 2}
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"memory": Memory(2, -1, -1, 16)},
    {"comm": [[0, 3], [4, 0]], "objective": "makespan"},
    {"comm": 3, "link_occupancy": 2, "memory": Memory(2, -1, -1, [14, 16])},
    {"iterations": 2, "flush": True},
    {"iterations": 2, "flush": False},
    {"overlapped": 20},
)

SECONDS = 0.2  # of each search: enough for every loop to be called, which the test looks at


def instances() -> Iterator[Instance]:
    for placement in PLACEMENTS:
        stages = Instance.uniform(placement=placement, **TICKS).stages
        uneven = {"forward": list(range(10, 10 + stages)), "backward": [12 - s % 2 for s in range(stages)]}
        for variant in (*VARIANTS, uneven):
            yield Instance.uniform(placement=placement, **{**TICKS, "microbatches": 8, **variant})


def searched(instance: Instance, workers: int) -> None:
    for name in ("cpsat", "milp", "improve", "block", "best"):
        try:
            solve(instance, name, time_limit=SECONDS, workers=workers)
        except InputError:
            assert instance.costs.overlapped or instance.iterations > 1
    bound(instance, time_limit=SECONDS, workers=workers)


def used(schedule: Schedule) -> None:
    instance = schedule.instance
    simulate(instance, schedule.order)
    retime(instance, schedule.order)
    explain(schedule)
    draw_text(schedule)
    replay(lower(schedule))
    run_noisy([schedule], (Jitter(0.1),), samples=40)


def planned() -> None:
    """Plan with tables of every kind and with lists; with and without memory, and where nothing fits."""
    layers = (Layer("layer", 10, 12, 8, activation=3, weight_activation=1, input=1, parameters=1),) * 12
    for memory, objective in ((None, Objective.DEVICE_SPAN), (60, Objective.MAKESPAN)):
        cluster = Cluster((2,), memory, bytes_per_parameter=Fraction(1, 2), comm=1)
        for placements, chunks in ((("linear", "v", "loop"), (1, 2)), (("loop", "wave"), (3, 6))):
            space = SearchSpace(placements, chunks, memory is not None, objective)
            plan(PlanningProblem(Model(layers), cluster, Batch(4), space), time_limit=20 * SECONDS, workers=1)
    nothing_fits = Cluster((2,), memory=3)
    plan(PlanningProblem(Model(layers), nothing_fits, Batch(4)), time_limit=SECONDS, workers=1)
    without_w = Model(
        (replace(layers[0], weight=0), *layers[1:])
    )  # cuts with this layer alone are only bounded
    plan(PlanningProblem(without_w, nothing_fits, Batch(4)), time_limit=SECONDS, workers=1)


def main() -> None:
    for instance in instances():
        for name, method in METHODS.items():
            if method.kind == "heuristic" and instance.placement.name in method.placements:
                solve(instance, name)
        for _, schedule in warm_starts(instance)[:1]:
            used(schedule)
    for variant in VARIANTS:
        searched(Instance.uniform(placement="v", **{**TICKS, **variant}), 1)
    for limit, workers in ((16, 1), (None, 2), (16, 3)):
        hard = Instance.uniform(memory=Memory(2, -1, -1, limit), **HARD)
        searched(hard, workers)
        for search, _ in bound_searches():
            search(hard, 1000, Budget(threads=workers).within(SECONDS), 0, ignore)
    planned()
    certify(Instance.uniform(memory=Memory(2, -1, -1, 8), comm=1, **TICKS), 246, time_limit=60)
    called = sorted(loop.name for loop in LOOPS if loop.called)
    misses = {loop.name: loop.misses for loop in LOOPS if loop.misses}
    json.dump({"loops": len(LOOPS), "called": called, "misses": misses}, sys.stdout)


if __name__ == "__main__":
    main()
