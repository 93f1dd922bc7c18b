"""Instances with joint operations and flushed iterations: no bound is above the optimum.

The optimum comes from a model of its own, and that from all orders one by one where these are few.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, permutations, product
from typing import Any

import pytest
from helpers.cases import classed, random_case, uniform, wide_case
from helpers.independent_model import optimal_schedule

from tightpipe import (
    Instance,
    Memory,
    Operation,
    OpKind,
    Order,
    Result,
    Status,
    retime,
    solve,
    validate,
)
from tightpipe.base.errors import DeadlockError
from tightpipe.model.instance_file import instance_from_dict
from tightpipe.model.metrics import busy_times, cost
from tightpipe.model.result import ignore
from tightpipe.params.budget import Allowance
from tightpipe.registry.methods import METHODS
from tightpipe.registry.solve import bounds_within
from tightpipe.solver.best import raise_bounds
from tightpipe.solver.blocks import KNOWN as KNOWN_TO_BLOCKS
from tightpipe.solver.bounds.formulas import all_bounds
from tightpipe.solver.queues import Rule, is_modelled

PAIRS_THAT_SELDOM_PAY = {
    "devices": 1,
    "microbatches": 4,
    "placement": "v",
    "forward": [1, 10],
    "backward": [1, 10],
    "weight": [1, 10],
    "overlapped": 20,
}
PAIRS_SHORTER_THAN_B = {
    "devices": 2,
    "microbatches": 4,
    "placement": "linear",
    "forward": [10, 10],
    "backward": [10, 100],
    "weight": [1, 1],
    "overlapped": [21, 5],
    "memory": {"forward": 1, "backward": 0, "weight": -1, "limit": [2, 10]},
}


def classed_case(seed: int) -> Instance:
    """Classes with the rules of the wide model on half, and without any other rule on the other half."""
    if seed % 2:
        return classed(wide_case(seed), seed)
    case = random_case(seed)
    case = classed(replace(case, costs=replace(case.costs, fused=None)), seed)
    return replace(case, classes=[replace(one, fused=None) for one in case.classes])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(150))
def test_no_bound_is_above_the_optimum(seed: int) -> None:
    instance = random_case(seed)
    check_bounds(instance)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(300, 420))
def test_no_bound_of_a_wide_instance_is_above_the_optimum(seed: int) -> None:
    check_bounds(wide_case(seed))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_no_bound_of_microbatches_that_differ_is_above_the_optimum(seed: int) -> None:
    check_bounds(classed(wide_case(seed) if seed % 3 == 0 else random_case(seed), seed))


def check_bounds(instance: Instance) -> None:
    best = optimal_schedule(instance)
    for bound in all_bounds(instance):
        assert bound.value <= cost(best), bound
    busy = busy_times(best).tolist()
    assert all(instance.work(d) <= busy[d] for d in range(instance.devices))


@pytest.mark.parametrize("seed", [*range(150, 174), *range(420, 436)])
def test_no_method_claims_more_than_the_optimum(seed: int) -> None:
    instance = wide_case(seed) if seed >= 420 else random_case(seed)
    least = cost(optimal_schedule(instance))
    assert max(bound.value for bound in bounds_within(instance, Allowance(5, workers=1))[0]) <= least
    for name, method in METHODS.items():
        if instance.placement.name in method.placements and covers(name, instance):
            check_claims(solve(instance, name, workers=1, **limit_of(name)), least)


def covers(name: str, instance: Instance) -> bool:
    return name != "block" or is_modelled(instance, *KNOWN_TO_BLOCKS)


def limit_of(name: str) -> dict[str, float]:
    """Return a limit of effort for the methods that count it, so that they claim the same on every machine."""
    return {"effort": 0.5} if name in ("best", "block", "cpsat", "improve") else {"time_limit": 2}


def check_claims(result: Result, least: int) -> None:
    if result.schedule is not None:
        assert result.bound <= least <= result.cost
        assert (result.status is Status.OPTIMAL) == (result.bound == result.cost)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(560, 584))
def test_no_exact_method_claims_more_than_the_optimum_of_microbatches_that_differ(seed: int) -> None:
    instance = classed_case(seed)
    best = optimal_schedule(instance)
    least, found = cost(best), all_bounds(instance)
    raise_bounds(best, Allowance(3, workers=1).begin(), found, ignore)
    assert max(bound.value for bound in found) <= least
    for name in ("cpsat", "cpsat:plain", "milp", "best"):
        if covers(name, instance):
            check_claims(solve(instance, name, workers=1, warm_start=None, **limit_of(name)), least)


def test_the_cases_are_of_all_kinds() -> None:
    cases = [random_case(seed) for seed in range(150)]
    assert sum(case.costs.overlapped is not None for case in cases) > 40
    assert sum(case.costs.pairs is not None for case in cases) > 40
    assert sum(case.iterations > 1 and case.flush for case in cases) > 15
    assert sum(case.memory is not None for case in cases) > 60
    assert sum(case.costs.fused is not None for case in cases) > 60
    short = [
        case
        for case in cases
        if case.costs.overlapped is not None and min(case.costs.overlapped) < max(case.costs.backward)
    ]
    assert len(short) > 10
    wide = [wide_case(seed) for seed in range(300, 420)]
    assert sum(not case.complete for case in wide) > 60
    assert sum(case.barrier is not None for case in wide) > 15
    assert any(max(case.costs.weight) == 0 for case in wide)
    assert any(case.memory_while_running(0) for case in wide)
    differ = [classed_case(seed) for seed in range(500, 600)]
    assert sum(len(case.class_counts) > len(case.placement.routes) for case in differ) > 40
    assert sum(is_modelled(case, Rule.CLASSES) for case in differ) > 20


@pytest.mark.parametrize("seed", range(12))
def test_the_model_is_right_where_all_orders_can_be_tried(seed: int) -> None:
    rng = random.Random(seed)
    times = tuple(rng.randint(1, 6) for _ in range(3))
    pairs = {} if seed % 3 == 0 else {"overlapped": rng.randint(1, sum(times))}
    blocks = {"iterations": 2} if seed % 2 else {}
    fused = {"fused": rng.randint(1, times[1] + times[2])} if seed % 4 < 2 else {}
    memory = Memory(2, -1, -1, rng.randint(2, 4))
    devices = 1 + seed % 2
    instance = uniform(
        devices, 2, times, placement="linear", comm=1, memory=memory, **pairs, **blocks, **fused
    )
    assert cost(optimal_schedule(instance)) == min(map(cost, _all_schedules(instance)))


def _all_schedules(instance: Instance) -> Iterator[Any]:
    for slots in product(*([*_sequences(instance, d)] for d in range(instance.devices))):
        try:
            schedule = retime(instance, Order.from_slots(list(slots)))
        except DeadlockError:
            continue
        if validate(instance, schedule) == []:
            yield schedule


def _sequences(instance: Instance, device: int) -> Iterator[list[tuple[Operation, ...]]]:
    """Every sequence of the device's operations, one stage per device, fused or split, with or without pairs."""
    for kinds in product(((OpKind.B, OpKind.W), (OpKind.BW,)), repeat=2):
        chains = [[Operation(k, device, m) for k in (OpKind.F, *kinds[m])] for m in range(2)]
        for word in permutations([op for chain in chains for op in chain]):
            if all(sorted(chain, key=word.index) == chain for chain in chains):
                yield [(op,) for op in word]
                yield from _with_pair(list(word))


def _with_pair(word: list[Operation]) -> Iterator[list[tuple[Operation, ...]]]:
    """The sequence with an F and the BW right behind it as a pair, for each such F."""
    for i, (first, second) in enumerate(pairwise(word)):
        if (first.kind, second.kind) == (OpKind.F, OpKind.BW) and first.microbatch != second.microbatch:
            yield [*((op,) for op in word[:i]), (first, second), *((op,) for op in word[i + 2 :])]


def test_pairs_are_made_where_they_pay_alone() -> None:
    instance = instance_from_dict(PAIRS_THAT_SELDOM_PAY)
    assert cost(optimal_schedule(instance)) == 102
    assert instance.work(0) == 4 * (1 + 2 + 10 + 20) - 4 * (10 + 20 - 20)
    result = solve(instance, "best", effort=0.5, workers=1)
    assert result.bound <= 102
    assert result.status is not Status.OPTIMAL or result.cost == 102


def test_paths_through_a_pair_may_be_shorter_than_through_b() -> None:
    instance = instance_from_dict(PAIRS_SHORTER_THAN_B)
    best = optimal_schedule(instance)
    assert cost(best) <= 189
    result = solve(instance, "best", effort=2, workers=1, warm_start=best)
    assert result.bound <= result.cost == cost(best)
    assert result.gap >= 0
