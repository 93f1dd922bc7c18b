"""The bound of three times: its closed form, and that it is between the bound of two times and optima."""

from __future__ import annotations

import pytest
from helpers.exact_cases import TINY_SHAPES, tiny_instance, v_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Memory, solve
from tightpipe.solver.bounds.formulas import two_times_bound
from tightpipe.solver.bounds.formulas.two_times import three_times, three_times_bound


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 9), st.integers(1, 20), *[st.integers(1, 99)] * 3, st.integers(0, 40))
def test_the_closed_form(p: int, more: int, f: int, b: int, w: int, c: int) -> None:
    n = p + more
    instance = v_instance(p, n, (f, b, w, c), Memory(1, 0, -1, 2 * p))
    formula = 2 * n * (f + b + w) + (p - 1) * (f + 4 * c + max(f, b + 2 * c)) - (2 * p - 1) * w
    assert three_times_bound(instance).value >= formula + (p - 1) * max(0, b - f - 2 * c)


def test_by_hand() -> None:
    """Eight B's take 160 ticks, and 3 F's, 5 B's and 6 messages, which is 136, lie between t2 and t3."""
    instance = v_instance(4, 8, (10, 20, 10, 1), Memory(1, 0, -1, 8))
    assert two_times_bound(instance).value == 678
    assert three_times_bound(instance).value == 678 + 160 - 136
    assert three_times(instance).max(axis=0).tolist()[-1] == 702
    assert three_times_bound(instance).argument.startswith("device 3 works 640 ticks")


def test_more_weights_can_be_pending_where_they_hold_less() -> None:
    """A W holds half an activation: a B less, which saves 20, makes room for another W of 10; so half of 24."""
    instance = v_instance(4, 8, (10, 20, 10, 1), Memory(2, -1, -1, 16))
    assert three_times_bound(instance).value - two_times_bound(instance).value == 12


@pytest.mark.parametrize("objective", ["device_span", "makespan"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", TINY_SHAPES, ids=str)
def test_never_above_an_optimum_and_never_below_two_times(
    shape: tuple[str, int, int], seed: int, objective: str
) -> None:
    instance = tiny_instance(shape, seed, objective, limited=True)
    optimum = solve(instance, "cpsat", time_limit=60, workers=1)
    assert optimum.status == "optimal"
    assert two_times_bound(instance).value <= three_times_bound(instance).value <= optimum.cost
