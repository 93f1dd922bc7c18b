"""Modulo scheduling: valid orders on all placements with one route, within memory, in the period it says."""

from __future__ import annotations

import numpy as np
import pytest
from small_instances import small_instance

from tightpipe import Instance, Memory, NoScheduleError, solve, validate
from tightpipe.core.simulate import simulate
from tightpipe.heuristics.modulo import modulo_order
from tightpipe.heuristics.modulo_kernel import placed_within_limits
from tightpipe.heuristics.stage_costs import stage_costs
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


def test_orders_of_small_instances_are_valid() -> None:
    found = refused = 0
    for seed in range(300):
        instance = small_instance(seed)
        if len(instance.placement.routes) > 1 or instance.iterations > 1:
            continue
        try:
            order = modulo_order(instance)
        except NoScheduleError:
            refused += 1
            continue
        assert validate(instance, simulate(instance, order)) == []
        found += 1
    assert found > 20 * refused


def test_without_a_limit_a_period_is_the_work_of_a_device() -> None:
    """The order of the middle of the schedule repeats itself, and the busiest device never idles there."""
    instance = v_shape(None, microbatches=40)
    schedule = simulate(instance, modulo_order(instance))
    starts = sorted(
        int(start)
        for (kind, stage, _), start in zip(
            schedule.order.operations.tolist(), schedule.start.tolist(), strict=True
        )
        if (kind, stage) == (0, 0)
    )
    assert set(np.diff(starts[15:25])) == {2 * (20 + 19 + 10)}


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
    route = stage_costs(instance)
    start = placed_within_limits(route, 15)
    assert start.tolist() == [[0], [5], [12]]
    assert placed_within_limits(route, 14).shape == (0, 1)


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


def test_two_directions_are_refused() -> None:
    instance = Instance.uniform(
        devices=2, microbatches=4, forward=2, backward=2, weight=1, placement="bidirectional"
    )
    with pytest.raises(NoScheduleError, match="one route"):
        modulo_order(instance)
