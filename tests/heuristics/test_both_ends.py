"""Schedules without idle time from both ends: what they cost, what is refused, and how much memory it takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Memory, NoScheduleError, Objective, retime, solve, validate
from tightpipe.experiments.presets import published_instance
from tightpipe.heuristics.both_ends import _Problem, due_date_order, idle_free_order, tries
from tightpipe.heuristics.list_schedule import due_date_order as forward_order
from tightpipe.heuristics.list_schedule import stage_costs
from tightpipe.model.metrics import bubble, cost, idle_times
from tightpipe.params.budget import UNLIMITED


def uniform(
    devices: int,
    times: tuple[int, int, int, int],
    activations: int,
    placement: str = "v",
    chunks: int | None = None,
    microbatches: int | None = None,
    fused: int | None = None,
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
        fused=fused,
        memory=Memory(100, -57, -43, 100 * activations),
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
    schedule = retime(problem, due_date_order(problem))
    assert validate(problem, schedule) == []
    assert idle_times(schedule).tolist() == [0] * 8
    assert cost(retime(problem, forward_order(problem))) > cost(schedule)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([("v", None), ("linear", None), ("linear", 2), ("loop", 2), ("wave", 4)]),
    st.integers(1, 4),
    st.tuples(st.integers(5, 12), st.integers(5, 14), st.integers(3, 12), st.integers(0, 3)),
    st.integers(4, 24),
    st.integers(2, 12),
)
def test_a_schedule_is_valid_and_without_bubble(
    shape: tuple[str, int | None], devices: int, times: tuple[int, int, int, int], room: int, n: int
) -> None:
    placement, chunks = shape
    problem = uniform(devices, times, room, placement, chunks, n)
    try:
        order = idle_free_order(problem)
    except NoScheduleError:
        return
    schedule = retime(problem, order)
    assert validate(problem, schedule) == []
    assert cost(schedule) == problem.work(0)


@settings(max_examples=60, deadline=None)
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
    problem = _Problem(free, stage_costs(free))
    least = problem.least_memory(problem.devices[-1])
    memory = Memory(100, -57, -43, max(100 * free.stages // devices, least - 1))
    tight = replace(free, memory=memory)
    if memory.limit < least:
        with pytest.raises(NoScheduleError, match=f"at least {least} on device {problem.devices[-1]}"):
            idle_free_order(tight)
        found = solve(tight, "best", time_limit=1.0)
        assert found.schedule is None or bubble(found.schedule) > 0


def test_what_w_s_a_device_has_after_its_last_b() -> None:
    problem = published_instance("6.2B-8x24", memory="3p")
    assert _Problem(problem, stage_costs(problem)).later.tolist() == [1, 5, 9, 13, 17, 21, 25, 29]


UNEQUAL = Memory([100] * 7 + [90], -50, [-50] * 7 + [-40], 1200)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (replace(uniform(4, (10, 9, 8, 1), 12), objective=Objective.MAKESPAN), "objective device_span"),
        (uniform(4, (10, 9, 8, 1), 12, "bidirectional", microbatches=8), "one direction"),
        (replace(uniform(4, (10, 9, 8, 1), 12), memory=UNEQUAL), "cost the same"),
        (uniform(4, (10, 9, 8, 1), 12, fused=16), "separate B's and W's"),
        (published_instance("6.2B-8x24"), "needs a memory limit"),
    ],
)
def test_what_is_refused(problem: Instance, message: str) -> None:
    with pytest.raises(NoScheduleError, match=message):
        idle_free_order(problem)


def test_tries_depend_on_the_seed_alone() -> None:
    drawn = [[next(tries(seed, 4))[0] for _ in range(2)] for seed in (0, 0, 1)]
    assert repr(drawn[0]) == repr(drawn[1]) != repr(drawn[2])
    assert all(np.all((one.slack >= 0) & (one.slack <= 1)) for row in drawn for one in row)
