"""Interleaved 1F1B: closed forms, and groups that do not divide the microbatches."""

from __future__ import annotations

import pytest
from cases import uniform

from tightpipe import Instance, Memory, NoScheduleError, simulate, validate
from tightpipe.core.metrics import bubble, peak_memory
from tightpipe.heuristics.interleaved import interleaved_order


def instance(devices: int, chunks: int, microbatches: int) -> Instance:
    memory = Memory(2, -1, -1, None)
    return uniform(devices, microbatches, (10, 12, 8), placement="loop", chunks=chunks, memory=memory)


@pytest.mark.parametrize(("p", "v", "n"), [(1, 3, 4), (2, 2, 4), (4, 2, 8), (4, 3, 12), (8, 4, 16)])
def test_bubble_and_memory(p: int, v: int, n: int) -> None:
    schedule = simulate(instance(p, v, n), interleaved_order(instance(p, v, n)))
    # arXiv:2104.04473, section 2.2: (p - 1) (f + b) / v; a chunk takes 1/v of a device's time
    assert bubble(schedule) == (p - 1) * (10 + 20)
    held = [min((v - 1) * p + 2 * (p - 1 - i) + 1, n * v) for i in range(p)]
    assert peak_memory(schedule).tolist() == [2 * chunks for chunks in held]


def works(p: int, v: int, n: int) -> bool:
    problem = instance(p, v, n)
    try:
        order = interleaved_order(problem)
    except NoScheduleError:
        return False
    assert validate(problem, simulate(problem, order)) == []
    return True


@pytest.mark.parametrize("p", range(1, 6))
@pytest.mark.parametrize("v", [1, 2, 3])
def test_whole_groups_and_a_single_smaller_one_work(p: int, v: int) -> None:
    assert all(works(p, v, n) for n in [*range(1, p + 1), 2 * p, 3 * p])


def test_a_last_group_that_is_too_small_is_an_error_with_the_rule() -> None:
    assert works(4, 2, 5)
    with pytest.raises(NoScheduleError, match="6 microbatches in groups of 5 leave 1; take a multiple of 5"):
        interleaved_order(instance(5, 3, 6))
