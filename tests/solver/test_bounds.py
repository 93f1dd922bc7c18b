"""The analytic bounds: published formulas, and never above what is proven."""

import pytest
from helpers.cases import instances, serial_order
from helpers.exact_cases import one_stage, plain_memory, table_memory, v_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Memory, Objective, retime
from tightpipe.model.metrics import cost, largest_work
from tightpipe.params.budget import Budget
from tightpipe.solver.bounds.formulas import all_bounds, best_bound, ramps_bound, work_bound
from tightpipe.solver.bounds.formulas.ramps import Choice, most_work
from tightpipe.solver.cpsat import solve_cpsat
from tightpipe.solver.cpsat.targets import refutation_bound


@settings(max_examples=200, deadline=None)
@given(instances(max_devices=4, max_microbatches=6))
def test_no_bound_is_above_a_schedule(instance: Instance) -> None:
    serial = cost(retime(instance, serial_order(instance)))
    for bound in all_bounds(instance):
        assert 0 < bound.value <= serial, bound
        assert bound.argument
        assert bound.seconds >= 0
    assert best_bound(instance).value >= work_bound(instance).value


@settings(max_examples=25, deadline=None)
@given(instances(max_devices=3, max_microbatches=3, most_operations=60))  # larger ones may stay open
def test_no_bound_is_above_the_optimum(instance: Instance) -> None:
    result = solve_cpsat(instance, Budget(threads=2).within(5))
    for bound in all_bounds(instance):
        assert bound.value <= result.cost, bound


@settings(deadline=None)
@given(*[st.integers(1, 9)] * 5, st.integers(0, 4), st.integers(1, 12))
def test_one_stage_per_device_as_published(p: int, n: int, f: int, b: int, w: int, c: int, room: int) -> None:
    instance = one_stage(p, n, (f, b, w, c), 2 * room)
    k = min(n, room)
    published = n * (f + b + w) + max(0, (p - 1) * (b + 2 * c) + (p - k) * f)
    assert ramps_bound(instance).value >= published


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize(("f", "b", "w", "c"), [(10, 12, 8, 1), (3, 3, 2, 0), (9, 7, 2, 2), (5, 8, 3, 0)])
def test_v_at_two_activations_per_device(p: int, f: int, b: int, w: int, c: int) -> None:
    instance = v_instance(p, 3 * p, (f, b, w, c), table_memory(p))
    extra = 2 * (p - 1) * c + (p - 1) * max(0, b - f)
    assert ramps_bound(instance).value >= largest_work(instance) + extra


def test_pinning_device_starts_would_claim_too_much() -> None:
    """With b > f a device gains by starting late: a bound that pins the starts says 16 here."""
    instance = v_instance(2, 4, (8, 14, 8, 2), plain_memory(8))
    result = solve_cpsat(instance, Budget(threads=2).within(30))
    assert result.bubble == 12
    assert best_bound(instance).value <= result.cost
    assert refutation_bound(instance, result.cost, Budget(threads=2).within(30)).value == result.cost


def test_the_makespan_is_bounded_from_the_first_to_the_last_operation() -> None:
    instance = Instance.uniform(
        devices=3,
        microbatches=1,
        forward=5,
        backward=6,
        weight=2,
        comm=1,
        placement="linear",
        objective=Objective.MAKESPAN,
    )
    assert best_bound(instance).value == 3 * 5 + 3 * 6 + 4 * 1 + 2


def test_loose_memory_does_not_count() -> None:
    loose = v_instance(3, 6, (3, 3, 2, 1), Memory(2, -1, -1, None))
    tight = v_instance(3, 6, (3, 3, 2, 1), plain_memory(6))
    assert best_bound(loose).value < best_bound(tight).value


def test_a_refutation_names_its_argument() -> None:
    instance = v_instance(3, 6, (10, 12, 8, 1), plain_memory(12))
    upper = largest_work(instance) + 18
    bound = refutation_bound(instance, upper, Budget(threads=2).within(60))
    assert best_bound(instance).value < bound.value == upper
    assert "no schedule costs" in bound.argument


@pytest.mark.parametrize(
    ("choices", "limit", "work"),
    [
        ([Choice(3, ((2, 5),))], None, 15),
        ([Choice(3, ((2, 5),))], 5, 10),
        ([Choice(2, ((2, 5),)), Choice(2, ((2, 7),))], 6, 19),
        ([Choice(2, ((0, 4),)), Choice(2, ((3, 3),))], 3, 11),
        ([Choice(2, ((4, 10), (1, 4)))], 5, 14),
        ([Choice(2, ((4, 10), (1, 1)))], 8, 20),
    ],
)
def test_most_work(choices: list[Choice], limit: int | None, work: int) -> None:
    assert most_work(choices, limit) == work
