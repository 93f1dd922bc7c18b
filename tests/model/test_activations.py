"""Memory in activations of one stage: exact where stages are alike, the mean where not; shares of 1F1B's peak."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.cases import uniform

from tightpipe import Instance, Memory, solve
from tightpipe.model.metrics import limits_of_activations, memory_of_1f1b, peak_memory


def instance(placement: str, held: Any, limit: Any = None, n: int = 8, **more: Any) -> Instance:
    """Four devices; W frees what F holds."""
    freed = [-a for a in held] if isinstance(held, list) else -held
    return uniform(4, n, (3, 3, 2), placement=placement, memory=Memory(held, 0, freed, limit), **more)


@pytest.mark.parametrize("placement", ["linear", "v", "loop", "wave", "bidirectional"])
def test_where_stages_are_alike_an_activation_is_that_of_a_stage(placement: str) -> None:
    assert limits_of_activations(instance(placement, 7), 5) == (35,) * 4


def test_where_they_are_not_it_is_the_mean_of_the_devices_own_rounded_down_once() -> None:
    assert limits_of_activations(instance("v", [1, 2, 3, 4, 5, 6, 8, 12]), 3) == (19, 15, 13, 13)
    assert limits_of_activations(instance("linear", [1, 2, 3, 4]), 3) == (3, 6, 9, 12)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_1f1b_needs_once_its_own_memory_and_no_less(n: int) -> None:
    free = instance("linear", 6, n=n)
    found = solve(free, "1f1b").schedule
    assert found is not None
    peak = int(peak_memory(found).max())
    assert memory_of_1f1b(instance("linear", 6, peak, n)) == 1
    assert solve(instance("linear", 6, peak, n), "1f1b").schedule is not None
    assert solve(instance("linear", 6, peak - 1, n), "1f1b").schedule is None


@pytest.mark.parametrize("placement", ["v", "loop", "wave", "linear", "bidirectional"])
def test_equal_limits_of_the_same_model_are_equal_shares(placement: str) -> None:
    chunks = instance(placement, 1).placement.stages_per_device
    assert memory_of_1f1b(instance(placement, 12 // chunks, 72)) == 1.5


def test_uneven_stages_are_joined_along_the_model() -> None:
    # 1F1B would hold 4 x (1 + 2), 3 x (3 + 4), 2 x (5 + 6) and 1 x (7 + 8)
    assert memory_of_1f1b(instance("v", [1, 2, 3, 4, 5, 6, 7, 8], [20, 33, 11, 12])) == 1.5


def test_the_share_is_of_the_microbatches_of_one_iteration() -> None:
    assert memory_of_1f1b(instance("linear", 5, 10, iterations=4)) == 1


def test_there_is_no_share_without_a_limit_or_without_memory() -> None:
    assert memory_of_1f1b(instance("v", 2)) is None
    assert memory_of_1f1b(instance("v", 0, 5)) is None
    assert memory_of_1f1b(uniform(2, 4, (1, 1, 1))) is None
