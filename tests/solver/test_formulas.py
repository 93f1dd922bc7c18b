"""What the formulas of the bounds are made of, computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.cases import uniform

from tightpipe import Instance, Memory, Objective
from tightpipe.solver.bounds.formulas.paths import (
    after_last_forward,
    chain_bound,
    paths_of,
    shortest,
    until_first_backward,
    work_bound,
)
from tightpipe.solver.bounds.formulas.ramps import most_before, most_forwards, most_held, ramps_bound


def linear(microbatches: int, **entries: Any) -> Instance:
    """Two devices, one stage each."""
    return uniform(2, microbatches, (3, 4, 2), comm=1, placement="linear", **entries)


def tight(limit: int | None, microbatches: int = 3) -> Instance:
    """F holds 2, of which B and W free 1 each."""
    return linear(microbatches, memory=Memory(2, -1, -1, limit))


def test_one_microbatch_goes_down_its_route_and_back() -> None:
    assert paths_of(linear(3)).start.tolist() == [[0, 4, 7, 12]]


def test_a_v_has_two_stages_on_each_device() -> None:
    paths = paths_of(uniform(2, 1, (3, 4, 2)))
    assert (paths.lowest.tolist(), paths.highest.tolist()) == ([[0, 1]], [[3, 2]])


def test_two_directions_have_a_path_each() -> None:
    paths = paths_of(uniform(2, 4, (3, 4, 2), placement="bidirectional"))
    assert (paths.lowest.tolist(), paths.highest.tolist()) == ([[0, 1], [1, 0]], [[0, 1], [1, 0]])


@pytest.mark.parametrize(("together", "least"), [(5, (3, 5)), (2, (2, 2)), (9, (3, 6))])
def test_a_pair_counts_where_it_takes_less(together: int, least: tuple[int, int]) -> None:
    paths = paths_of(linear(3, overlapped=together))
    assert (paths.forward[0, 0], paths.both[0, 0]) == least


@pytest.mark.parametrize(("objective", "value"), [("device_span", 3 + 9 + 6), ("makespan", 0 + 12 + 6)])
def test_the_chain_is_the_longest_path_back_to_its_device(objective: str, value: int) -> None:
    bound = chain_bound(linear(3, objective=objective))
    assert bound.value == value
    assert bound.argument == f"one microbatch takes {value} ticks from device 0 back to it"


@pytest.mark.parametrize(("objective", "value"), [("device_span", 3 + 4 + 20), ("makespan", 4 + 3 + 4 + 20)])
def test_the_chain_of_the_makespan_begins_on_the_first_device(objective: str, value: int) -> None:
    slow_end = Instance.uniform(
        **{"devices": 2, "microbatches": 1, "forward": 3, "backward": 4, "weight": [2, 20], "comm": 1},
        placement="linear",
        objective=objective,
    )
    assert chain_bound(slow_end).value == value


@pytest.mark.parametrize(("limit", "forwards", "held"), [(None, 9, 18), (5, 6, 15), (2, 3, 6)])
def test_memory_limits_what_runs_before_the_first_b_and_after_the_last_f(
    limit: int | None, forwards: int, held: int
) -> None:
    assert (most_forwards(tight(limit), 0), most_held(tight(limit), 0)) == (forwards, held)


@pytest.mark.parametrize(
    ("limit", "microbatches", "idle"),
    [
        (None, 3, 3),
        (5, 3, 6),
        (2, 2, 9 + 9),
        (None, 1, 9),  # both windows may be one: all F's run before the first B
    ],
)
def test_idle_times_of_both_ends_add_up_unless_all_fs_come_first(
    limit: int | None, microbatches: int, idle: int
) -> None:
    instance = tight(limit, microbatches)
    assert ramps_bound(instance).value - microbatches * 9 == idle


def test_the_makespan_counts_the_way_to_the_device() -> None:
    slow_end = Instance.uniform(
        devices=2, microbatches=3, forward=[3, 9], backward=4, weight=2, comm=1, placement="linear"
    )
    until_first_f = 3 + 1
    late = Instance(slow_end.placement, 3, slow_end.costs, None, Objective.MAKESPAN)
    assert ramps_bound(slow_end).value == 3 * 15

    assert ramps_bound(late).value == 3 * 15 + until_first_f


@pytest.mark.parametrize(
    ("objective", "until_b", "after_f"),
    [
        # the microbatch of `linear` is on device 0 from 0 to 18 and on device 1 from 4 to 13
        ("device_span", [[12, 7], [12 - 4, 7 - 4]], [[18 - 3, 18 - 7], [13 - 3, 13 - 7]]),
        ("makespan", [[12, 7], [12, 7]], [[18 - 3, 18 - 7], [18 - 3, 18 - 7]]),
    ],
)
def test_paths_from_and_to_each_frame(
    objective: str, until_b: list[list[int]], after_f: list[list[int]]
) -> None:
    instance = linear(3, objective=objective)
    assert until_first_backward(instance, paths_of(instance)).tolist() == [until_b]
    assert after_last_forward(instance, paths_of(instance)).tolist() == [after_f]


def test_of_two_directions_the_shorter_path_counts() -> None:
    instance = uniform(2, 4, (3, 4, 2), comm=1, placement="bidirectional")
    one, other = until_first_backward(instance, paths_of(instance)).tolist()
    assert (one, other) == ([[12, 7], [8, 3]], [[3, 8], [7, 12]])
    assert shortest(instance, until_first_backward).tolist() == [[3, 7], [7, 3]]


@pytest.mark.parametrize(
    ("objective", "limit", "most"),
    [
        # 7 - 4 ticks remain on device 1; device 0 may begin before the frame of device 1 does
        ("device_span", None, [[12, 3], [18, 3]]),
        ("makespan", None, [[12, 3], [12, 3]]),
        ("device_span", 4, [[6, 3], [6, 3]]),  # memory for two F's
        ("makespan", 4, [[6, 3], [6, 3]]),
    ],
)
def test_time_and_memory_limit_the_work_before_the_first_b(
    objective: str, limit: int | None, most: list[list[int]]
) -> None:
    instance = replace(tight(limit, 6), objective=Objective(objective))
    assert most_before(instance, shortest(instance, until_first_backward)).tolist() == most


def test_the_work_of_the_busiest_device_is_a_bound() -> None:
    uneven = Instance.uniform(
        devices=2, microbatches=3, forward=[3, 9], backward=4, weight=2, placement="linear"
    )
    bound = work_bound(uneven)
    assert (bound.value, bound.argument) == (45, "device 1 works 45 ticks, one operation at a time")
    assert work_bound(linear(3, overlapped=5)).value == 3 * 5  # as if every F ran together with a BW
