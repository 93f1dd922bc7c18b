"""Orders from elsewhere: they become the schedule that `retime` makes, or are refused with the broken rule."""

from __future__ import annotations

import pytest
from helpers.cases import serial_order

from tightpipe import InputError, Instance, Memory, Order, retime
from tightpipe.model.orders import accepted

SMALL = Instance.uniform(
    devices=2, microbatches=2, forward=4, backward=6, weight=3, comm=1, memory=Memory(2, -1, -1, 4)
)
RIGHT = str(serial_order(SMALL))


def test_a_valid_order_gets_its_best_times() -> None:
    assert accepted(SMALL, Order.parse(RIGHT)) == retime(SMALL, serial_order(SMALL))


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("W0.1", "", "complete: W0.1 is missing"),
        ("F0.0", "", "complete: F0.0 is missing"),
        ("F0.0", "F0.0 F0.0", "complete: F0.0 runs 2 times"),
        ("F0.0", "F9.0", "complete: F9.0 is no operation of the instance"),
        ("\n", " F1.0\n", "complete: F1.0 runs 2 times"),
        ("\n", "\nF0.0\n", "complete: the schedule has 3 devices, the instance 2"),
        ("F0.0 F3.0", "F3.0 F0.0", "operations wait for each other"),
        ("B0.0 W0.0 F0.1 F3.1", "F0.1 F3.1 B0.0 W0.0", "memory_limit: "),
    ],
)
def test_an_invalid_order_is_refused_with_its_rule(old: str, new: str, rule: str) -> None:
    text = RIGHT.replace(old, new, 1)
    assert text != RIGHT
    with pytest.raises(InputError) as error:
        accepted(SMALL, Order.parse(text))
    assert str(error.value).startswith("the order is invalid: ")
    assert rule in str(error.value)


def test_operations_on_each_other_s_device_are_named() -> None:
    first, second = RIGHT.splitlines()
    with pytest.raises(InputError, match=r"placement: F1\.0 runs on device 0"):
        accepted(SMALL, Order.parse(f"{second}\n{first}"))
