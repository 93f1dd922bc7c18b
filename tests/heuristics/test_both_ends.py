"""Schedules without idle time from both ends: what they cost, what is refused, and how much memory it takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Memory, NoScheduleError, Objective, retime, solve, validate
from tightpipe.experiments.presets import published_instance
from tightpipe.heuristics.both_ends import _Problem, due_date_or_idle_free_order, idle_free_order, tries
from tightpipe.heuristics.list_schedule import due_date_order, stage_costs
from tightpipe.model.metrics import bubble, cost, idle_times
from tightpipe.model.operation import OpKind
from tightpipe.params.budget import UNLIMITED


def uniform(
    devices: int,
    times: tuple[int, int, int, int],
    activations: int,
    placement: str = "v",
    chunks: int | None = None,
    microbatches: int | None = None,
    **more: Any,
) -> Instance:
    f, b, w, c = times
    return Instance.uniform(
        devices=devices,
        microbatches=microbatches or 3 * devices,
        forward=f,
        backward=b,
        weight=w,
        comm=c,
        placement=placement,
        chunks=chunks,
        memory=Memory(100, -57, -43, 100 * activations),
        **more,
    )


@pytest.mark.parametrize("name", ["6.2B-8x24", "6.2B-8x32", "6.2B-8x64", "6.2B-8x24-swapped", "14.6B-16x48"])
@pytest.mark.parametrize("seed", range(3))
def test_published_settings_at_3p_have_no_bubble(name: str, seed: int) -> None:
    problem = published_instance(name, memory="3p")
    schedule = retime(problem, idle_free_order(problem, replace(UNLIMITED, seed=seed)))
    assert validate(problem, schedule) == []
    assert bubble(schedule) == 0


def test_no_device_idles_where_due_dates_leave_a_bubble() -> None:
    problem = uniform(8, (1000, 1043, 567, 83), 52, "wave", chunks=4, microbatches=32)
    schedule = retime(problem, due_date_or_idle_free_order(problem))
    assert validate(problem, schedule) == []
    assert idle_times(schedule).tolist() == [0] * 8
    assert cost(retime(problem, due_date_order(problem))) > cost(schedule)


@pytest.mark.parametrize(
    "problem",
    [
        uniform(1, (10, 9, 8, 0), 12),
        uniform(4, (10, 10, 9, 0), 14),
        uniform(8, (1000, 777, 935, 99), 48, "linear", chunks=2, microbatches=32),
        uniform(4, (1000, 887, 499, 9), 18, "loop", chunks=2, microbatches=16),
        uniform(4, (1000, 872, 429, 71), 26, "wave", chunks=4, microbatches=16),
        uniform(4, (100, 95, 80, 5), 14, link_occupancy=5),
    ],
)
def test_a_schedule_is_found_on_other_placements_too(problem: Instance) -> None:
    schedule = retime(problem, idle_free_order(problem))
    assert validate(problem, schedule) == []
    assert idle_times(schedule).tolist() == [0] * problem.devices


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([("v", None), ("linear", None), ("linear", 2), ("loop", 2), ("wave", 4)]),
    st.integers(1, 4),
    st.tuples(st.integers(5, 12), st.integers(5, 14), st.integers(3, 12), st.integers(0, 3)),
    st.integers(4, 24),
    st.integers(2, 12),
)
def test_what_is_returned_is_valid_and_never_dearer(
    shape: tuple[str, int | None], devices: int, times: tuple[int, int, int, int], room: int, n: int
) -> None:
    placement, chunks = shape
    problem = uniform(devices, times, room, placement, chunks, n)
    schedule = retime(problem, due_date_or_idle_free_order(problem))
    assert validate(problem, schedule) == []
    usual = cost(retime(problem, due_date_order(problem)))
    assert cost(schedule) in (usual, problem.work(0))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([("v", None), ("linear", None), ("linear", 2), ("loop", 2)]),
    st.integers(2, 3),
    st.tuples(st.integers(3, 9), st.integers(3, 9), st.integers(2, 9), st.integers(0, 2)),
    st.integers(3, 6),
)
def test_nothing_without_bubble_exists_below_the_memory_said(
    shape: tuple[str, int | None], devices: int, times: tuple[int, int, int, int], n: int
) -> None:
    placement, chunks = shape
    free = uniform(devices, times, 10**4, placement, chunks, n)
    costs = stage_costs(free)
    least = [_Problem(free, costs).least_memory(device) or 10**4 for device in range(devices)]
    limit = max(least) - 1
    assume(limit >= 100 * free.stages // devices)
    tight = replace(free, memory=Memory(100, -57, -43, min(limit, 10**4)))
    with pytest.raises(NoScheduleError, match="needs"):
        idle_free_order(tight)
    found = solve(tight, "cpsat", effort=2.0)
    assert found.schedule is not None
    assert bubble(found.schedule) > 0


def test_least_memory_by_hand() -> None:
    """29 W's after the last B; before it 15 B's and two W's, or 16 B's and one W, fill 480,400 ticks."""
    problem = published_instance("6.2B-8x24", memory="3p")
    f, b, w = (problem.memory_delta(kind, 0) for kind in (OpKind.F, OpKind.B, OpKind.W))
    assert _Problem(problem, stage_costs(problem)).least_memory(7) == 31 * -w + 15 * -b < 22 * f


def test_devices_are_numbered_by_their_lowest_stages() -> None:
    for name, chunks in (("linear", 2), ("loop", 3), ("v", None), ("wave", 4)):
        problem = uniform(5, (10, 9, 8, 1), 12, name, chunks)
        lowest = _Problem(problem, stage_costs(problem)).lowest
        assert (np.diff(lowest) > 0).all()


@pytest.mark.parametrize("comm", [10**6, 10**9])
def test_few_microbatches_cannot_fill_a_long_way(comm: int) -> None:
    problem = uniform(4, (1, 1, 1, comm), 12)
    with pytest.raises(NoScheduleError, match="more microbatches"):
        idle_free_order(problem)
    assert due_date_or_idle_free_order(problem) == due_date_order(problem)


def test_a_limit_of_another_device_than_the_last_one_counts() -> None:
    problem = published_instance("6.2B-8x24", memory="3p")
    assert problem.memory is not None
    limits = [problem.memory_limit(device) for device in range(8)]
    tight = replace(problem, memory=replace(problem.memory, limit=[*limits[:6], 800_000, limits[7]]))
    with pytest.raises(NoScheduleError, match="on device 6, and has 800000"):
        idle_free_order(tight)


def test_where_no_schedule_without_bubble_can_be_it_is_the_order_by_due_dates() -> None:
    problem = published_instance("6.2B-8x24", memory="3p")
    assert due_date_or_idle_free_order(problem) != due_date_order(problem)
    for other in (published_instance("6.2B-8x24"), replace(problem, objective=Objective.MAKESPAN)):
        assert due_date_or_idle_free_order(other) == due_date_order(other)


def test_what_w_s_a_device_has_after_its_last_b() -> None:
    problem = published_instance("6.2B-8x24", memory="3p")
    assert _Problem(problem, stage_costs(problem)).later.tolist() == [1, 5, 9, 13, 17, 21, 25, 29]


UNEQUAL = Memory([100] * 7 + [90], -50, [-50] * 7 + [-40], 1200)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (replace(uniform(4, (10, 9, 8, 1), 12), objective=Objective.MAKESPAN), "device_span"),
        (uniform(4, (10, 9, 8, 1), 12, "bidirectional", microbatches=8), "travel one way"),
        (replace(uniform(4, (10, 9, 8, 1), 12), memory=UNEQUAL), "cost the same"),
        (uniform(4, (10, 9, 8, 1), 12, fused=16), "separate B's and W's"),
        (published_instance("6.2B-8x24"), "needs a memory limit"),
    ],
)
def test_what_is_refused(problem: Instance, message: str) -> None:
    with pytest.raises(NoScheduleError, match=message):
        idle_free_order(problem)


def test_tries_depend_on_the_seed_alone() -> None:
    drawn = [[one for one, _ in islice(tries(seed, 4), 2)] for seed in (0, 0, 1)]
    assert repr(drawn[0][0]) != repr(drawn[0][1])
    assert repr(drawn[0]) == repr(drawn[1]) != repr(drawn[2])
    assert all(np.all((one.slack >= 0) & (one.slack <= 1)) for row in drawn for one in row)
