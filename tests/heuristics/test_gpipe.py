"""GPipe: closed forms and the order itself."""

from __future__ import annotations

import pytest
from helpers.cases import uniform

from tightpipe import Instance, Memory, Order, simulate
from tightpipe.heuristics.family import gpipe_order
from tightpipe.model.metrics import bubble, peak_memory


def instance(devices: int, microbatches: int, **more: int) -> Instance:
    memory = Memory(2, -1, -1, None)
    return uniform(devices, microbatches, (10, 12, 8), placement="linear", memory=memory, **more)


def test_the_order() -> None:
    expected = Order.parse("F0.0 F0.1 BW0.0 BW0.1\nF1.0 F1.1 BW1.0 BW1.1")
    assert gpipe_order(instance(2, 2)) == expected


def test_consecutive_stages_of_a_device_run_in_a_row() -> None:
    expected = Order.parse("F0.0 F1.0 BW1.0 BW0.0\nF2.0 F3.0 BW3.0 BW2.0")
    assert gpipe_order(instance(2, 1, chunks=2)) == expected


@pytest.mark.parametrize(("p", "n"), [(1, 4), (2, 2), (4, 8), (8, 5)])
def test_bubble_and_memory(p: int, n: int) -> None:
    schedule = simulate(instance(p, n), gpipe_order(instance(p, n)))
    # arXiv:1811.06965, section 2.3: (p - 1) / (n + p - 1) of the time
    assert bubble(schedule) == (p - 1) * (10 + 20)
    assert peak_memory(schedule).tolist() == [2 * n] * p
