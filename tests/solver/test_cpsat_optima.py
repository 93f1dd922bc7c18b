"""CP-SAT against brute force, and against optima that are known."""

import pytest
from helpers.brute_force import optimum
from helpers.exact_cases import (
    ONE_STAGE_COSTS,
    TINY_SHAPES,
    plain_memory,
    table_memory,
    tiny_instance,
    v_instance,
    with_busy_links,
)

from tightpipe import Status, retime, validate
from tightpipe.heuristics import HEURISTICS
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.solver.bounds.formulas import all_bounds
from tightpipe.solver.cpsat import decide, solve_cpsat

SECONDS = 150  # far more than a quiet machine needs
FORMULATIONS = ("lattice", "plain")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("objective", ["device_span", "makespan"])
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("shape", TINY_SHAPES, ids=lambda shape: "-".join(map(str, shape)))
@pytest.mark.parametrize("seed", [0, 1])
def test_agrees_with_brute_force(
    shape: tuple[str, int, int], objective: str, limited: bool, seed: int
) -> None:
    instance = tiny_instance(shape, seed, objective, limited=limited)
    best, budget = optimum(instance), Budget(threads=1 + seed).within(SECONDS)
    assert max(bound.value for bound in all_bounds(instance)) <= best
    for formulation in FORMULATIONS:
        result = solve_cpsat(instance, budget, formulation=formulation)
        assert (result.cost, result.bound, result.status) == (best, best, Status.OPTIMAL), formulation
        assert validate(instance, result.schedule) == []
    assert decide(instance, best - 1, budget).possible is False
    assert decide(instance, best, budget).possible


@pytest.mark.parametrize("objective", ["device_span", "makespan"])
@pytest.mark.parametrize("occupancy", [3, 12])
@pytest.mark.parametrize("shape", TINY_SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_busy_links_agree_with_brute_force(
    shape: tuple[str, int, int], objective: str, occupancy: int
) -> None:
    instance = with_busy_links(tiny_instance(shape, 2, objective, limited=occupancy == 3), occupancy)
    best = optimum(instance)
    for formulation in FORMULATIONS:
        result = solve_cpsat(instance, UNLIMITED.within(SECONDS), formulation=formulation)
        assert (result.cost, result.bound, result.status) == (best, best, Status.OPTIMAL), formulation
    assert decide(instance, best - 1, UNLIMITED.within(SECONDS)).possible is False
    assert decide(instance, best, UNLIMITED.within(SECONDS)).possible


def test_busy_links_make_messages_wait() -> None:
    free = v_instance(2, 3, (3, 4, 2, 1), plain_memory(8))
    busy = with_busy_links(free, 9)
    assert optimum(free) < optimum(busy) == solve_cpsat(busy, UNLIMITED.within(SECONDS)).cost


@pytest.mark.parametrize("shape", TINY_SHAPES[1:5], ids=lambda shape: "-".join(map(str, shape)))
def test_first_in_first_out_loses_nothing(shape: tuple[str, int, int]) -> None:
    instance = tiny_instance(shape, 7, "device_span", limited=True)
    free = solve_cpsat(instance, UNLIMITED.within(SECONDS), formulation="plain", fifo=False)
    assert (free.cost, free.status) == (optimum(instance), Status.OPTIMAL)


@pytest.mark.parametrize("name", ONE_STAGE_COSTS)
def test_known_costs_of_one_stage_per_device(name: str) -> None:
    instance, cost = ONE_STAGE_COSTS[name]
    result = solve_cpsat(instance, UNLIMITED.within(SECONDS))
    assert (result.cost, result.status) == (cost, Status.OPTIMAL)


KNOWN_BUBBLES = {
    "2x4 (10,12,8,1)": (v_instance(2, 4, (10, 12, 8, 1), plain_memory(8)), 6),
    "2x4 (8,14,8,2)": (v_instance(2, 4, (8, 14, 8, 2), plain_memory(8)), 12),
    "3x6 (10,12,8,1)": (v_instance(3, 6, (10, 12, 8, 1), plain_memory(12)), 18),
    "3x9 (3,3,2,0)": (v_instance(3, 9, (3, 3, 2, 0), table_memory(3)), 2),
    "4x8 (10,12,8,1)": (v_instance(4, 8, (10, 12, 8, 1), plain_memory(16)), 32),
    "4x8 (8,14,8,2)": (v_instance(4, 8, (8, 14, 8, 2), plain_memory(16)), 52),
    "4x8 (10,20,5,1)": (v_instance(4, 8, (10, 20, 5, 1), plain_memory(16)), 94),
    "4x8 (6,4,4,1)": (v_instance(4, 8, (6, 4, 4, 1), table_memory(4)), 20),
}


@pytest.mark.parametrize("name", KNOWN_BUBBLES)
def test_known_bubbles(name: str) -> None:
    instance, bubble = KNOWN_BUBBLES[name]
    warm_start = retime(instance, HEURISTICS["greedy-v"].make(instance))
    result = solve_cpsat(instance, UNLIMITED.within(SECONDS), warm_start)
    assert (result.bubble, result.status) == (bubble, Status.OPTIMAL)
    assert all(bound.value <= result.cost for bound in all_bounds(instance))
