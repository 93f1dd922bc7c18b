"""Budgets: begun once, narrowed and never prolonged, with a seed that stays within what solvers take."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tightpipe.base.errors import InputError
from tightpipe.params import budget as budget_module
from tightpipe.params.budget import UNLIMITED, Allowance, Budget

NOW = 1000.0
Narrow = Callable[[Budget], Budget]
NARROWED: st.SearchStrategy[Narrow] = st.one_of(
    st.floats(0, 1e6).map(lambda seconds: lambda budget: budget.within(seconds)),
    st.floats(0.01, 1).map(lambda share: lambda budget: budget.part(share)),
    st.floats(0, 1e6).map(lambda seconds: lambda budget: budget.with_deadline(seconds)),
    st.integers(0, 2**31).map(lambda step: lambda budget: budget.reseeded(step)),
)


class FakeTime:
    """A clock that goes on when it is told to."""

    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(budget_module, "perf_counter", fake)
    return fake


def test_an_allowance_begins_when_it_is_told_to(clock: FakeTime) -> None:
    allowance = Allowance(60, workers=3, seed=7, max_memory=2.5)
    clock.now += 500  # loading and compiling
    assert allowance.begin() == Budget(NOW + 560, threads=3, seed=7, max_memory=2.5)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system binds no process to cores")
def test_an_allowance_takes_the_cores_that_the_process_may_use() -> None:
    usable = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(usable)})
        assert Allowance().threads == 1
    finally:
        os.sched_setaffinity(0, usable)
    assert Allowance().threads == len(usable)


def test_without_a_time_limit_there_is_no_deadline() -> None:
    budget = Allowance(workers=1).begin()
    assert budget == UNLIMITED
    assert budget.endless
    assert budget.left == inf
    assert budget.part(0.5) == UNLIMITED


def test_pieces_of_work_in_turn_share_what_is_left(clock: FakeTime) -> None:
    budget, deadlines = UNLIMITED.within(90), []
    for part in budget.in_turn(3):
        deadlines.append(part.deadline - NOW)
        clock.now += 10  # each piece ends early, and the others may use its time
    assert deadlines == [30, 10 + 40, 20 + 70]
    assert list(UNLIMITED.in_turn(2)) == [UNLIMITED] * 2


def test_no_time_at_all_is_no_time_left(clock: FakeTime) -> None:
    budget = Allowance(0, workers=1).begin()
    assert (budget.left, budget.endless) == (0.0, False)
    clock.now += 1
    assert budget.left == 0.0


def test_a_part_is_one_of_what_is_left(clock: FakeTime) -> None:
    budget = UNLIMITED.within(100)
    clock.now += 60
    assert budget.left == 40
    assert budget.part(0.25).deadline == NOW + 70
    assert budget.within(5).deadline == NOW + 65
    assert budget.within(50) == budget


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the time only goes on
@given(st.lists(st.tuples(NARROWED, st.floats(0, 1e5)), max_size=8))
def test_nothing_below_lasts_longer(clock: FakeTime, steps: list[tuple[Narrow, float]]) -> None:
    budget = Budget(threads=2, max_memory=3.0).within(1e4)
    for narrow, passed in steps:
        clock.now += passed
        narrower = narrow(budget)
        assert narrower.deadline <= max(budget.deadline, clock.now)
        assert narrower.left <= budget.left
        assert (narrower.threads, narrower.max_memory) == (2, 3.0)
        assert 0 <= narrower.seed < 2**31
        budget = narrower


def test_what_would_not_end_by_itself_ends_where_nothing_else_ends_it(clock: FakeTime) -> None:
    assert UNLIMITED.with_deadline().deadline == NOW + 600
    longer = UNLIMITED.within(5000)
    assert longer.with_deadline() is longer


def test_other_solvers_are_told_a_time_above_nothing_and_finite(clock: FakeTime) -> None:
    assert UNLIMITED.within(0).seconds_for_solver > 0
    assert UNLIMITED.within(5).seconds_for_solver == 5
    assert UNLIMITED.seconds_for_solver < inf


def test_after_the_last_seed_comes_the_first() -> None:
    assert Budget(seed=2**31 - 1).reseeded(2) == Budget(seed=1)


def test_budgets_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        UNLIMITED.deadline = 0.0  # type: ignore[misc]


def test_an_effort_limits_where_there_is_no_deadline() -> None:
    budget = Allowance(effort=20).begin()
    assert (budget.effort, budget.endless, budget.limited, budget.left) == (20, True, True, inf)
    assert (UNLIMITED.limited, UNLIMITED.within(1).limited) == (False, True)
    assert budget.shortened(5).effort == 5
    assert budget.shortened(50).effort == 20
    timed = UNLIMITED.within(100).shortened(10)
    assert timed.effort == inf
    assert 9 < timed.left <= 10


@pytest.mark.parametrize("effort", [0, -1, inf, 10**400, True, "3"])
def test_an_effort_is_a_number_of_seconds(effort: Any) -> None:
    with pytest.raises(InputError, match=r"effort = .*: must be a number of seconds, above 0"):
        Allowance(effort=effort)
