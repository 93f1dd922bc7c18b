"""A solve that counts its effort gives the same result in every run, for every method that counts it."""

from __future__ import annotations

import pytest
from helpers.exact_cases import v_instance

from tightpipe import InputError, Instance, Memory, Status, solve, validate

SCARCE = v_instance(6, 18, (185, 181, 93, 6), Memory(34, -22, -12, 34 * 6))
"""Nothing proves the optimum within a minute: repeating blocks, annealing and targets all get turns."""


@pytest.mark.parametrize(
    ("method", "effort"), [("best", 2.0), ("improve", 0.5), ("block", 0.5), ("cpsat", 0.25)]
)
def test_the_same_effort_gives_the_same_result(method: str, effort: float) -> None:
    first, second = (solve(SCARCE, method, effort=effort, workers=1) for _ in range(2))
    assert validate(SCARCE, first.schedule) == []
    assert first.status is Status.FEASIBLE
    assert first.schedule == second.schedule
    assert (first.cost, first.bound, first.proof) == (second.cost, second.bound, second.proof)
    assert [(entry.cost, entry.bound) for entry in first.log] == [
        (entry.cost, entry.bound) for entry in second.log
    ]


def test_more_effort_finds_cheaper_schedules() -> None:
    little, more = (solve(SCARCE, "improve", effort=effort, workers=1) for effort in (0.1, 3.0))
    assert more.cost < little.cost


def test_effort_is_refused_where_it_is_not_counted() -> None:
    instance = Instance.uniform(devices=2, microbatches=4, forward=1, backward=1, weight=1)
    with pytest.raises(InputError, match=r"effort = 5: goes with methods best, .*, not with milp"):
        solve(instance, "milp", effort=5)
