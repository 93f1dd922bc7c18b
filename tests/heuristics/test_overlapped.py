"""1F1B and interleaved 1F1B with overlapped pairs."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.cases import uniform
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Memory, NoScheduleError, retime, simulate, validate
from tightpipe.heuristics import HEURISTICS
from tightpipe.heuristics.interleaved import (
    interleaved_order,
    overlapped_interleaved_order,
    overlapped_one_f_one_b_order,
)
from tightpipe.model.metrics import cost, peak_memory

FAMILIES = {"1f1b-overlap": ("linear", "1f1b"), "interleaved-overlap": ("loop", "interleaved-1f1b")}


def instance(family: str, devices: int, microbatches: int, **more: Any) -> Instance:
    ticks = {"forward": 10, "backward": 12, "weight": 8} | more
    return Instance.uniform(
        devices=devices, microbatches=microbatches, placement=FAMILIES[family][0], **ticks
    )


def test_orders_by_hand() -> None:
    order = overlapped_one_f_one_b_order(instance("1f1b-overlap", 2, 4))
    assert str(order).splitlines() == [
        "F0.0 F0.1 F0.2 F0.3+BW0.0 BW0.1 BW0.2 BW0.3",
        "F1.0 F1.1+BW1.0 F1.2+BW1.1 F1.3+BW1.2 BW1.3",
    ]
    order = overlapped_interleaved_order(instance("interleaved-overlap", 2, 2))
    assert str(order).splitlines() == [
        "F0.0 F0.1 F2.0 F2.1 BW2.0 BW2.1 BW0.0 BW0.1",
        "F1.0 F1.1 F3.0 F3.1+BW3.0 BW3.1 BW1.0 BW1.1",
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_faster_pairs_pay_and_pairs_that_take_the_sum_do_not(family: str) -> None:
    free, plain = instance(family, 4, 32, overlapped=22), instance(family, 4, 32)
    paired = cost(retime(free, HEURISTICS[family].order(free)))
    apart = cost(retime(plain, HEURISTICS[FAMILIES[family][1]].order(plain)))
    assert paired < apart
    assert cost(retime(plain, HEURISTICS[family].order(plain))) >= apart


@given(
    st.sampled_from(sorted(FAMILIES)),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(1, 40),
    st.integers(0, 5),
)
def test_every_schedule_is_valid(family: str, devices: int, groups: int, both: int, comm: int) -> None:
    problem = instance(family, devices, devices * groups, overlapped=both, comm=comm)
    order = HEURISTICS[family].order(problem)
    for schedule in (simulate(problem, order), retime(problem, order)):
        assert validate(problem, schedule) == []


def test_peak_memory_of_the_first_device() -> None:
    problem = instance("1f1b-overlap", 4, 16, memory=Memory(2, -1, -1, None))
    peaks = peak_memory(simulate(problem, HEURISTICS["1f1b-overlap"].order(problem)))
    assert peaks.tolist() == [2 * 8, 2 * 6, 2 * 4, 2 * 2]


@given(st.integers(2, 4), st.integers(0, 3), st.integers(1, 3))
def test_interleaving_with_larger_groups(devices: int, more: int, groups: int) -> None:
    group = devices + more
    problem = instance("interleaved-overlap", devices, group * groups)
    assert validate(problem, simulate(problem, interleaved_order(problem, group))) == []


def test_groups_below_p_are_refused() -> None:
    with pytest.raises(InputError, match="group = 3: must be at least 4"):
        interleaved_order(instance("interleaved-overlap", 4, 8), 3)


def test_other_placements_are_refused() -> None:
    for make, other in ((overlapped_one_f_one_b_order, "loop"), (overlapped_interleaved_order, "linear")):
        with pytest.raises(InputError, match=f"placement = '{other}'"):
            make(uniform(2, 4, (10, 12, 8), placement=other))


def test_what_more_memory_than_the_limit_would_take_is_refused() -> None:
    problem = instance("1f1b-overlap", 2, 4, memory=Memory(2, -1, -1, 6))  # 4 F's hold 8
    with pytest.raises(NoScheduleError, match="8"):
        overlapped_one_f_one_b_order(problem)
