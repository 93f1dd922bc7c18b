"""Heuristics of one's own: functions given to `solve`, as method and as warm start."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from helpers.cases import serial_order

from tightpipe import (
    InfeasibleError,
    InputError,
    Instance,
    Memory,
    NoScheduleError,
    Order,
    Status,
    retime,
    solve,
    validate,
)
from tightpipe.heuristics import HEURISTICS, Heuristic
from tightpipe.model.metrics import cost

SMALL = Instance.uniform(
    devices=2, microbatches=4, forward=10, backward=12, weight=8, comm=1, memory=Memory(2, -1, -1, 8)
)


def my_order(instance: Instance) -> Order:
    return serial_order(instance)


def broken_order(instance: Instance) -> Order:
    return Order.parse(str(serial_order(instance)).replace("W0.1", ""))


def no_order(_: Instance) -> Any:
    return [["F0.0"]]


def choosy(_: Instance) -> Order:
    raise NoScheduleError("choosy needs a larger limit")


def certain(_: Instance) -> Order:
    raise InfeasibleError("there is none")


class Named:
    name = "by attribute"

    def __call__(self, instance: Instance) -> Order:
        return serial_order(instance)


def test_a_function_is_a_method() -> None:
    result = solve(SMALL, my_order)
    assert (result.method, result.status) == ("my_order", Status.FEASIBLE)
    assert result.schedule == retime(SMALL, serial_order(SMALL))
    assert result.bound == solve(SMALL, "list").bound


@pytest.mark.parametrize(
    ("given", "name"), [(Named(), "by attribute"), (partial(my_order), "partial"), (my_order, "my_order")]
)
def test_a_method_is_named_after_its_function(given: Any, name: str) -> None:
    assert solve(SMALL, given).method == name


def test_a_heuristic_is_a_method_too() -> None:
    mine = Heuristic("mine", my_order, ("v",), "any", "nowhere")
    assert solve(SMALL, mine).method == "mine"
    linear = replace(mine, placements=("linear",))
    with pytest.raises(InputError, match="method = 'mine': schedules placement linear, not v"):
        solve(SMALL, linear)


def test_a_function_without_a_schedule_is_treated_as_any_heuristic() -> None:
    assert solve(SMALL, choosy).status is Status.UNKNOWN
    assert solve(SMALL, choosy).reason == "choosy needs a larger limit"
    assert solve(SMALL, certain).status is Status.INFEASIBLE


def test_what_a_function_gets_wrong_is_told_in_one_line() -> None:
    with pytest.raises(InputError) as missing:
        solve(SMALL, broken_order)
    rule = "the order is invalid: complete: W0.1 is missing"
    assert str(missing.value) == f"heuristic = 'broken_order': {rule}"
    with pytest.raises(InputError) as other:
        solve(SMALL, no_order)
    assert str(other.value) == "heuristic = 'no_order': must return an Order, not list"


@pytest.mark.parametrize("given", [42, None, ["list"]])
def test_what_is_no_function_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match="must be a function Instance -> Order"):
        solve(SMALL, given)


def test_a_function_s_own_exception_reaches_its_author() -> None:
    def failing(_: Instance) -> Order:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        solve(SMALL, failing)


def test_a_function_warm_starts_a_search() -> None:
    result = solve(SMALL, "cpsat", time_limit=0, warm_start=my_order)
    assert result.cost == cost(retime(SMALL, serial_order(SMALL)))
    with pytest.raises(InputError, match="heuristic = 'broken_order': the order is invalid: complete"):
        solve(SMALL, "cpsat", warm_start=broken_order)
    with pytest.raises(InputError, match="warm_start = 'choosy': choosy needs a larger limit"):
        solve(SMALL, "cpsat", warm_start=choosy)
    with pytest.raises(
        InputError, match="warm_start = 'my_order': goes with methods that search, not with list"
    ):
        solve(SMALL, "list", warm_start=my_order)


@pytest.mark.parametrize("flush", [True, False])
def test_a_function_orders_several_iterations(flush: bool) -> None:
    twice = replace(SMALL, memory=None, iterations=2, flush=flush)
    seen = []

    def watched(instance: Instance) -> Order:
        seen.append((instance.microbatches, instance.iterations))
        return serial_order(instance)

    result = solve(twice, watched)
    assert result.schedule is not None
    assert validate(twice, result.schedule) == []
    assert seen == [(2, 1) if flush else (4, 2)]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": ""}, "name = '': must be a text"),
        ({"source": None}, "source = None: must be a text"),
        ({"placements": ()}, "must be a tuple of names out of linear"),
        ({"make": None}, "make = None: must be a function Instance -> Order"),
        ({"placements": "v"}, "placements = 'v': must be a tuple of names out of linear"),
        ({"placements": ("v", "w")}, "must be a tuple of names out of linear"),
    ],
)
def test_a_heuristic_is_checked_when_it_is_made(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(HEURISTICS["list"], **entry)
