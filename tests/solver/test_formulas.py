"""What the formulas of the bounds are made of, computed by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.cases import uniform

from tightpipe import Instance, Memory, Objective, OpKind
from tightpipe.solver.bounds.formulas.paths import (
    Visit,
    chain_bound,
    earliest_starts,
    least_time,
    visits,
    work_bound,
)
from tightpipe.solver.bounds.formulas.ramps import (
    cooldown_bound,
    most_forwards,
    most_held,
    ramps_bound,
    warmup_bound,
)
from tightpipe.solver.bounds.formulas.two_times import (
    after_last_forward,
    most_before,
    shortest,
    stages_on,
    until_first_backward,
)


def linear(microbatches: int, **entries: Any) -> Instance:
    """Two devices, one stage each."""
    return uniform(2, microbatches, (3, 4, 2), comm=1, placement="linear", **entries)


def tight(limit: int | None, microbatches: int = 3) -> Instance:
    """F holds 2, of which B and W free 1 each."""
    return linear(microbatches, memory=Memory(2, -1, -1, limit))


def test_one_microbatch_goes_down_its_route_and_back() -> None:
    instance = linear(3)
    assert earliest_starts(instance, instance.placement.routes[0]) == (0, 4, 7, 12)


def test_a_visit_measures_the_paths_between_its_operations() -> None:
    first, last = (visits(linear(3), device) for device in range(2))
    assert first == (Visit(3, (0,), 0, 3, 12, 9, 6, 6),)
    assert last == (Visit(3, (1,), 4, 3, 3, 0, 6, 11),)


def test_a_device_of_two_directions_has_two_visits() -> None:
    instance = uniform(2, 4, (3, 4, 2), placement="bidirectional")
    assert [(visit.microbatches, visit.stages) for visit in visits(instance, 0)] == [(2, (0,)), (2, (1,))]


@pytest.mark.parametrize(("together", "least"), [(5, (3, 5)), (2, (2, 2)), (9, (3, 6))])
def test_a_pair_counts_where_it_takes_less(together: int, least: tuple[int, int]) -> None:
    instance = linear(3, overlapped=together)
    route = instance.placement.routes[0]
    assert tuple(least_time(instance, kind, 0, route) for kind in (OpKind.F, OpKind.BW)) == least


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
    ("limit", "microbatches", "warm", "cool", "both"),
    [
        (None, 3, 3, 0, 3),
        (5, 3, 6, 0, 6),
        (2, 2, 9, 9, 18),
        (None, 1, 9, 9, 9),  # both windows may be one: all F's run before the first B
    ],
)
def test_idle_times_of_both_ends_add_up_unless_all_fs_come_first(
    limit: int | None, microbatches: int, warm: int, cool: int, both: int
) -> None:
    instance = tight(limit, microbatches)
    work = microbatches * 9
    found = [bound(instance).value - work for bound in (warmup_bound, cooldown_bound, ramps_bound)]
    assert found == [warm, cool, both]


def test_the_makespan_counts_the_way_to_the_device() -> None:
    slow_end = Instance.uniform(
        devices=2, microbatches=3, forward=[3, 9], backward=4, weight=2, comm=1, placement="linear"
    )
    until_first_f = 3 + 1
    late = Instance(slow_end.placement, 3, slow_end.costs, None, Objective.MAKESPAN)
    assert warmup_bound(slow_end).value == 3 * 15
    assert warmup_bound(late).value == 3 * 15 + until_first_f


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
    (route,) = instance.placement.routes
    assert until_first_backward(instance, route).tolist() == until_b
    assert after_last_forward(instance, route).tolist() == after_f


def test_of_two_directions_the_shorter_path_counts() -> None:
    instance = uniform(2, 4, (3, 4, 2), comm=1, placement="bidirectional")
    one, other = (until_first_backward(instance, route).tolist() for route in instance.placement.routes)
    assert (one, other) == ([[12, 7], [8, 3]], [[3, 8], [7, 12]])
    assert shortest(instance, until_first_backward).tolist() == [[3, 7], [7, 3]]


def test_a_v_runs_two_stages_on_each_device() -> None:
    (route,) = uniform(2, 1, (3, 4, 2)).placement.routes
    assert [stages_on(route, device) for device in range(2)] == [[0, 3], [1, 2]]


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
