"""Instances with slices: no bound is above the optimum, searches find it, and what knows no slices says so."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from helpers.cases import instances, sliced, uniform, wide_instances, widened
from helpers.independent_model import optimal_schedule
from helpers.walking import Walk
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Memory, MicrobatchSlice, Status, retime, solve, validate
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost
from tightpipe.model.orders import order_of
from tightpipe.params.budget import Allowance
from tightpipe.params.search import AnnealParams
from tightpipe.registry.solve import bounds_within
from tightpipe.solver.bounds.formulas import all_bounds
from tightpipe.solver.bounds.relaxed import without_slices
from tightpipe.solver.engine.run import in_queue_order, one_by_one
from tightpipe.solver.improve.fold import fold
from tightpipe.solver.improve.paths_kernel import cost_of

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


@pytest.mark.parametrize("seed", range(100, 112))
def test_no_method_claims_more_about_slices_than_the_optimum(seed: int) -> None:
    instance = random_case(seed)
    least = cost(optimal_schedule(instance))
    assert max(bound.value for bound in bounds_within(instance, Allowance(3, workers=1))[0]) <= least
    for name in ("list", "improve", "cpsat", "cpsat:plain", "best"):
        result = solve(instance, name, time_limit=20 if name == "cpsat:plain" else 2, workers=1)
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


def test_slices_that_do_not_wait_for_each_other_are_classes() -> None:
    slices = [MicrobatchSlice(forward=2), MicrobatchSlice(weight=7)]
    instance = uniform(2, 4, (3, 4, 5), placement="bidirectional", slices=slices)
    free = without_slices(instance)
    assert free.microbatches == 8
    assert free.class_counts == instance.class_counts == (2, 2, 2, 2)
    assert free.class_routes == instance.class_routes
    assert [free.duration(0, 1, c) for c in range(4)] == [instance.duration(0, 1, c) for c in range(4)]
    assert not free.slices


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
