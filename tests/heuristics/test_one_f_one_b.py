"""1F1B and eager 1F1B: closed forms."""

from __future__ import annotations

import pytest
from helpers.cases import uniform

from tightpipe import Instance, Memory, OpKind, simulate
from tightpipe.heuristics.family import eager_one_f_one_b_order, one_f_one_b_order
from tightpipe.model.metrics import bubble, peak_memory

SIZES = [(1, 4), (2, 2), (4, 8), (8, 5), (5, 12)]


def instance(devices: int, microbatches: int, comm: int = 0) -> Instance:
    memory = Memory(2, -1, -1, None)
    return uniform(devices, microbatches, (10, 12, 8), comm=comm, placement="linear", memory=memory)


@pytest.mark.parametrize("make", [one_f_one_b_order, eager_one_f_one_b_order])
@pytest.mark.parametrize(("p", "n"), SIZES)
def test_bubble_is_one_pass_through_the_other_devices(make: type, p: int, n: int) -> None:
    schedule = simulate(instance(p, n), make(instance(p, n)))
    assert bubble(schedule) == (p - 1) * (10 + 20)


@pytest.mark.parametrize(("p", "n"), SIZES)
def test_memory_is_the_warm_up_and_one(p: int, n: int) -> None:
    plain = simulate(instance(p, n), one_f_one_b_order(instance(p, n)))
    assert peak_memory(plain).tolist() == [2 * min(p - i, n) for i in range(p)]
    eager = simulate(instance(p, n), eager_one_f_one_b_order(instance(p, n)))
    assert peak_memory(eager).tolist() == [2 * min(2 * (p - i) - 1, n) for i in range(p)]


@pytest.mark.parametrize(("p", "n"), SIZES)
def test_warm_up_of_eager_1f1b(p: int, n: int) -> None:
    for device, operations in enumerate(eager_one_f_one_b_order(instance(p, n)).to_lists()):
        first_backward = [op.kind for op in operations].index(OpKind.BW)
        assert first_backward == min(2 * (p - 1 - device) + 1, n)


def test_eager_1f1b_hides_communication() -> None:
    slow = instance(4, 16, comm=4)
    plain, eager = (
        bubble(simulate(slow, make(slow))) for make in (one_f_one_b_order, eager_one_f_one_b_order)
    )
    assert eager < plain
