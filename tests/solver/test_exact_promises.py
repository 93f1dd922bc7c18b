"""What the searches by CP-SAT and by an integer program both promise besides optima."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.cases import serial_order
from helpers.exact_cases import plain_memory, v_instance

from tightpipe import InputError, Memory, Result, Schedule, Status, retime, simulate
from tightpipe.model.metrics import cost
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.cpsat import solve_cpsat
from tightpipe.solver.milp import solve_milp

INSTANCE = v_instance(4, 8, (8, 14, 8, 2), plain_memory(16))
SERIAL = retime(INSTANCE, serial_order(INSTANCE))
Search = Callable[..., Result]

each_search = pytest.mark.parametrize("search", [solve_cpsat, solve_milp])


@each_search
def test_no_time_returns_the_warm_start_with_its_bound(search: Search) -> None:
    warm_start = simulate(INSTANCE, serial_order(INSTANCE))
    result = search(INSTANCE, UNLIMITED.within(0), warm_start)
    assert result.schedule is not None
    assert result.schedule.order == warm_start.order
    assert result.cost <= cost(warm_start)
    assert result.bound == best_bound(INSTANCE).value
    assert (result.status, f"solve_{result.method}") == (Status.FEASIBLE, search.__name__)


@each_search
def test_infeasible_memory_is_said(search: Search) -> None:
    instance = v_instance(2, 2, (1, 1, 1, 0), Memory(2, -1, -1, 3))
    result = search(instance, Budget(threads=2).within(5))
    assert (result.status, result.schedule) == (Status.INFEASIBLE, None)
    assert result.reason == instance.infeasibility()


@each_search
def test_an_invalid_warm_start_is_refused(search: Search) -> None:
    broken = Schedule(INSTANCE, SERIAL.order, SERIAL.start + 1, SERIAL.end)
    with pytest.raises(InputError, match="warm start"):
        search(INSTANCE, Budget(threads=2).within(5), broken)
