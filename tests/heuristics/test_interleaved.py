"""Interleaved 1F1B: closed forms, and groups that do not divide the microbatches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.cases import uniform
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Memory, NoScheduleError, retime, simulate, validate
from tightpipe.heuristics import HEURISTICS
from tightpipe.heuristics.interleaved import interleaved_order
from tightpipe.model.costs import Objective
from tightpipe.model.metrics import bubble, cost, peak_memory


def instance(devices: int, chunks: int, microbatches: int, comm: int = 0) -> Instance:
    memory = Memory(2, -1, -1, None)
    return uniform(
        devices, microbatches, (10, 12, 8), placement="loop", chunks=chunks, memory=memory, comm=comm
    )


@pytest.mark.parametrize(("p", "v", "n"), [(1, 3, 4), (2, 2, 4), (4, 2, 8), (4, 3, 12), (8, 4, 16)])
def test_bubble_and_memory(p: int, v: int, n: int) -> None:
    schedule = simulate(instance(p, v, n), interleaved_order(instance(p, v, n)))
    # arXiv:2104.04473, section 2.2: (p - 1) (f + b) / v; a chunk takes 1/v of a device's time
    assert bubble(schedule) == (p - 1) * (10 + 20)
    held = [min((v - 1) * p + 2 * (p - 1 - i) + 1, n * v) for i in range(p)]
    assert peak_memory(schedule).tolist() == [2 * chunks for chunks in held]


def frameworks_sizes(p: int, n: int) -> list[int]:
    """The rules by which Megatron-LM checks its group size; fewer than p microbatches are PyTorch's case."""
    return [size for size in range(p, n + 1) if n % size == 0 or n % size >= p] or [p]


@pytest.mark.parametrize(
    ("p", "v", "n", "expected"), [(4, 2, 6, 456), (4, 2, 10, 696), (4, 2, 3, 314), (5, 3, 6, 668)]
)
def test_costs_where_p_does_not_divide_n_are_those_of_the_frameworks(
    p: int, v: int, n: int, expected: int
) -> None:
    problem = replace(instance(p, v, n, comm=1), objective=Objective.MAKESPAN)
    assert cost(retime(problem, interleaved_order(problem))) == expected


@pytest.mark.parametrize("name", ["interleaved-1f1b", "interleaved-overlap"])
@pytest.mark.parametrize("p", range(1, 7))
@pytest.mark.parametrize("v", [1, 2, 3])
def test_no_number_of_microbatches_deadlocks(name: str, p: int, v: int) -> None:
    for n in range(1, 4 * p + 2):
        problem = instance(p, v, n)
        assert validate(problem, simulate(problem, HEURISTICS[name].order(problem))) == []


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 24),
    st.sampled_from([0, 1, 7, 30]),
    st.sampled_from(Objective),
)
def test_no_group_size_that_a_framework_runs_is_cheaper_where_equal_groups_do_not_exist(
    p: int, v: int, n: int, comm: int, objective: Objective
) -> None:
    problem = replace(instance(p, v, n, comm), objective=objective)
    taken = cost(retime(problem, interleaved_order(problem)))
    costs = {size: cost(retime(problem, interleaved_order(problem, size))) for size in frameworks_sizes(p, n)}
    rounds = max(1, n // p)
    equal = n % rounds == 0
    assert taken == (costs[max(p, n // rounds)] if equal else min(costs.values()))


def test_a_memory_limit_chooses_among_the_group_sizes() -> None:
    roomy = instance(
        4, 2, 27, comm=30
    )  # groups of 27, 14, 9 and 7 cost more and more, and hold less and less
    costs = []
    for size in (27, 14, 9, 7):
        peak = int(peak_memory(simulate(roomy, interleaved_order(roomy, size))).max())
        tight = replace(roomy, memory=Memory(2, -1, -1, peak))
        schedule = simulate(tight, interleaved_order(tight))
        assert peak_memory(schedule).max() <= peak
        costs.append(cost(schedule))
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]
    with pytest.raises(NoScheduleError, match=f"interleaved-1f1b needs a memory limit of at least {peak}"):
        interleaved_order(replace(roomy, memory=Memory(2, -1, -1, peak - 1)))


def test_many_group_sizes_are_thinned_out() -> None:
    problem = instance(2, 2, 1023)
    order = interleaved_order(problem)
    smallest = interleaved_order(problem, 3)
    assert cost(retime(problem, order)) <= cost(retime(problem, smallest))


def test_a_last_group_below_p_is_an_error_with_the_rule() -> None:
    rule = "group = 5: leaves a last group of 1 of the 6 microbatches, which must be 0 or at least 5"
    with pytest.raises(InputError, match=rule):
        interleaved_order(instance(5, 3, 6), 5)
