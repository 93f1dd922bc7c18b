"""Plans and bounds that go from one problem to another one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.handmade_plans import CLUSTER, no_plan, plan, problem

from tightpipe import Status, validate
from tightpipe.base.errors import ContradictionError
from tightpipe.planning import Plan
from tightpipe.planning.result import adopted, with_shared_bounds

SLOW = {"cuts": (0, 2, 3, 4, 10), "recomputed": ((), (), (), ())}


def roomy(**more: object) -> Plan:
    return plan(problem(cluster=replace(CLUSTER, memory=9000)), **more)


def test_the_cheaper_plan_is_adopted() -> None:
    slow, fast = replace(roomy(**SLOW), bound=1), plan()
    assert slow.cost is not None
    assert fast.cost is not None
    assert fast.cost < slow.cost
    found = adopted(slow, fast)
    assert (found.problem, found.cost, found.candidate) == (slow.problem, fast.cost, fast.candidate)
    assert found.bound == 1
    assert found.instance is not None
    assert found.schedule is not None
    assert validate(found.instance, found.schedule) == []


def test_a_bound_above_a_plan_that_is_adopted_is_an_error() -> None:
    """The bound of a handmade plan is that of its cut alone."""
    with pytest.raises(ContradictionError, match="of all plans"):
        adopted(roomy(**SLOW), plan())


def test_a_plan_that_is_no_cheaper_is_not_adopted() -> None:
    fast, slow = roomy(), plan(**SLOW)
    assert adopted(fast, slow) is fast
    assert adopted(fast, None) is fast
    assert adopted(fast, no_plan()) is fast


def test_a_plan_that_does_not_fit_is_not_adopted() -> None:
    asked = problem(cluster=replace(CLUSTER, memory=1700))
    assert adopted(no_plan(asked), plan()).schedule is None
    other_devices = problem(cluster=replace(CLUSTER, devices=(3,)))
    assert adopted(no_plan(other_devices), plan()).schedule is None


def test_a_plan_is_adopted_where_none_was_found() -> None:
    found = adopted(replace(no_plan(), status=Status.UNKNOWN, reason="none was found", bound=1), plan())
    assert (found.cost, found.bound, found.status) == (plan().cost, 1, Status.FEASIBLE)
    assert found.reason == ""


@pytest.mark.parametrize(
    ("bounds", "shared"), [((5, 7, 6), (7, 7, 6)), ((9, 8, 7), (9, 8, 7)), ((None, 3, 4), (None, 4, 4))]
)
def test_a_bound_under_more_memory_holds_under_less(
    bounds: tuple[int | None, ...], shared: tuple[int | None, ...]
) -> None:
    plans = [replace(plan(), bound=bound) for bound in bounds]
    assert tuple(found.bound for found in with_shared_bounds(plans)) == shared


def test_a_plan_is_optimal_once_a_shared_bound_says_so() -> None:
    below = replace(
        plan(), bound=1, status=Status.FEASIBLE, reason="a cut that is not searched may be faster"
    )
    first, _ = with_shared_bounds([below, replace(plan(), bound=plan().cost)])
    assert (first.status, first.reason) == (Status.OPTIMAL, "")
