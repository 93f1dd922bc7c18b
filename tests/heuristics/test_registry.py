"""How a heuristic for one iteration serves several."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.cases import serial_order, uniform

from tightpipe import Instance, NoScheduleError, Order
from tightpipe.heuristics.registry import Heuristic

ONE = uniform(2, 2, (3, 4, 2), placement="linear")
TWO = uniform(2, 4, (3, 4, 2), placement="linear", iterations=2, flush=True)


def reversed_order(instance: Instance) -> Order:
    """The last microbatch first, so that it shows whose order was taken."""
    last = instance.microbatches - 1
    return Order.from_lists(
        [
            [(kind, stage, last - m) for kind, stage, m in device]
            for device in serial_order(instance).to_lists()
        ]
    )


HEURISTIC = Heuristic("serial", serial_order, ("linear",), "none", "a test")


def test_one_iteration_is_as_it_is_made() -> None:
    assert HEURISTIC.order(ONE) == serial_order(ONE)


def test_a_flushed_iteration_is_repeated_with_the_next_microbatches() -> None:
    asked: list[Instance] = []

    def make(instance: Instance) -> Order:
        asked.append(instance)
        return reversed_order(instance)

    order = replace(HEURISTIC, make=make).order(TWO)
    assert asked == [replace(TWO, microbatches=2, iterations=1)]
    assert [[m for _, _, m in device] for device in order.to_lists()] == [
        [1, 1, 1, 0, 0, 0, 3, 3, 3, 2, 2, 2]
    ] * 2


def test_without_a_flush_the_form_for_it_is_asked() -> None:
    flushless = replace(TWO, flush=False)
    assert replace(HEURISTIC, flushless=reversed_order).order(flushless) == reversed_order(flushless)
    with pytest.raises(NoScheduleError, match="serial has no form without a flush"):
        HEURISTIC.order(flushless)
