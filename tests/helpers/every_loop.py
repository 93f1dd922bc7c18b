"""Everything that runs compiled loops, in one process.

Prints as JSON which loops were called, which had to be compiled, and which are in no group of their caller.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

from tightpipe import InputError, Instance, Memory, Offload, Schedule, bound, certify, retime, simulate, solve
from tightpipe.drawing import draw_text
from tightpipe.explain import explain
from tightpipe.kernels.compiled import LOOPS, compile_ahead, recorded_calls
from tightpipe.model.costs import MicrobatchClass, Objective
from tightpipe.model.placement import PLACEMENTS
from tightpipe.model.result import ignore
from tightpipe.noise import Jitter, run_noisy
from tightpipe.params.budget import UNLIMITED, Budget, TimeUpError
from tightpipe.planning import Batch, Cluster, Layer, Model, PlanningProblem, Recomputation, SearchSpace, plan
from tightpipe.planning.cluster import Host
from tightpipe.planning.configuration import configurations_of
from tightpipe.planning.device_bound_kernel import NEVER
from tightpipe.planning.partitions import relaxed_candidate
from tightpipe.planning.planner import loops_of_plan
from tightpipe.program import lower, replay
from tightpipe.registry.methods import METHODS, loops_of
from tightpipe.registry.solve import SEARCH_LOOPS
from tightpipe.registry.starts import loops_of_starts, warm_starts
from tightpipe.solver.best import bound_searches

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

SEARCHING = ("cpsat", "milp", "improve", "block", "best")
SECONDS = 0.6  # of each search: enough for every loop to be called, which the test looks at


undeclared: dict[str, set[str]] = {}


def watched(what: str, groups: Iterable[str], run: Callable[[], object]) -> None:
    """Run something, and note the loops that it calls with types for which none of its groups compiles them."""
    with recorded_calls() as calls:
        run()
    more = calls.difference(*compile_ahead(groups).values())
    if more:
        undeclared.setdefault(what, set()).update(name for name, _ in more)


def instances() -> Iterator[Instance]:
    for placement in PLACEMENTS:
        stages = Instance.uniform(placement=placement, **TICKS).stages
        uneven = {"forward": list(range(10, 10 + stages)), "backward": [12 - s % 2 for s in range(stages)]}
        pairs = {"pairs": [list(range(20, 20 + stages))] * stages}
        for variant in (*VARIANTS, uneven, pairs):
            yield Instance.uniform(placement=placement, **{**TICKS, "microbatches": 8, **variant})


def one_longer() -> Instance:
    """Return an instance in whose memory only one microbatch fits beside the longest, so that devices wait."""
    costs: dict[str, Any] = {"forward": 10, "backward": 10, "weight": 10, "memory": Memory(10, -5, -5, 140)}
    classes = (MicrobatchClass(7), MicrobatchClass(1, 60, 60, 60, memory=Memory(60, -30, -30)))
    return Instance.uniform(devices=3, microbatches=8, objective="makespan", classes=classes, **costs)


def searched(instance: Instance, workers: int) -> None:
    options: dict[str, Any] = {"time_limit": SECONDS, "workers": workers}
    for name, start in (*((name, "best") for name in SEARCHING), ("best", None), ("best", "list")):
        groups = loops_of(METHODS[name], instance, start)
        try:
            watched(name, groups, partial(solve, instance, name, warm_start=start, **options))
        except InputError:
            assert instance.has_pairs or instance.iterations > 1 or instance.offload
    starts = loops_of_starts(instance, "best")
    watched("bound", (*starts, *SEARCH_LOOPS), lambda: bound(instance, **options))


def used(schedule: Schedule) -> None:
    instance = schedule.instance
    simulate(instance, schedule.order)
    retime(instance, schedule.order)
    explain(schedule)
    draw_text(schedule)
    replay(lower(schedule))
    watched("noise", ("times", "noise"), lambda: run_noisy([schedule], (Jitter(0.1),), samples=40))


def planned() -> None:
    """Plan with tables of every kind and with lists; with and without memory, and where nothing fits."""
    kinds = (Recomputation("full", 10, 1),)
    layer = Layer("layer", 10, 12, 8, activation=3, weight_activation=1, recompute=kinds, parameters=1)
    layers = (layer,) * 12
    for memory, objective in ((None, Objective.DEVICE_SPAN), (60, Objective.MAKESPAN)):
        cluster = Cluster((2,), memory, bytes_per_parameter=Fraction(1, 2), comm=1)
        for placements, chunks in ((("linear", "v", "loop"), (1, 2)), (("loop", "wave"), (3, 6))):
            space = SearchSpace(placements, chunks, ("full",) if memory else (), objective)
            plan_watched(PlanningProblem(Model(layers), cluster, Batch(4), space), 7 * SECONDS)
    leaving, host = Model((replace(layer, offload=2),) * 12), Host(Fraction(1), Fraction(1))
    scarce = Cluster((2,), 36, bytes_per_parameter=Fraction(1, 2), host=host)
    plan_watched(PlanningProblem(leaving, scarce, Batch(4), SearchSpace(("v",))), 2 * SECONDS)
    nothing_fits = Cluster((2,), memory=3)
    plan_watched(PlanningProblem(Model(layers), nothing_fits, Batch(4)), SECONDS)
    without_w = Model(
        (replace(layers[0], weight=0), *layers[1:])
    )  # cuts with this layer alone are only bounded
    plan_watched(PlanningProblem(without_w, nothing_fits, Batch(4)), SECONDS)


def plan_watched(problem: PlanningProblem, seconds: float) -> None:
    configurations = configurations_of(problem)
    for configuration in configurations:  # a short search may not come to this
        with suppress(TimeUpError):
            relaxed_candidate(configuration, NEVER, 1.5, UNLIMITED.within(SECONDS))
    watched("plan", loops_of_plan(configurations), lambda: plan(problem, time_limit=seconds, workers=1))


def run() -> None:
    for instance in instances():
        for name, method in METHODS.items():
            if method.kind == "heuristic" and instance.placement.name in method.placements:
                watched(name, loops_of(method, instance, None), partial(solve, instance, name))
        for _, schedule in warm_starts(instance)[:1]:
            used(schedule)
    for variant in VARIANTS:
        searched(Instance.uniform(placement="v", **{**TICKS, **variant}), 1)
    for limit, workers in ((16, 1), (None, 2), (16, 3)):
        hard = Instance.uniform(memory=Memory(2, -1, -1, limit), **HARD)
        searched(hard, workers)
        for asked in bound_searches():
            asked.search(hard, 1000, Budget(threads=workers).within(SECONDS), 0, ignore)
    planned()
    for objective in ("device_span", "makespan"):  # in memory that holds less than all activations
        copied = {"memory": Memory(2, -1, -1, 8), "offload": Offload(1, 3, 3), "objective": objective}
        searched(Instance.uniform(placement="v", **{**TICKS, **copied}), 1)
    longer = one_longer()
    # by effort, as on a busy machine a time limit may end before rules begin
    improved = partial(solve, longer, "improve", effort=2, workers=1)
    watched("improve", loops_of(METHODS["improve"], longer, "best"), improved)
    certify(Instance.uniform(memory=Memory(2, -1, -1, 8), comm=1, **TICKS), 246, time_limit=60)


def main() -> None:
    with recorded_calls() as calls:
        run()
    misses = {loop.name: loop.misses for loop in LOOPS if loop.misses}
    answer = {"loops": len(LOOPS), "called": sorted({name for name, _ in calls}), "misses": misses}
    json.dump(
        {**answer, "undeclared": {what: sorted(names) for what, names in undeclared.items()}}, sys.stdout
    )


if __name__ == "__main__":
    main()
