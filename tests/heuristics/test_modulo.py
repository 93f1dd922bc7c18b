"""Modulo scheduling: valid orders on all placements, within memory, in the period it says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.small_instances import small_instance

from tightpipe import Instance, Memory, NoScheduleError, Placement, Schedule, solve, validate
from tightpipe.heuristics.modulo import (
    _shares,
    _shorter,
    _shortest_alone,
    _unrolled,
    modulo_order,
)
from tightpipe.heuristics.modulo_kernel import Body, placed_within_limits
from tightpipe.model.costs import Costs
from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.operation import OpKind
from tightpipe.model.simulate import simulate
from tightpipe.params.solve_params import DEFAULTS
from tightpipe.settings import load_realistic


def v_shape(limit: int | None, devices: int = 4, microbatches: int = 12) -> Instance:
    return Instance.uniform(
        devices=devices,
        microbatches=microbatches,
        forward=20,
        backward=19,
        weight=10,
        comm=1,
        memory=None if limit is None else Memory(3, -2, -1, limit),
    )


def two_directions(limit: int | None, devices: int = 4, microbatches: int = 12) -> Instance:
    return replace(
        v_shape(limit, devices, microbatches),
        placement=Placement("bidirectional", devices),
        costs=Costs(20, 19, 10, 1),
        memory=None if limit is None else Memory(3, -2, -1, limit),
    )


@pytest.mark.parametrize("classes", [1, 2])
def test_orders_of_small_instances_are_valid(classes: int) -> None:
    found = refused = 0
    for seed in range(300 * classes):
        instance = small_instance(seed)
        if len(instance.placement.routes) != classes or instance.iterations > 1:
            continue
        try:
            order = modulo_order(instance)
        except NoScheduleError:
            refused += 1
            continue
        assert validate(instance, simulate(instance, order)) == []
        found += 1
    assert found > 100
    assert found > 20 * refused


def first_starts(schedule: Schedule) -> dict[int, list[int]]:
    """The starts of the F's of stage 0, for each class of microbatches."""
    found: dict[int, list[int]] = {}
    rows = zip(schedule.order.operations.tolist(), schedule.start.tolist(), strict=True)
    for (kind, stage, microbatch), start in rows:
        if (kind, stage) == (OpKind.F, 0):
            found.setdefault(schedule.instance.route(microbatch), []).append(start)
    return {mb_class: sorted(starts) for mb_class, starts in found.items()}


def test_without_a_limit_a_period_is_the_work_of_a_device() -> None:
    """The order of the middle of the schedule repeats itself, and the busiest device never idles there."""
    instance = v_shape(None, microbatches=40)
    (starts,) = first_starts(simulate(instance, modulo_order(instance))).values()
    assert set(np.diff(starts[15:25])) == {2 * (20 + 19 + 10)}


def test_every_class_begins_one_microbatch_in_each_period() -> None:
    """Whose length is the work of a device, as it runs a stage of either class."""
    instance = two_directions(None, microbatches=80)
    starts = first_starts(simulate(instance, modulo_order(instance)))
    assert list(starts) == [0, 1]
    for of_class in starts.values():
        assert set(np.diff(of_class[15:25])) == {2 * (20 + 19 + 10)}


@pytest.mark.parametrize("devices", [16, 24])
def test_two_copies_wait_for_nothing_where_one_has_to(devices: int) -> None:
    """Where F's and B's of 20 ticks meet without waiting, memory for p activations leaves no idle time.

    A period of one microbatch takes 120 ticks then, the least multiple of 40 above the work of 100.
    """
    instance = replace(v_shape(3 * devices, devices, 8 * devices), costs=Costs(20, 20, 10, 0))
    graph = arrays_of(instance)
    alone = _shortest_alone(graph, DEFAULTS.modulo)
    two, *_ = _shorter(graph, alone, DEFAULTS.modulo)
    assert alone.period >= 120
    assert two.period == 200
    for skipped in range(2):
        schedule = simulate(instance, _unrolled(graph, two, skipped))
        assert validate(instance, schedule) == []
        (starts,) = first_starts(schedule).values()
        middle = len(starts) // 2
        assert starts[middle + 2] - starts[middle] == 200


def test_shares_of_a_period_differ_and_begin_with_the_first_copy() -> None:
    shares = _shares(3, 50)
    assert (shares[:, 0] == 0).all()
    assert ((shares[:, 1:] > 0) & (shares[:, 1:] < 1)).all()
    assert len(np.unique(shares.round(4), axis=0)) == 50


def test_classes_of_which_memory_holds_one_at_a_time_take_turns() -> None:
    instance = two_directions(3, devices=2, microbatches=8)
    schedule = simulate(instance, modulo_order(instance))
    assert validate(instance, schedule) == []
    starts = first_starts(schedule)
    assert [mb_class for _, mb_class in sorted((t, c) for c in starts for t in starts[c])] == [0, 1] * 4


def test_a_place_is_free_in_every_period() -> None:
    """On one device with one stage F, B and W fill the period of their work, whatever comes first."""
    instance = Instance.uniform(
        devices=1,
        microbatches=2,
        forward=5,
        backward=7,
        weight=3,
        placement="linear",
        memory=Memory(1, -1, 0, 1),
    )
    graph = arrays_of(instance)
    body = Body(graph.nodes, graph.edges, graph.devices, np.arange(3))
    assert placed_within_limits(body, np.array([0]), 15).tolist() == [0, 5, 12]
    assert placed_within_limits(body, np.array([30]), 15).tolist() == [30, 35, 42]
    assert placed_within_limits(body, np.array([0]), 14).tolist() == []


def test_scarce_memory_takes_a_longer_period() -> None:
    costs = [solve(v_shape(limit), "modulo").cost for limit in (12, 15, 24)]
    assert None not in costs
    assert costs == sorted(costs, reverse=True)  # type: ignore[type-var]
    assert costs[0] != costs[2]


@pytest.mark.parametrize("name", ["recompute-4x12-tight", "recompute-8x24-tight", "long-4x16-small"])
def test_it_is_cheaper_than_list_scheduling_where_memory_is_scarce(name: str) -> None:
    instance = load_realistic()[name].instance()
    mine, other = solve(instance, "modulo").cost, solve(instance, "list").cost
    assert mine is not None
    assert other is not None
    assert mine < other


@pytest.mark.parametrize("devices", [8, 16])
def test_it_is_cheaper_than_list_scheduling_where_memory_for_two_directions_is_scarce(devices: int) -> None:
    instance = two_directions(3 * devices, devices, 4 * devices)
    mine, other = solve(instance, "modulo").cost, solve(instance, "list").cost
    assert mine is not None
    assert other is not None
    assert mine < other
