"""solve: every method meets the same contract, and warm starts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from helpers.cases import instances, serial_order
from hypothesis import given, settings

import tightpipe
from tightpipe import InputError, Instance, Memory, Schedule, Status, retime, solve, validate
from tightpipe.base.interruption import INTERRUPTED
from tightpipe.model.metrics import bubble_over_ideal, cost, total_time
from tightpipe.model.result import Proof, Result, ignore
from tightpipe.params.budget import UNLIMITED, Allowance, Budget
from tightpipe.registry import methods as methods_module
from tightpipe.registry.methods import METHODS
from tightpipe.registry.starts import warm_starts
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.engine.run import Incumbent, run
from tightpipe.solver.outcome import Ended


def v_instance(devices: int, microbatches: int, activations: int | None, **more: Any) -> Instance:
    limit = None if activations is None else 2 * activations
    ticks = {"forward": 10, "backward": 12, "weight": 8, "comm": 1} | more
    return Instance.uniform(
        devices=devices, microbatches=microbatches, memory=Memory(2, -1, -1, limit), **ticks
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("objective", ["device_span", "makespan"])
def test_every_method_meets_the_contract(method: str, objective: str) -> None:
    placement = METHODS[method].placements[0]
    instance = v_instance(2, 4, None, placement=placement, objective=objective)
    result = solve(instance, method, time_limit=10, workers=1)
    assert (result.method, result.instance) == (method, instance)
    assert result.schedule is not None
    assert validate(instance, result.schedule) == []
    assert result.bound is not None
    assert result.work <= result.bound <= result.cost == cost(result.schedule)
    assert (result.status is Status.OPTIMAL) == (result.bound == result.cost)
    assert result.bubble == result.cost - result.work
    assert result.log
    assert result.seconds >= 0


@settings(max_examples=15)
@given(instances(max_devices=3, max_microbatches=3))
def test_bound_exact_heuristic(instance: Instance) -> None:
    """Every bound <= CP-SAT <= every heuristic, on every placement, objective and limit."""
    exact = solve(instance, "cpsat", time_limit=20, workers=2)
    assert exact.bound <= exact.cost
    for _, schedule in warm_starts(instance):
        assert validate(instance, schedule) == []
        assert exact.cost <= cost(schedule)
    assert validate(instance, exact.schedule) == []


@pytest.mark.parametrize("activations", [3, 5, 8, 12, 16])
def test_limits_below_2p_have_a_warm_start(activations: int) -> None:
    instance = v_instance(8, 16, activations)
    found = warm_starts(instance)
    assert found
    assert [cost(s) for _, s in found] == sorted(cost(s) for _, s in found)
    result = solve(instance, "improve", effort=0.01, workers=1)
    assert result.cost is not None
    assert result.cost <= cost(found[0][1])
    assert result.status in (Status.FEASIBLE, Status.OPTIMAL)


def test_v_half_and_v_min_warm_start_small_limits() -> None:
    assert "v-min" in {name for name, _ in warm_starts(v_instance(8, 24, 8))}
    assert "v-half" in {name for name, _ in warm_starts(v_instance(8, 24, 10))}


def test_a_schedule_as_warm_start_is_kept_or_improved() -> None:
    instance = v_instance(2, 4, 4)
    schedule = retime(instance, serial_order(instance))
    assert solve(instance, "cpsat", time_limit=0, warm_start=schedule).cost == cost(schedule)
    assert solve(instance, "cpsat", time_limit=20, warm_start=schedule).cost < cost(schedule)


@pytest.mark.parametrize("warm_start", ["magic", "1f1b", ""])
def test_other_warm_starts_are_refused(warm_start: str) -> None:
    with pytest.raises(InputError, match="warm_start"):
        solve(v_instance(2, 4, 4), "cpsat", warm_start=warm_start)


def test_a_warm_start_of_another_instance_is_refused() -> None:
    tight, loose = v_instance(2, 4, 2), v_instance(2, 4, None)
    schedule = solve(loose, "greedy-v").schedule
    with pytest.raises(InputError, match="memory_limit"):
        solve(tight, "cpsat", warm_start=schedule)


def test_a_busy_link_costs_what_it_must() -> None:
    instance = v_instance(2, 3, 4, link_occupancy=30)
    result = solve(instance, "cpsat", time_limit=30)
    assert result.schedule is not None
    assert validate(instance, result.schedule) == []
    assert result.cost >= solve(v_instance(2, 3, 4), "cpsat").cost
    with pytest.raises(InputError, match="milp does not model messages that wait"):
        solve(instance, "milp")


def test_a_link_that_no_message_waits_for_is_modelled() -> None:
    instance = v_instance(2, 4, 4)
    busy = dataclasses.replace(instance, costs=dataclasses.replace(instance.costs, link_occupancy=10))
    assert solve(busy, "cpsat").cost == solve(instance, "cpsat").cost == 246


def test_one_worker_and_one_seed_give_one_result() -> None:
    instance = v_instance(2, 5, 4, backward=13)
    first, second = (solve(instance, "cpsat", workers=1, seed=3) for _ in range(2))
    assert first.schedule == second.schedule
    assert (first.bound, first.status) == (second.bound, second.status)


@pytest.mark.parametrize("options", [{"time_limit": -1}, {"workers": 0}, {"seed": -1}, {"time_limit": "x"}])
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        Allowance(**options)


def test_both_bubble_rates_of_the_field() -> None:
    instance = v_instance(4, 8, 8, objective="makespan")
    schedule = solve(instance, "greedy-v").schedule
    assert schedule is not None
    work = instance.work(0)
    assert bubble_over_ideal(schedule) == pytest.approx((total_time(schedule) - work) / work)
    data = solve(instance, "greedy-v").to_dict()
    assert data["total_time"] == cost(schedule)
    assert data["device_busy"] == [work] * 4


def test_public_names() -> None:
    assert set(tightpipe.methods()) == set(METHODS)
    assert all(hasattr(tightpipe, name) for name in tightpipe.__all__)


def test_ctrl_c_is_told_even_where_the_gap_is_closed() -> None:
    def search(incumbent: Incumbent) -> Ended:
        incumbent.prove(cost(incumbent.schedule), Proof.FORMULA)
        raise KeyboardInterrupt

    result = run("any", v_instance(2, 4, 6), UNLIMITED, None, ignore, search)
    assert (result.status, result.reason) == (Status.OPTIMAL, INTERRUPTED)


@pytest.mark.parametrize("warm_start", [None, "list", "best"])
def test_a_signal_before_the_search_returns_the_start_without_another_run_of_the_solver(
    warm_start: str | None,
) -> None:
    calls: list[Schedule | None] = []

    def solver(_: Instance, __: Budget, start: Schedule | None, **___: object) -> Result:
        calls.append(start)
        raise KeyboardInterrupt

    instance = v_instance(2, 4, 6)
    result = methods_module._run_solver("improve", solver, instance, UNLIMITED, warm_start, ignore)
    (start,) = calls
    assert result.reason == INTERRUPTED
    assert result.schedule is not None
    assert validate(instance, result.schedule) == []
    assert start is None or cost(start) == result.cost
    assert result.bound == best_bound(instance).value
