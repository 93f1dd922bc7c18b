"""Which CP-SAT models are not built."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.cases import uniform

from tightpipe.params.budget import Budget
from tightpipe.params.solve_params import DEFAULTS
from tightpipe.solver.cpsat import cpsat_method
from tightpipe.solver.cpsat.cpsat_method import solve_cpsat
from tightpipe.solver.cpsat.race import lattice_bytes, lattice_refusal, plain_bytes
from tightpipe.solver.outcome import TOO_LARGE, Ended
from tightpipe.solver.programs import MemoryCap
from tightpipe.solver.windows import Windows, shaved_windows

NO_CAP = MemoryCap(None)


@pytest.mark.parametrize(
    ("orders", "seconds", "refusal"),
    [
        (300_000, inf, None),
        (300_001, inf, TOO_LARGE),
        (1000, 0.11, None),
        (1000, 0.1, TOO_LARGE),
        (0, 0.0, TOO_LARGE),
    ],
)
def test_a_lattice_is_built_while_its_orders_and_the_time_allow(
    orders: int, seconds: float, refusal: Ended | None
) -> None:
    assert lattice_refusal(SimpleNamespace(undecided=orders), seconds, NO_CAP) == refusal


@pytest.mark.parametrize(("most", "shaved"), [(10**6, True), (10, False)])
def test_windows_that_leave_too_many_orders_are_not_shaved(
    monkeypatch: pytest.MonkeyPatch, most: int, shaved: bool
) -> None:
    calls = []

    def spy(*arguments: Any, **wider: Any) -> Windows:
        calls.append(arguments)
        return shaved_windows(*arguments, **wider)

    monkeypatch.setattr(cpsat_method, "shaved_windows", spy)
    params = replace(DEFAULTS, cpsat=replace(DEFAULTS.cpsat, most_orders=most))
    result = solve_cpsat(uniform(3, 5, (3, 4, 2), placement="v"), Budget(params=params).within(60))
    assert bool(calls) is shaved
    assert bool(result.reason) is not shaved


def test_a_lattice_that_does_not_fit_into_memory_is_refused() -> None:
    windows = SimpleNamespace(undecided=200_000)
    roomy, small = (MemoryCap(gigabytes) for gigabytes in (1000.0, 0.9))
    assert lattice_bytes(windows) == 900_000_000
    assert lattice_refusal(windows, inf, roomy) is None
    refusal = lattice_refusal(windows, inf, small)
    assert refusal is not None
    assert "memory cap" in refusal.text


def test_the_plain_model_grows_with_the_pairs_of_operations_of_a_device() -> None:
    instances = [uniform(2, n, (3, 4, 2), placement="linear") for n in (2, 5)]
    pairs = [2 * len(list(combinations(range(3 * n), 2))) for n in (2, 5)]
    small, large = map(plain_bytes, instances)
    assert small * pairs[1] == large * pairs[0]
