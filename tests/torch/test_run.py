"""Schedules in PyTorch's own runtime: gradients of a single process, order and measured times."""

from __future__ import annotations

from typing import Any

import pytest

from tightpipe import InputError, Instance, Order, Schedule, retime, simulate, solve
from tightpipe.runtime import RunError, RunModel, RunReport, run_schedule

SMALL = RunModel(width=16, batch=2)
MICROBATCHES = {2: 6, 4: 8}


def instance(p: int, placement: str, **more: Any) -> Instance:
    return Instance.uniform(
        devices=p,
        microbatches=MICROBATCHES[p],
        forward=3,
        backward=3,
        weight=2,
        placement=placement,
        **more,
    )


def solved(p: int, placement: str, method: str, **options: Any) -> Schedule:
    schedule = solve(instance(p, placement), method, **options).schedule
    assert schedule is not None
    return schedule


def check(report: RunReport) -> None:
    assert report.gradient_difference <= 1e-6
    assert report.largest_gradient > 1e-4
    assert report.loss == pytest.approx(report.reference_loss, abs=1e-6)
    assert report.order_held


@pytest.mark.parametrize("p", [2, 4])
@pytest.mark.parametrize(
    ("placement", "method"),
    [("v", "greedy-v"), ("linear", "1f1b"), ("loop", "interleaved-1f1b"), ("linear", "zb-1p-fixed")],
)
def test_gradients_are_those_of_one_process(placement: str, method: str, p: int) -> None:
    report = run_schedule(solved(p, placement, method), SMALL)
    check(report)
    kinds = {"F", "BW"} if method.endswith("1f1b") else {"F", "B", "W"}
    assert set(report.to_dict()["microseconds"]) == kinds


@pytest.mark.parametrize("p", [2, 4])
def test_an_improved_v_schedule_runs(p: int) -> None:
    check(run_schedule(solved(p, "v", "cpsat", time_limit=5, workers=1), SMALL))


def test_a_transformer_runs_with_merged_backwards() -> None:
    schedule = solved(2, "v", "v-min")
    report = run_schedule(
        schedule, RunModel("transformer", width=16, heads=2, sequence=4, batch=2), merge=True
    )
    check(report)
    assert len(report.order) < len(schedule.order)
    assert "gradients differ" in str(report)


def test_operations_that_run_together() -> None:
    problem = Instance.uniform(devices=1, microbatches=2, forward=1, backward=1, weight=1, placement="linear")
    schedule = simulate(problem, Order.parse("F0.0 F0.1+BW0.0 BW0.1"))
    check(run_schedule(schedule, SMALL))


def test_what_cannot_run() -> None:
    two_ways = instance(2, "bidirectional")
    schedule = solve(two_ways, "list").schedule
    assert schedule is not None
    with pytest.raises(InputError, match="one rank"):
        run_schedule(schedule)
    with pytest.raises(InputError, match="steps"):
        run_schedule(schedule, steps=0)


def test_a_run_that_takes_too_long_is_ended() -> None:
    problem = instance(2, "linear")
    with pytest.raises(RunError, match="did not end in time"):
        run_schedule(retime(problem, solved(2, "linear", "1f1b").order), timeout=0.2)
