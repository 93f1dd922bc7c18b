"""Microbatches that differ run in a sequence: published orders, list schedules, and the costs of sorting them."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from helpers.cases import classed, instances, wide_instances
from helpers.clock import counted_time
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tightpipe import (
    InfeasibleError,
    InputError,
    Instance,
    Memory,
    MicrobatchClass,
    NoScheduleError,
    solve,
    validate,
)
from tightpipe.heuristics import HEURISTICS, SEQUENCES, known_heuristic
from tightpipe.heuristics.family import one_f_one_b_order
from tightpipe.model.graph import graph_of
from tightpipe.model.metrics import cost
from tightpipe.model.microbatches import renamed, representative, sequence_of
from tightpipe.model.operation import OpKind
from tightpipe.model.placement import Placement
from tightpipe.model.schedule import Schedule
from tightpipe.model.simulate import memory_trace, retime
from tightpipe.registry.methods import find_method, is_heuristic
from tightpipe.registry.starts import schedule_of


def of_lengths(lengths: list[int], devices: int, comm: int = 0, placement: str = "linear") -> Instance:
    """F, B and W take a length each; memory holds the longest microbatches, one for each device."""
    chunks = Placement(placement, devices).stages_per_device
    return Instance.uniform(
        devices=devices,
        placement=placement,
        forward=1,
        backward=1,
        weight=1,
        comm=comm,
        memory=Memory(2, -1, -1, 2 * chunks * sum(sorted(lengths)[-devices:])),
        objective="makespan",
        classes=[
            MicrobatchClass(1, ticks, ticks, ticks, None, Memory(2 * ticks, -ticks, -ticks))
            for ticks in lengths
        ],
    )


def drawn(sigma: float, count: int = 32) -> list[int]:
    """Log-normal lengths."""
    found: list[int] = (
        np.rint(100 * np.random.default_rng(48).lognormal(0, sigma, count)).astype(int).tolist()
    )
    return found


def by(instance: Instance, name: str) -> Schedule:
    heuristic = known_heuristic(name)
    assert heuristic is not None
    return schedule_of(instance, heuristic)


@pytest.mark.parametrize(
    ("sigma", "work", "costs"),
    [
        (0.8, 14595, {"longest-first": 27385, "shortest-first": 26819, "short-at-ends": 25277}),
        (0.4, 11178, {"longest-first": 16024, "shortest-first": 15909, "short-at-ends": 14956}),
    ],
)
def test_sorting_the_microbatches_of_1f1b_saves_a_third(
    sigma: float, work: int, costs: dict[str, int]
) -> None:
    instance = of_lengths(drawn(sigma), 8, 2)
    assert instance.work(0) == work
    assert {name: cost(by(instance, f"1f1b:{name}")) for name in costs} == costs
    assert cost(by(instance, "1f1b")) == cost(by(instance, "1f1b:arrival")) > 1.25 * costs["longest-first"]


@pytest.mark.parametrize(("sigma", "most"), [(0.8, 19000), (0.4, 13000)])
def test_list_schedules_of_sorted_microbatches_cost_a_fifth_less_than_1f1b(sigma: float, most: int) -> None:
    instance = of_lengths(drawn(sigma), 8, 2)
    assert cost(by(instance, "list")) <= most
    assert cost(by(instance, "list")) < 0.85 * cost(by(instance, "1f1b:short-at-ends"))


def test_the_best_sequence_of_1f1b_is_found_by_trying_all() -> None:
    instance = of_lengths([20, 25, 16, 10, 14, 9], 3, 1)
    order = one_f_one_b_order(representative(instance))
    costs = [
        cost(retime(instance, renamed(instance, order, np.array(one)))) for one in permutations(range(6))
    ]
    assert min(costs) == 370
    assert cost(by(instance, "1f1b:longest-first")) == 410
    assert min(costs) < cost(by(instance, "1f1b:short-at-ends")) < sum(costs) / len(costs)


def test_sequences_are_permutations_sorted_by_work() -> None:
    instance = of_lengths([20, 25, 16, 10, 14, 9], 2)
    found = {name: sequence_of(instance, name).tolist() for name in SEQUENCES}
    assert found == {
        "arrival": [0, 1, 2, 3, 4, 5],
        "longest-first": [1, 0, 2, 4, 3, 5],
        "shortest-first": [5, 3, 4, 2, 0, 1],
        "short-at-ends": [5, 4, 0, 1, 2, 3],
        "cyclic": [1, 2, 3, 5, 0, 4],
    }


def test_more_memory_lets_adaptive_1f1b_have_more_in_flight() -> None:
    def in_flight(instance: Instance) -> int:
        order = by(instance, "adaptive-1f1b").order
        kinds = order.operations[order.rows(0)][:, 0].tolist()
        assert set(kinds) == {OpKind.F, OpKind.BW}
        return kinds.index(OpKind.BW)

    tight = of_lengths([10, 30, 10, 10, 30, 10, 10, 10], 3, 1)
    assert tight.memory is not None
    free = replace(tight, memory=replace(tight.memory, limit=None))
    assert in_flight(tight) < in_flight(free)
    looped = of_lengths([10, 30, 10, 10, 30, 10, 10, 10], 2, 1, "loop")
    assert validate(looped, by(looped, "adaptive-1f1b:longest-first")) == []


@pytest.mark.parametrize("name", HEURISTICS)
def test_heuristics_schedule_microbatches_that_differ_or_say_why_not(name: str) -> None:
    found, refusals = 0, list[str]()
    for placement in HEURISTICS[name].placements:
        for lengths in ([30, 10, 20, 10, 10, 40, 20, 10] * 2, list(range(9, 25))):
            instance = of_lengths(lengths, 4, 1, placement)
            assert instance.memory is not None
            roomy = replace(instance, memory=replace(instance.memory, limit=10**4))
            for one in (instance, roomy):
                try:
                    assert validate(one, by(one, name)) == []
                    found += 1
                except NoScheduleError as refusal:
                    refusals.append(str(refusal))
    assert found > 0
    assert all(len(said.splitlines()) == 1 for said in refusals)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(instances(max_microbatches=6), wide_instances(max_microbatches=6)), st.integers(0, 9999))
def test_list_schedules_are_found_for_all_microbatches_that_differ(instance: Instance, seed: int) -> None:
    instance = classed(instance, seed)
    for name in ("list", "due-date", "list:longest-first"):
        refused = ""
        try:
            assert validate(instance, by(instance, name)) == []
        except NoScheduleError as refusal:
            refused = str(refusal)
        assert not refused or "for an F alone" in refused  # an F that holds memory only while it runs


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(instances(max_microbatches=6), st.integers(0, 9999), st.sampled_from(sorted(SEQUENCES)))
def test_an_order_for_the_largest_microbatches_fits_all_sequences(
    instance: Instance, seed: int, name: str
) -> None:
    instance = classed(instance, seed)
    alike = representative(instance, largest=True)
    if (
        alike.memory is not None
        and instance.memory is not None
        and alike.memory.limit != instance.memory.limit
    ):
        return  # a device does not hold the largest microbatch of another route
    order = renamed(instance, HEURISTICS["list"].order(alike), sequence_of(instance, name))
    for device in range(instance.devices):
        limit = instance.memory_limit(device)
        peak = memory_trace(instance, order)[order.rows(device)].max(initial=0)
        assert limit is None or peak <= limit
    assert validate(instance, retime(instance, order)) == []


def test_the_numbers_of_microbatches_do_not_matter_to_sorted_schedules() -> None:
    lengths = [20, 25, 16, 10, 14, 9, 31]
    one, other = of_lengths(lengths, 3, 1), of_lengths(lengths[::-1], 3, 1)
    for name in ("1f1b:short-at-ends", "list:longest-first", "due-date:cyclic"):
        assert cost(by(one, name)) == cost(by(other, name))


def test_a_published_order_may_hold_all_microbatches_whatever_their_mean() -> None:
    """The mean memory of 20, 20 and 22 is above 20, and three times 21 is more than the three hold."""
    instance = of_lengths([10, 10, 11], 3)
    order = by(instance, "1f1b").order
    assert memory_trace(instance, order).max() == instance.memory_limit(0) == 62


@given(wide_instances(max_microbatches=6))
def test_an_instance_represents_itself(instance: Instance) -> None:
    instance = replace(instance, costs=replace(instance.costs, overlapped=None, pairs=None), iterations=1)
    assert graph_of(representative(instance)) == graph_of(instance)


def test_a_sequence_that_does_not_exist_is_refused() -> None:
    with pytest.raises(
        InputError, match="sequence or rule of 1f1b = 'sideways': must be one of arrival, longest-first"
    ):
        find_method("1f1b:sideways")
    assert known_heuristic("best:arrival") is None
    assert is_heuristic("1f1b:longest-first")


def test_an_instance_without_schedule_is_infeasible_whatever_the_sequence() -> None:
    instance = of_lengths([10, 20], 2, 0, "loop")
    assert instance.memory is not None
    tight = replace(instance, memory=replace(instance.memory, limit=79))
    for name in ("interleaved-1f1b", "list:cyclic", "adaptive-1f1b"):
        with pytest.raises(InfeasibleError, match="holds no microbatch"):
            by(tight, name)


@pytest.mark.parametrize("placement", ["linear", "loop", "v"])
def test_searches_start_no_higher_than_what_frameworks_run_in_any_sequence(placement: str) -> None:
    """With whole backwards of lengths that differ little, 1F1B in some sequence beats list schedules."""
    rng, chunks = np.random.default_rng(48), Placement(placement, 4).stages_per_device
    lengths = np.rint(rng.normal(100, 10, 32)).astype(int).tolist()
    instance = Instance.uniform(
        devices=4,
        placement=placement,
        forward=1,
        backward=2,
        weight=0,
        comm=2,
        memory=Memory(2, -2, 0, 2 * chunks * sum(sorted(lengths)[-4:])),
        objective="makespan",
        classes=[MicrobatchClass(1, t, 2 * t, 0, None, Memory(2 * t, -2 * t, 0)) for t in lengths],
    )
    costs = []
    for family in ("1f1b", "interleaved-1f1b", "1f1b-v", "adaptive-1f1b"):
        if placement in HEURISTICS[family].placements:
            for name in SEQUENCES:
                found = solve(instance, f"{family}:{name}")
                costs += [] if found.cost is None else [found.cost]
    with counted_time(per_look=0):  # so that all heuristics have the time to begin
        started = solve(instance, "best", time_limit=0, workers=1)
    assert started.cost is not None
    assert started.cost <= min(costs)
