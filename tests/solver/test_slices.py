"""Instances with slices: no bound is above the optimum, searches find it, and what knows no slices says so."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from helpers.cases import instances, sliced, uniform, wide_instances, widened
from helpers.independent_model import optimal_schedule
from helpers.walking import Walk
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import (
    InputError,
    Instance,
    Memory,
    MicrobatchSlice,
    Objective,
    Status,
    retime,
    solve,
    validate,
)
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost, works
from tightpipe.model.orders import order_of
from tightpipe.params.budget import UNLIMITED, Allowance
from tightpipe.params.search import AnnealParams
from tightpipe.registry.solve import bounds_within
from tightpipe.solver.bounds.formulas import all_bounds, copies_bound
from tightpipe.solver.bounds.formulas.paths import (
    after_last_backward,
    after_last_forward,
    shortest,
    until_first_backward,
)
from tightpipe.solver.bounds.formulas.ramps import most_forwards, most_held
from tightpipe.solver.engine.run import in_queue_order, one_by_one
from tightpipe.solver.improve.fold import fold
from tightpipe.solver.improve.paths_kernel import cost_of
from tightpipe.solver.prefixes import is_whole, search_prefixes, start_windows

SHAPES = (  # placement, devices, microbatches, and the most slices that the independent model can solve
    *(("linear", 1, 1, 3), ("linear", 2, 1, 3), ("linear", 2, 2, 2), ("linear", 3, 1, 2)),
    *(("v", 1, 1, 3), ("v", 2, 1, 2), ("loop", 2, 1, 2), ("bidirectional", 2, 2, 1)),
)


def random_case(seed: int) -> Instance:
    """Up to three slices; on some seeds memory limits, stages without B or W, a step, fused backwards, pairs."""
    rng = random.Random(seed)
    placement, devices, microbatches, most = rng.choice(SHAPES)
    stages = uniform(devices, microbatches, (1, 1, 1), placement=placement).stages
    forward, backward, weight = ([rng.randint(1, 12) for _ in range(stages)] for _ in range(3))
    instance = Instance.uniform(
        devices=devices,
        microbatches=microbatches,
        forward=forward,
        backward=backward,
        weight=weight,
        placement=placement,
        comm=rng.randint(0, 3),
        objective=rng.choice(("device_span", "makespan")),
        fused=rng.randint(1, 24) if rng.random() < 0.3 else None,
        overlapped=rng.randint(1, 30) if rng.random() < 0.2 else None,
    )
    if rng.random() < 0.4:
        instance = widened(instance, seed)
    if instance.memory is None and rng.random() < 0.6 and instance.complete:
        instance = replace(instance, memory=Memory(2, -1, -1, [rng.randint(2, 3) * stages] * devices))
    return sliced(instance, seed, most)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(90))
def test_no_bound_of_slices_is_above_the_optimum(seed: int) -> None:
    instance = random_case(seed)
    best = cost(optimal_schedule(instance))
    for bound in all_bounds(instance):
        assert bound.value <= best, bound


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(200, 245))
def test_prefixes_of_any_devices_are_not_above_the_optimum_of_slices(seed: int) -> None:
    instance = random_case(seed)
    best, everything = cost(optimal_schedule(instance)), range(instance.devices)
    windows = start_windows(instance, best + seed % 3)
    assert windows.feasible
    for number in range(1, instance.devices + 1):
        for devices in combinations(everything, number):
            found = search_prefixes(instance, windows, devices, UNLIMITED, 10**6)
            assert found.bound is not None
            assert found.bound <= best
    if is_whole(windows.graph, everything) and instance.objective is Objective.MAKESPAN:
        assert found.bound == best
        assert found.schedule is not None
        assert cost(found.schedule) == best


def test_paths_and_knapsacks_pass_from_slice_to_slice() -> None:
    """Two devices, F, B, W of 2, 3 and 1 ticks in slice 0, and 5, 4 and 2 in slice 1, memory for 3 slices."""
    slices = [MicrobatchSlice(2, 3, 1), MicrobatchSlice(5, 4, 2)]
    entries: Any = {"placement": "linear", "objective": "makespan", "memory": Memory(2, -1, -1, 6)}
    instance = uniform(2, 4, (1, 1, 1), comm=1, slices=slices, **entries)
    first_b, last_f, last_b = (
        shortest(instance, ticks_of)[0].tolist()
        for ticks_of in (until_first_backward, after_last_forward, after_last_backward)
    )
    assert first_b == [2 + 5 + 1 + 5 + 4 + 1, 2 + 5 + 1 + 5]  # F0.0 F0.1 F1.1 B1.1 and F0.0 F0.1 F1.1
    assert last_f == [1 + 5 + 4 + 1 + 4 + 3 + 1, 4 + 1 + 4 + 3 + 1]  # F1.1 B1.1 B0.1 B0.0 W0.0
    assert last_b == [1, 1 + 3 + 1]  # W0.0, and B0.0 W0.0
    # Of the three slices, each microbatch has its first one before it has its second one.
    assert most_forwards(instance, 0) == (2 + 5) + (2 + 5) // 2
    assert most_held(instance, 0) == (4 + 6) + (4 + 6) // 2


def test_slices_hold_their_memory_while_later_slices_run() -> None:
    slices = [MicrobatchSlice(2, 3, 1), MicrobatchSlice(5, 4, 2)]
    entries: Any = {"placement": "linear", "objective": "makespan", "memory": Memory(2, -1, -1, 4)}
    instance = uniform(2, 40, (1, 1, 1), comm=1, slices=slices, **entries)
    away = [5 + 1 + 5 + 4 + 1 + 4, 1 + 5 + 4 + 1]  # F0.1 F1.1 B1.1 B0.1, and F1.1 B1.1
    needs = 2 * (2 + away[0] + 3) + 1, 2 * (5 + away[1] + 4) + 2
    assert works(instance)[0] < 40 * sum(needs) // 4 <= copies_bound(instance).value


@pytest.mark.parametrize("seed", range(100, 112))
def test_no_method_claims_more_about_slices_than_the_optimum(seed: int) -> None:
    instance = random_case(seed)
    least = cost(optimal_schedule(instance))
    assert max(bound.value for bound in bounds_within(instance, Allowance(3, workers=1))[0]) <= least
    for name in ("list", "improve", "cpsat", "cpsat:plain", "best"):
        counted = {"effort": 0.5} if name in ("improve", "cpsat", "best") else {"time_limit": 60}
        result = solve(instance, name, workers=1, **counted)
        assert result.schedule is not None
        assert validate(instance, result.schedule) == []
        assert result.bound <= least <= result.cost
        assert (result.status is Status.OPTIMAL) == (result.bound == result.cost)
        if name == "cpsat:plain":
            assert result.cost == least


def test_the_cases_are_of_all_kinds() -> None:
    cases = [random_case(seed) for seed in range(90)]
    assert sum(case.slice_count > 1 for case in cases) > 35
    assert sum(case.memory is not None and case.memory.limit is not None for case in cases) > 30
    assert sum(not case.complete for case in cases) > 10
    assert sum(case.fusing_saves for case in cases) > 20
    assert sum(case.costs.overlapped is not None for case in cases) > 10


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(
        instances(max_microbatches=3, most_occupancy=20), wide_instances(max_microbatches=3, most_occupancy=9)
    ),
    st.integers(0, 9999),
)
def test_words_of_slices_stay_valid_under_random_moves(instance: Instance, seed: int) -> None:
    instance = sliced(instance, seed)
    walk = Walk(instance, seed, AnnealParams())
    walk.go_on(200)
    schedule = retime(instance, walk.order)
    assert validate(instance, schedule) == []
    assert cost(schedule) <= cost_of(walk.task.graph, walk.timed())


@given(instances(max_microbatches=4), st.integers(0, 9999))
def test_an_order_of_whole_microbatches_is_cut_into_slices_within_memory(
    instance: Instance, seed: int
) -> None:
    instance = sliced(instance, seed)
    whole: list[Instance] = []

    def make(known: Instance) -> object:
        whole.append(known)
        return one_by_one(known)

    schedule = retime(instance, order_of(instance, make))  # type: ignore[arg-type]
    assert validate(instance, schedule) == []
    assert not whole[0].slices
    assert [whole[0].work(d) for d in range(instance.devices)] == [
        sum(
            instance.duration(0, s, c) + instance.least_backward(s, c)
            for c in range(len(instance.class_counts))
            for s in range(instance.stages)
            if instance.class_routes[c][s] == d
            for _ in range(instance.class_counts[c])
        )
        for d in range(instance.devices)
    ] or instance.fusing_saves


def test_a_method_that_knows_no_slices_refuses_them_in_one_line() -> None:
    instance = uniform(2, 4, (3, 4, 5), slices=[MicrobatchSlice()] * 2)
    with pytest.raises(InputError) as error:
        solve(instance, "block")
    assert str(error.value) == "slices = 2: block needs whole microbatches; " + (
        "leave them out, or use best, cpsat, milp or improve"
    )


def test_a_schedule_of_many_microbatches_in_slices_folds_and_unfolds() -> None:
    slices = [MicrobatchSlice(), MicrobatchSlice(forward=5, weight=3)]
    instance = uniform(3, 60, (3, 4, 5), placement="linear", slices=slices)
    schedule = in_queue_order(retime(instance, HEURISTICS["seq-zb"].order(instance)))
    folded = fold(schedule)
    assert folded is not None
    assert folded.schedule.instance.microbatches < 30
    unfolded = folded.unfold(folded.schedule.order)
    assert unfolded is not None
    assert validate(instance, unfolded) == []
    assert cost(unfolded) == cost(schedule)
