"""Exact methods on microbatches that differ: the sequence of the classes is theirs to decide."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.cases import uniform
from helpers.independent_model import optimal_schedule

from tightpipe import Instance, Memory, MicrobatchClass, Result, Status, solve, validate
from tightpipe.model.metrics import cost

EXACT = ("cpsat", "cpsat:plain", "milp", "best")
THREE = [MicrobatchClass(1, 20), MicrobatchClass(2, 5, 6, 4), MicrobatchClass(1, weight=16)]


def of_lengths(devices: int, lengths: list[int], held: int, **entries: Any) -> Instance:
    """F, B and W take as long as the sequence, whose memory they hold; there is room for the `held` longest."""
    return Instance.uniform(
        devices=devices,
        placement="linear",
        forward=1,
        backward=1,
        weight=1,
        memory=Memory(1, 0, -1, sum(sorted(lengths)[-held:])),
        classes=[
            MicrobatchClass(1, length, length, length, memory=Memory(length, 0, -length))
            for length in lengths
        ],
        **entries,
    )


def solved(instance: Instance, name: str, seconds: float = 20) -> Result:
    return solve(instance, name, time_limit=seconds, workers=1, warm_start=None)


@pytest.mark.parametrize("name", EXACT)
def test_exact_methods_find_the_best_sequence_of_microbatches_that_differ(name: str) -> None:
    """In the sequence given, first in, first out over all of them, no schedule is as cheap."""
    instance = uniform(2, 4, (9, 8, 7), comm=1, placement="linear", classes=THREE, memory=Memory(1, 0, -1, 2))
    found = solved(instance, name)
    assert found.schedule is not None
    assert validate(instance, found.schedule) == []
    assert (found.cost, found.status) == (cost(optimal_schedule(instance)), Status.OPTIMAL)
