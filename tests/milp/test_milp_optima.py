"""The mixed-integer model against known optima and against CP-SAT."""

import pytest
from helpers.cases import instances, serial_order
from helpers.exact_cases import ONE_STAGE_COSTS, TINY_SHAPES, plain_memory, tiny_instance, v_instance
from hypothesis import given, settings

from tightpipe import Instance, Status, retime, validate
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost
from tightpipe.params.budget import Budget
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.cpsat import solve_cpsat
from tightpipe.solver.milp import solve_milp

SECONDS = 60


@pytest.mark.parametrize("name", ONE_STAGE_COSTS)
def test_common_set(name: str) -> None:
    instance, best = ONE_STAGE_COSTS[name]
    warm_start = retime(instance, HEURISTICS["zb-auto"].make(instance))
    result = solve_milp(instance, Budget(threads=2).within(SECONDS), warm_start)
    assert (result.cost, result.bound, result.status) == (best, best, Status.OPTIMAL)
    assert validate(instance, result.schedule) == []


@pytest.mark.parametrize("name", ["2x4 (10,10,10,0)", "2x4 (10,12,8,1)", "4x4 (10,12,8,1)"])
def test_common_set_without_a_warm_start(name: str) -> None:
    instance, best = ONE_STAGE_COSTS[name]
    result = solve_milp(instance, Budget(threads=2).within(SECONDS))
    assert (result.cost, result.bound, result.status) == (best, best, Status.OPTIMAL)


def test_optimum_above_every_analytic_bound() -> None:
    instance = v_instance(2, 4, (10, 12, 8, 1), plain_memory(8))
    warm_start = retime(instance, HEURISTICS["greedy-v"].make(instance))
    result = solve_milp(instance, Budget(threads=2).within(SECONDS), warm_start)
    assert best_bound(instance).value < result.bound == result.cost < cost(warm_start)
    assert result.bubble == 6


@pytest.mark.sampled(3)
@pytest.mark.parametrize("objective", ["device_span", "makespan"])
@pytest.mark.parametrize("shape", TINY_SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_agrees_with_cpsat(shape: tuple[str, int, int], objective: str) -> None:
    instance = tiny_instance(shape, 3, objective, limited=True)
    best = solve_cpsat(instance, Budget(threads=2).within(SECONDS)).cost
    result = solve_milp(instance, Budget(threads=2).within(SECONDS))
    assert (result.cost, result.bound, result.status) == (best, best, Status.OPTIMAL)


@settings(max_examples=12, deadline=None)
@given(instances(max_devices=3, max_microbatches=3, most_operations=60))
def test_bound_is_below_optimum_is_below_warm_start(instance: Instance) -> None:
    warm_start = retime(instance, serial_order(instance))
    exact = solve_cpsat(instance, Budget(threads=2).within(5), warm_start)
    result = solve_milp(instance, Budget(threads=2).within(1), warm_start)
    assert best_bound(instance).value <= result.bound <= exact.cost
    assert exact.bound <= result.cost <= cost(warm_start)
    assert validate(instance, result.schedule) == []
    assert result.status is (Status.OPTIMAL if result.bound == result.cost else Status.FEASIBLE)
