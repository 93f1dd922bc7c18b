"""Stages without B or without W: who waits for whom, what memory is held, and what heuristics make of it."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.cases import uniform, wide_instances
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import (
    InfeasibleError,
    Instance,
    Memory,
    MicrobatchClass,
    NoScheduleError,
    Order,
    Schedule,
    retime,
    simulate,
    solve,
    validate,
)
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.costs import Costs
from tightpipe.model.metrics import peak_memory
from tightpipe.model.orders import order_of
from tightpipe.model.placement import Placement
from tightpipe.model.schedule_file import schedule_from_dict, schedule_to_dict

FROZEN: dict[str, Any] = {
    "devices": 2,
    "microbatches": 8,
    "forward": [6, 2],
    "backward": [0, 2],
    "weight": [0, 2],
    "placement": "linear",
}


def staged(backward: list[int], weight: list[int], **entries: Any) -> Instance:
    """Three devices with a stage each, F of 2 ticks, messages of 1 tick."""
    return Instance(Placement("linear", 3), 1, Costs(2, backward, weight, 1), **entries)


def test_a_weight_without_b_waits_for_what_b_would_wait_for() -> None:
    instance = staged([0, 3, 3], [4, 0, 5])
    schedule = simulate(instance, Order.parse("F0.0 W0.0\nF1.0 B1.0\nF2.0 B2.0 W2.0"))
    assert schedule.start.tolist() == [0, 16, 3, 12, 6, 8, 11]
    assert validate(instance, schedule) == []


def test_a_weight_without_b_on_the_last_stage_waits_for_its_f() -> None:
    instance = staged([0, 0, 0], [0, 0, 5])
    schedule = simulate(instance, Order.parse("F0.0\nF1.0\nF2.0 W2.0"))
    assert schedule.start.tolist() == [0, 3, 6, 8]
    assert validate(instance, schedule) == []
    early = simulate(staged([0, 0, 0], [0, 0, 5]), Order.parse("F0.0\nF1.0\nF2.0 W2.0"))
    moved = type(early)(instance, early.order, [0, 3, 6, 7], [2, 5, 8, 12])
    assert {fault.rule for fault in validate(instance, moved)} == {"one_at_a_time", "turning_point"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("F0.0\nF1.0 B1.0 W1.0\nF2.0 B2.0 W2.0", "W1.0 runs at a stage that has no W"),
        ("F0.0 B0.0\nF1.0 B1.0\nF2.0 B2.0 W2.0", "B0.0 runs at a stage that has no B"),
        ("F0.0\nF1.0\nF2.0 B2.0 W2.0", "B1.0 is missing"),
    ],
)
def test_operations_that_a_stage_lacks_are_no_part_of_a_schedule(text: str, words: str) -> None:
    instance, order = staged([0, 3, 3], [0, 0, 5]), Order.parse(text)
    times = [range(0, 100 * len(order), 100)] * 2
    faults = validate(instance, retime_free(instance, order, times))
    assert words in {fault.message for fault in faults}


def retime_free(instance: Instance, order: Order, times: Any) -> Schedule:
    return Schedule(instance, order, *map(list, times))


def test_an_f_alone_holds_memory_while_it_runs() -> None:
    memory = Memory([5, 3, 3], [0, -1, -3], [0, -2, 0], 6)
    instance = staged([0, 3, 3], [0, 4, 0], memory=memory)
    assert [instance.smallest_limit(device) for device in range(3)] == [5, 3, 3]
    schedule = simulate(instance, Order.parse("F0.0\nF1.0 B1.0 W1.0\nF2.0 B2.0"))
    assert peak_memory(schedule).tolist() == [5, 3, 3]
    assert validate(instance, schedule) == []


def test_an_f_alone_needs_its_memory_beside_what_is_held() -> None:
    memory = Memory([2, 3], [0, -3], [0, 0], 4)
    instance = Instance(Placement("linear", 1, 2), 2, Costs(1, [0, 1], 0), memory)
    tight = "F0.0 F1.0 F0.1 B1.0 F1.1 B1.1"
    assert {fault.rule for fault in validate(instance, simulate(instance, Order.parse(tight)))} == {
        "memory_limit"
    }
    result = solve(instance, "improve", effort=0.5, workers=1)
    assert result.schedule is not None
    assert peak_memory(result.schedule).tolist() == [3]
    with pytest.raises(NoScheduleError, match="device 0 needs 2 for an F alone, beside 3 for one microbatch"):
        order_of(instance, HEURISTICS["gpipe"].order)
    assert solve(instance, "gpipe").schedule is None


@pytest.mark.parametrize("name", ["list", "due-date", "list:short-at-ends"])
@pytest.mark.parametrize("classes", [(), (MicrobatchClass(1), MicrobatchClass(1, forward=[2, 2]))])
def test_list_scheduling_runs_one_after_another_where_only_that_is_sure_to_fit(
    name: str, classes: tuple[MicrobatchClass, ...]
) -> None:
    memory = Memory([2, 3], [0, -3], [0, 0], 4)
    instance = Instance(Placement("linear", 1, 2), 2, Costs(1, [0, 1], 0), memory, classes=classes)
    result = solve(instance, name)
    assert result.schedule is not None
    assert validate(instance, result.schedule) == []


@pytest.mark.parametrize(("objective", "least"), [("device_span", 48), ("makespan", 54), ("step", 54)])
def test_frozen_stages_are_scheduled_optimally(objective: str, least: int) -> None:
    result = solve(Instance.uniform(**FROZEN, objective=objective), "best", effort=5, workers=1)
    assert (result.cost, result.bound) == (least, least)


def test_inference_has_forwards_alone() -> None:
    instance = uniform(4, 8, (3, 0, 0), placement="linear", comm=1, objective="makespan")
    result = solve(instance, "best", effort=5, workers=1)
    assert (result.cost, result.bound) == (3 * 8 + 3 * (3 + 1),) * 2


def test_the_gradient_of_one_stage_may_cross_to_a_weight_on_its_own_device() -> None:
    instance = Instance(Placement("v", 1), 3, Costs([2, 2], [0, 3], [4, 5]))
    result = solve(instance, "best", effort=5, workers=1)
    assert (result.cost, result.bound) == (48, 48)
    assert result.schedule is not None
    again = schedule_from_dict(schedule_to_dict(result.schedule)).schedule
    assert again == result.schedule


@settings(max_examples=60, deadline=None)
@given(wide_instances(max_devices=3, max_microbatches=4), st.sampled_from(sorted(HEURISTICS)))
def test_every_heuristic_makes_a_valid_order_of_a_wide_instance_or_says_why_not(
    instance: Instance, name: str
) -> None:
    heuristic = HEURISTICS[name]
    if instance.placement.name not in heuristic.placements:
        return
    try:
        order = order_of(instance, heuristic.order)
    except (NoScheduleError, InfeasibleError):
        return
    assert validate(instance, retime(instance, order)) == []
