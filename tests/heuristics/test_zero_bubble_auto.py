"""The automatic zero-bubble greedy: limits, bounds, several stages on a device."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import uniform

from tightpipe import Instance, Memory, simulate
from tightpipe.heuristics.family import zb_h1_order, zb_h2_order
from tightpipe.heuristics.greedy_v import zb_auto_order
from tightpipe.heuristics.zero_bubble_auto_kernel import Problem, Variant, run_variant
from tightpipe.model.metrics import bubble, cost, largest_work, peak_memory


def instance(p: int, n: int, limit: int | None, times: tuple[int, int, int] = (10, 10, 10)) -> Instance:
    return uniform(p, n, times, placement="linear", memory=Memory(5, -3, -2, limit))


@pytest.mark.parametrize("limit", range(1, 17))
def test_cost_is_at_least_the_warm_up_bound(limit: int) -> None:
    p, n, (f, b, w) = 8, 24, (10, 11, 8)
    problem = instance(p, n, 5 * limit, (f, b, w))
    schedule = simulate(problem, zb_auto_order(problem))
    assert peak_memory(schedule).max() <= 5 * limit
    # device 0 starts no more than `limit` F's before its first B
    assert cost(schedule) >= n * (f + b + w) + max(0, (p - 1) * b + (p - limit) * f)


def test_no_bubble_with_2p_activations_and_equal_times() -> None:
    problem = instance(8, 24, 5 * 16)
    assert bubble(simulate(problem, zb_auto_order(problem))) == 0


@pytest.mark.parametrize("times", [(10, 10, 10), (10, 11, 8), (12, 10, 9)])
def test_at_least_as_good_as_the_handmade_ones(times: tuple[int, int, int]) -> None:
    for make in (zb_h1_order, zb_h2_order):
        free = instance(8, 24, None, times)
        by_hand = simulate(free, make(free))
        problem = instance(8, 24, int(peak_memory(by_hand).max()), times)
        assert cost(simulate(problem, zb_auto_order(problem))) <= cost(by_hand)


def test_stages_in_a_row_count_as_one() -> None:
    one = instance(3, 8, 30, (10, 12, 8))
    two = Instance.uniform(
        devices=3,
        microbatches=8,
        forward=[4, 6] * 3,
        backward=[7, 5] * 3,
        weight=[3, 5] * 3,
        placement="linear",
        chunks=2,
        memory=Memory([2, 3] * 3, [-1, -2] * 3, [-1, -1] * 3, 30),
    )
    assert largest_work(one) == largest_work(two)
    assert cost(simulate(two, zb_auto_order(two))) == cost(simulate(one, zb_auto_order(one)))


def test_idle_time_that_a_light_device_has_anyway_costs_nothing() -> None:
    problem = Instance.uniform(
        devices=5,
        microbatches=15,
        forward=[5, 10, 10, 10, 10],
        backward=[5, 10, 10, 10, 10],
        weight=[4, 8, 8, 8, 8],
        placement="linear",
        memory=Memory(5, -3, -2, 25),
    )
    # 36 without the handicap of device 0
    assert bubble(simulate(problem, zb_auto_order(problem))) == 30


def kinds(n: int, times: tuple[int, int, int], comm: int, limit: int, variant: Variant) -> list[str]:
    """The kinds that two equal devices run in sequence; F holds 2, of which B and W free 1 each."""
    both = np.ones((3, 2), np.int64)
    lag = np.array([[0, comm], [comm, 0], [0, 0]])
    duration, delta = (np.array(row)[:, None] * both for row in (times, (2, -1, -1)))
    nothing = np.zeros(2, np.int64)
    problem = Problem(duration, delta, lag, np.array([limit, limit]), nothing, n)
    return ["".join("FBW"[kind] for kind in row) for row in run_variant(problem, variant).tolist()]


def test_a_variant_runs_a_pending_w_where_an_f_would_not_fit() -> None:
    assert kinds(3, (10, 10, 10), 0, 4, Variant(True, True, True)) == ["FFBWFBWBW", "FBFBWFBWW"]


@pytest.mark.parametrize(("leaves_out", "first"), [(True, "FFBFWBWBW"), (False, "FFFBWBWBW")])
def test_a_third_f_before_the_first_b_would_end_2_ticks_late(leaves_out: bool, first: str) -> None:
    assert kinds(3, (6, 4, 3), 0, 6, Variant(leaves_out, True, True))[0] == first


@pytest.mark.parametrize(("greedy", "last"), [(True, "FBFBWWFBW"), (False, "FBFBWFBWW")])
def test_a_w_that_delays_an_f_by_1_tick_runs_though_the_other_device_idles_more(
    greedy: bool, last: str
) -> None:
    assert kinds(3, (4, 4, 3), 1, 4, Variant(True, True, greedy))[1] == last


@pytest.mark.parametrize(("first_b", "sequence"), [(True, "FFFBWFBBFWWBWBW"), (False, "FFFBWFBWFBWBWBW")])
def test_an_f_two_ahead_of_the_next_device_can_wait_for_a_b(first_b: bool, sequence: str) -> None:
    assert kinds(5, (4, 4, 4), 0, 6, Variant(True, first_b, False))[0] == sequence
