"""What limits a plan, measured on plans of which one thing is made scarce."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.handmade_plans import CLUSTER, plan, problem

from tightpipe.explain import explain
from tightpipe.model.metrics import busy_times
from tightpipe.planning import Plan
from tightpipe.planning.what_if import Limit, limits


def of(made: Plan) -> dict[str, Limit]:
    assert made.schedule is not None
    found = limits(made, explain(made.schedule, relax=False))
    assert [limit.share for limit in found] == sorted((limit.share for limit in found), reverse=True)
    return {limit.name: limit for limit in found}


def test_computation_is_that_of_the_busiest_device() -> None:
    made = plan()
    found = of(made)["computation"]
    assert made.schedule is not None
    busy = busy_times(made.schedule).tolist()
    assert (found.amount, found.of) == (max(busy), made.cost)
    assert busy[found.device] == max(busy)


def test_memory_is_that_of_the_fullest_device() -> None:
    made = plan()
    found = of(made)["memory"]
    assert made.peak_memory is not None
    assert (found.amount, found.of) == (max(made.peak_memory), 4000)
    assert found.to_dict()["share"] == pytest.approx(max(made.peak_memory) / 4000)
    assert "memory" not in of(plan(problem(cluster=replace(CLUSTER, memory=None))))


def test_slow_messages_limit_more() -> None:
    slow = of(plan(problem(cluster=replace(CLUSTER, comm=30))))["idle for messages"]
    assert slow.share > of(plan())["idle for messages"].share
    none = of(plan(problem(cluster=replace(CLUSTER, comm=0))))["idle for messages"]
    assert none.amount == 0


def test_little_memory_makes_devices_wait() -> None:
    cuts = {"recomputed": ((), (), (), ())}
    tight = of(plan(problem(cluster=replace(CLUSTER, memory=1750)), **cuts))["idle as memory is full"]
    assert tight.amount > of(plan(**cuts))["idle as memory is full"].amount == 0


def test_the_ends_of_a_step_leave_devices_idle() -> None:
    found = of(plan())["idle in warm-up and cool-down"]
    assert 0 < found.share < 1
