"""What the fixed families share: refusals that say what would do, and the sequences of 1F1B."""

from __future__ import annotations

import re
from typing import Any

import pytest
from helpers.cases import uniform

from tightpipe import InputError, Instance, Memory, NoScheduleError, Order
from tightpipe.base.errors import InfeasibleError
from tightpipe.heuristics.family import (
    check_placement,
    one_forward_one_backward,
    order_of_steps,
    step,
    within_limits,
)
from tightpipe.model.operation import OpKind

F, B, W = OpKind.F, OpKind.B, OpKind.W


def linear(microbatches: int = 3, **entries: Any) -> Instance:
    return uniform(2, microbatches, (3, 4, 2), placement="linear", **entries)


def limited(limit: Any) -> Instance:
    """F holds 2, of which B and W free 1 each."""
    return linear(memory=Memory(2, -1, -1, limit))


def all_forwards_first(microbatches: int) -> Order:
    lists = [
        [(F, stage, m) for m in range(microbatches)]
        + [(kind, stage, m) for m in range(microbatches) for kind in (B, W)]
        for stage in range(2)
    ]
    return Order.from_lists(lists)


def test_a_family_keeps_to_its_placement() -> None:
    check_placement(linear(), "any", "linear")
    with pytest.raises(InputError, match="any is for the placement v") as error:
        check_placement(linear(), "any", "v")
    assert (error.value.key, error.value.value) == ("placement", "linear")


def test_an_instance_without_a_schedule_is_told_apart_from_a_family_without_one() -> None:
    hopeless = uniform(2, 2, (1, 1, 1), memory=Memory(2, -1, -1, 3))  # a V holds two activations at its turn
    assert hopeless.infeasibility()
    with pytest.raises(InfeasibleError, match=re.escape(hopeless.infeasibility())):
        check_placement(hopeless, "any", "v")


@pytest.mark.parametrize("limit", [None, 6, [6, 6], [9, 6]])
def test_an_order_that_fits_is_returned(limit: Any) -> None:
    order = all_forwards_first(3)
    assert within_limits(limited(limit), "any", order) is order


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (4, "any needs a memory limit of at least 6, and has 4"),
        ([4, 4], "any needs a memory limit of at least 6, and has 4"),
        ([7, 5], "any needs a memory limit of at least [6, 6] (per device), and has [7, 5]"),
    ],
)
def test_an_order_that_does_not_fit_says_which_limit_would_do(limit: Any, message: str) -> None:
    with pytest.raises(NoScheduleError, match=re.escape(message)):
        within_limits(limited(limit), "any", all_forwards_first(3))


def test_several_stages_in_a_row_run_as_one() -> None:
    deep = linear(chunks=2)
    assert step(deep, F, 1, 5) == [(F, 2, 5), (F, 3, 5)]
    assert step(deep, B, 1, 5) == [(B, 3, 5), (B, 2, 5)]


@pytest.mark.parametrize(
    ("warm_up", "sequence"),
    [(0, "f0 b0 f1 b1 f2 b2"), (1, "f0 f1 b0 f2 b1 b2"), (3, "f0 f1 f2 b0 b1 b2")],
)
def test_forwards_and_backwards_take_turns_after_the_warm_up(warm_up: int, sequence: str) -> None:
    found = one_forward_one_backward(["f0", "f1", "f2"], ["b0", "b1", "b2"], warm_up)
    assert " ".join(found) == sequence


def test_steps_of_a_device_are_joined_in_sequence() -> None:
    order = order_of_steps([[[(F, 0, 0)], [(B, 0, 0), (W, 0, 0)]], [[(F, 1, 0), (B, 1, 0)]]])
    assert order.to_lists() == [[(F, 0, 0), (B, 0, 0), (W, 0, 0)], [(F, 1, 0), (B, 1, 0)]]
