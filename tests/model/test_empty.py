"""Empty stages: they pass on what comes in no time, in their turn, and hold nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.brute_force import optimum
from helpers.cases import emptied
from helpers.exact_cases import TINY_SHAPES, tiny_instance
from helpers.independent_model import optimal_schedule

from tightpipe import (
    InputError,
    Instance,
    Memory,
    MicrobatchSlice,
    NoScheduleError,
    Offload,
    Order,
    Schedule,
    Status,
    simulate,
    solve,
    validate,
)
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost
from tightpipe.params.budget import Budget
from tightpipe.solver.bounds.formulas import all_bounds
from tightpipe.solver.bounds.relaxed import is_searchable
from tightpipe.solver.cpsat import solve_cpsat

RELAY: dict[str, Any] = {
    "devices": 3,
    "microbatches": 1,
    "placement": "linear",
    "forward": [5, 0, 7],
    "backward": [6, 0, 8],
    "weight": [4, 0, 3],
    "comm": 2,
}


def test_a_message_passes_an_empty_stage_in_two_hops() -> None:
    instance = Instance.uniform(**RELAY)
    schedule = simulate(instance, Order.parse("F0.0 B0.0 W0.0\nF1.0 B1.0\nF2.0 B2.0 W2.0"))
    f0, f1, f2, b2 = 0, 5 + 2, 5 + 2 + 2, 9 + 7
    b1 = b2 + 8 + 2
    assert schedule.start.tolist() == [f0, b1 + 2, b1 + 2 + 6, f1, b1, f2, b2, b2 + 8]
    assert validate(instance, schedule) == []


def test_an_empty_stage_waits_for_its_turn() -> None:
    """Devices 0 and 1 in turn, the second stage of device 0 is empty: its F waits for F0.1 before it."""
    instance = Instance.uniform(
        devices=2,
        microbatches=2,
        placement="loop",
        forward=[10, 1, 0, 1],
        backward=[0] * 4,
        weight=[0] * 4,
        comm=0,
    )
    waiting = simulate(instance, Order.parse("F0.0 F0.1 F2.0 F2.1\nF1.0 F3.0 F1.1 F3.1"))
    relaying = simulate(instance, Order.parse("F0.0 F2.0 F0.1 F2.1\nF1.0 F3.0 F1.1 F3.1"))
    assert [each.start.tolist()[:4] for each in (waiting, relaying)] == [[0, 10, 20, 22], [0, 11, 11, 22]]


def test_before_the_first_backward_an_empty_stage_has_none() -> None:
    frozen = Instance.uniform(**RELAY | {"backward": [0, 0, 8], "weight": [0, 0, 3]})
    order = "F0.0\nF1.0\nF2.0 B2.0 W2.0"
    assert validate(frozen, simulate(frozen, Order.parse(order))) == []
    with pytest.raises(InputError, match="no such operation"):
        simulate(frozen, Order.parse(order.replace("F1.0", "F1.0 B1.0")))


@pytest.mark.parametrize(
    ("operation", "change", "rule"),
    [
        ("F1.0", -1, "forward_dependency"),
        ("B1.0", -1, "backward_dependency"),
        ("B1.0", 1, "backward_dependency"),
    ],
)
def test_the_validator_sees_that_a_message_comes_too_early(operation: str, change: int, rule: str) -> None:
    instance = Instance.uniform(**RELAY)
    right = simulate(instance, Order.parse("F0.0 B0.0 W0.0\nF1.0 B1.0\nF2.0 B2.0 W2.0"))
    at = [str(op) for device in right.order.to_lists() for op in device].index(operation)
    start, end = right.start.copy(), right.end.copy()
    start[at], end[at] = start[at] + change, end[at] + change
    assert {fault.rule for fault in validate(instance, Schedule(instance, right.order, start, end))} == {rule}


def test_the_validator_misses_the_relay() -> None:
    instance = Instance.uniform(**RELAY)
    whole = simulate(instance, Order.parse("F0.0 B0.0 W0.0\nF1.0 B1.0\nF2.0 B2.0 W2.0"))
    keep = [0, 1, 2, 3, 5, 6, 7]
    order = Order.parse("F0.0 B0.0 W0.0\nF1.0\nF2.0 B2.0 W2.0")
    found = validate(instance, Schedule(instance, order, whole.start[keep], whole.end[keep]))
    assert [str(fault) for fault in found] == ["complete: B1.0 is missing"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"backward": [6, 1, 8]}, "forward[1] = 0: must be at least 1, or backward and weight 0"),
        ({"forward": 0}, "forward = 0: must be at least 1, or backward and weight 0"),
        ({"backward": [6, 0, 0]}, "backward[2] = 0: must be at least 1: the gradient passes on to stage 0"),
    ],
)
def test_an_empty_stage_has_no_times_of_its_own(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        Instance.uniform(**RELAY | entries)
    assert message in str(error.value)


CASES = [
    (shape, seed, objective)
    for shape in TINY_SHAPES
    if shape[0] != "bidirectional"
    for seed in (0, 1, 2)
    for objective in ("device_span", "makespan")
]


def tiny_case(case: tuple[Any, int, str]) -> Instance:
    shape, seed, objective = case
    return emptied(tiny_instance(shape, seed, objective, limited=seed == 1), seed)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact_models_agree_with_brute_force(case: tuple[Any, int, str]) -> None:
    """Comm 0 on a third: then operations of no time could wait for each other in a circle."""
    instance = tiny_case(case)
    if case[1] == 2:
        instance = Instance.uniform(
            devices=instance.devices,
            microbatches=instance.microbatches,
            placement=instance.placement.name,
            **{key: getattr(instance.costs, key) for key in ("forward", "backward", "weight")},
            objective=instance.objective,
        )
    best = optimum(instance)
    assert best == cost(optimal_schedule(instance))
    assert max(bound.value for bound in all_bounds(instance)) <= best
    for formulation in ("lattice", "plain"):
        result = solve_cpsat(instance, Budget(threads=1).within(150), formulation=formulation)
        assert (result.cost, result.bound, result.status) == (best, best, Status.OPTIMAL), formulation
        assert validate(instance, result.schedule) == []


@pytest.mark.parametrize("case", [case for case in CASES[::2] if case[1] != 1], ids=str)
def test_every_heuristic_schedules_empty_stages(case: tuple[Any, int, str]) -> None:
    instance = tiny_case(case)
    scheduled = 0
    for method in HEURISTICS:
        try:
            result = solve(instance, method)
        except (InputError, NoScheduleError):  # another placement, or too little memory for its order
            continue
        if result.schedule is None:  # too few microbatches
            continue
        assert validate(instance, result.schedule) == []
        scheduled += 1
    assert scheduled


@pytest.mark.parametrize("method", ["milp", "block"])
def test_methods_that_need_time_at_every_stage_say_so(method: str) -> None:
    with pytest.raises(InputError, match=f"{method} needs an F of a tick or more at every stage"):
        solve(Instance.uniform(**RELAY), method)


def test_an_empty_stage_holds_nothing_also_where_one_number_is_given_for_all_stages() -> None:
    """By the memory of an F of 0 ticks, device 1 would have to run one microbatch after another: 140."""
    stages: dict[str, Any] = {kind: [10, 10, 0, 10] for kind in ("forward", "backward", "weight")}
    memory = Memory(2, [-1, -1, 0, -1], [-1, -1, 0, -1], [8, 2])
    instance = Instance.uniform(
        devices=2, placement="v", microbatches=2, objective="makespan", memory=memory, **stages
    )
    for method in ("cpsat", "best"):
        result = solve(instance, method, time_limit=60, workers=1)
        assert (result.status, result.cost, result.bound) == (Status.OPTIMAL, 120, 120)


@pytest.mark.parametrize(
    "more",
    [
        {"slices": [MicrobatchSlice()] * 2},
        {
            "memory": Memory([2, 0, 2], [-1, 0, -1], [-1, 0, -1], 8),
            "offload": Offload([1, 0, 1], 3, 3),
            "microbatches": 4,
        },
    ],
)
def test_bounds_of_copies_and_slices_know_devices_without_work(more: dict[str, Any]) -> None:
    instance = Instance.uniform(**RELAY | more)
    result = solve(instance, "improve", effort=0.5, workers=1)
    assert result.bound is not None
    assert result.cost is not None
    assert result.bound <= result.cost


def test_prefixes_do_not_count_beyond_their_numbers() -> None:
    instance = Instance.uniform(devices=2, microbatches=4, forward=1, backward=1, weight=1)
    assert is_searchable(instance)
    assert not is_searchable(replace(instance, microbatches=20_000))
