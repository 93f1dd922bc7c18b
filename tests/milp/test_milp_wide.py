"""The mixed-integer model of instances with all rules: joint and absent operations, steps, slices, flushes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.cases import classed, mixed_order, sliced, uniform, wide_instances
from helpers.independent_model import optimal_schedule
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Memory, Schedule, Status, retime, validate
from tightpipe.model.costs import MicrobatchClass, MicrobatchSlice, Step
from tightpipe.model.graph import graph_of
from tightpipe.model.metrics import cost, peak_memory
from tightpipe.params.budget import Budget
from tightpipe.solver.engine.run import in_queue_order
from tightpipe.solver.milp import solve_milp
from tightpipe.solver.milp.model import MilpModel
from tightpipe.solver.queues import queues_of
from tightpipe.solver.windows import windows_of_edges

SECONDS = 60


def model_of(schedule: Schedule) -> MilpModel:
    """The model with windows of the edges alone, which starts from the schedule."""
    queues = queues_of(schedule.instance, pooled=not graph_of(schedule.instance).joint)
    model = MilpModel(queues, windows_of_edges(queues, cost(schedule)), 0)
    model.set_start(schedule, cost(schedule))
    return model


def tight(instance: Instance, order_seed: int) -> Schedule:
    """A random schedule, fused, split and paired at random, of the instance with just the memory that it needs."""
    schedule = in_queue_order(retime(instance, mixed_order(instance, order_seed)))
    if instance.memory is None:
        return schedule
    memory = replace(instance.memory, limit=None)
    free = replace(instance, memory=memory)
    limit = peak_memory(replace(schedule, instance=free)).tolist()
    limit = [max(peak, free.smallest_limit(d)) for d, peak in enumerate(limit)]
    return replace(schedule, instance=replace(free, memory=replace(memory, limit=limit)))


@settings(max_examples=60, deadline=None)
@given(wide_instances(max_microbatches=3), st.sampled_from(["", "classes", "slices"]), st.integers(0, 9999))
def test_a_schedule_with_joint_operations_is_a_solution_of_its_model(
    instance: Instance, more: str, seed: int
) -> None:
    if more:
        assume(instance.memory is None or more == "classes")
        instance = classed(instance, seed) if more == "classes" else sliced(instance, seed)
    start = tight(instance, seed)
    assert validate(start.instance, start) == []
    model = model_of(start)
    assert all(v.valid(1e-9) for v in model.problem.variables())
    assert [str(row) for row in model.problem.constraints() if not row.valid(1e-9)] == []
    assert model.order(lambda variable: variable.varValue) == start.order


def test_a_schedule_over_the_memory_limit_is_no_solution_where_backwards_are_fused() -> None:
    instance = uniform(2, 3, (3, 4, 2), fused=5, comm=1, placement="linear", memory=Memory(2, -1, -1, 6))
    found = 0
    for seed in range(20):
        start = tight(instance, seed)
        memory = start.instance.memory
        assert memory is not None
        less = replace(memory, limit=[max(2, limit - 1) for limit in memory.limit])  # type: ignore[union-attr]
        other = replace(start, instance=replace(start.instance, memory=less))
        over = any(str(one).startswith("memory") for one in validate(other.instance, other))
        assert model_of(other).problem.valid(1e-9) is not over
        found += over
    assert found > 5


COSTS = {"comm": 1, "memory": Memory(2, -1, -1, 4)}
RULES: dict[str, Instance] = {
    "fused backwards": uniform(2, 3, (4, 5, 3), fused=6, placement="linear", **COSTS),
    "fused backwards of a V": uniform(2, 1, (4, 5, 5), fused=7, comm=1),
    "pairs": uniform(2, 3, (4, 5, 3), overlapped=8, placement="linear", **COSTS),
    "a frozen stage": uniform(2, 3, (4, [0, 5], [0, 3]), placement="linear", comm=1),
    "an embedding": uniform(2, 3, (4, [0, 5], [2, 3]), placement="linear", comm=1),
    "forwards alone": uniform(3, 2, (4, 0, 0), placement="linear", comm=9),
    "a step": uniform(
        2,
        3,
        (4, 5, 3),
        comm=1,
        placement="linear",
        objective="step",
        step=Step([0, 7], [9, 4], [2, 3]),
    ),
    "reductions of two stages": uniform(
        1, 2, (4, 5, 3), objective="step", step=Step([2, 0], [9, 8], 3), fused=7
    ),
    "slices": uniform(
        2,
        1,
        (4, 5, 3),
        placement="linear",
        comm=1,
        slices=[MicrobatchSlice(), MicrobatchSlice(forward=6, fused=7)],
    ),
    "flushes": uniform(2, 4, (4, 5, 3), iterations=2, placement="linear", **COSTS),
    "classes of fused backwards": uniform(
        2,
        None,
        (4, 5, 3),
        fused=6,
        placement="linear",
        comm=1,
        classes=[MicrobatchClass(2), MicrobatchClass(1, forward=7, fused=11)],
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_the_cheapest_schedule_is_found_and_proven(rule: str) -> None:
    instance = RULES[rule]
    least = cost(optimal_schedule(instance))
    result = solve_milp(instance, Budget(threads=2).within(SECONDS))
    assert (result.cost, result.bound, result.status) == (least, least, Status.OPTIMAL)
    assert result.schedule is not None
    assert validate(instance, result.schedule) == []


@settings(max_examples=10, deadline=None)
@given(
    wide_instances(max_devices=2, max_microbatches=3, most_operations=24), st.booleans(), st.integers(0, 99)
)
def test_no_bound_is_above_the_optimum_of_a_random_wide_instance(
    instance: Instance, differ: bool, seed: int
) -> None:
    if differ:
        instance = classed(instance, seed)
    least = cost(optimal_schedule(instance))
    result = solve_milp(instance, Budget(threads=1).within(1))
    assert result.bound <= least <= result.cost
    assert (result.status is Status.OPTIMAL) == (result.bound == result.cost)
    assert validate(instance, result.schedule) == []
