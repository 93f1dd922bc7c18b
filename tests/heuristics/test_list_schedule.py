"""List scheduling: a valid schedule at every limit that has one, for every placement and rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cases import instances, serial_order
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import InfeasibleError, Instance, Memory, retime, validate
from tightpipe.core.metrics import bubble, cost, peak_memory
from tightpipe.heuristics.list_schedule import RULES, list_order, order_by

DATA = Path(__file__).parents[1] / "data"


def uniform(placement: str, limit: int | None, objective: str = "device_span") -> Instance:
    return Instance.uniform(
        devices=4,
        microbatches=8,
        forward=10,
        backward=12,
        weight=8,
        comm=1,
        placement=placement,
        memory=Memory(2, -1, -1, limit),
        objective=objective,
    )


@settings(max_examples=150, deadline=None)
@given(instances(max_devices=4, max_microbatches=6))
def test_every_feasible_instance_gets_a_valid_schedule(problem: Instance) -> None:
    schedule = retime(problem, list_order(problem))
    assert validate(problem, schedule) == []


@settings(max_examples=150, deadline=None)
@given(instances(max_devices=4, max_microbatches=6), st.sampled_from(RULES))
def test_no_rule_ever_deadlocks(problem: Instance, rule: object) -> None:
    schedule = retime(problem, order_by(problem, rule))
    assert validate(problem, schedule) == []


@pytest.mark.parametrize("placement", ["linear", "v", "loop", "wave", "bidirectional"])
@pytest.mark.parametrize("objective", ["device_span", "makespan"])
def test_smallest_limit_is_met_and_overlaps_more_than_the_serial_order(
    placement: str, objective: str
) -> None:
    free = uniform(placement, None)
    problem = uniform(placement, max(free.smallest_limit(d) for d in range(4)), objective)
    schedule = retime(problem, list_order(problem))
    assert validate(problem, schedule) == []
    assert peak_memory(schedule).max() <= free.smallest_limit(0)
    assert cost(schedule) <= cost(retime(problem, serial_order(problem)))


def test_reaches_zero_bubble_with_much_memory() -> None:
    row = next(
        r
        for r in json.loads((DATA / "vschedule_settings.json").read_text())
        if (r["p"], r["n"], r["f"], r["m_offset"]) == (16, 48, 11347, 16)
    )
    problem = Instance.uniform(
        devices=16,
        microbatches=48,
        forward=row["f"],
        backward=row["b"],
        weight=row["w"],
        comm=row["c"],
        memory=Memory(row["mem_f"], row["mem_b"], row["mem_w"], row["max_mem"]),
    )
    assert row["max_bubble"] > 0
    assert bubble(retime(problem, list_order(problem))) == 0


def test_infeasible_limit_is_said() -> None:
    with pytest.raises(InfeasibleError, match="at least 4"):
        list_order(uniform("v", 3))
