"""ZB-H1 and ZB-H2: the closed forms of arXiv:2401.10241, section 2."""

from __future__ import annotations

import pytest
from helpers.cases import uniform

from tightpipe import Instance, Memory, simulate
from tightpipe.heuristics.family import zb_h1_order, zb_h2_order
from tightpipe.model.metrics import bubble, peak_memory

SIZES = [(1, 4), (2, 6), (4, 12), (8, 24)]
# with W > F the chain of B's, (p - 1) B, is the longer one
COSTS = [(10, 10, 10), (10, 11, 8), (12, 10, 9), (10, 14, 10)]


def instance(p: int, n: int, costs: tuple[int, int, int], memory: Memory | None = None) -> Instance:
    return uniform(p, n, costs, placement="linear", memory=memory)


@pytest.mark.parametrize(("p", "n"), SIZES)
@pytest.mark.parametrize("costs", COSTS)
def test_bubbles_where_w_is_no_longer_than_f(p: int, n: int, costs: tuple[int, int, int]) -> None:
    forward, backward, weight = costs
    problem = instance(p, n, costs)
    assert bubble(simulate(problem, zb_h1_order(problem))) == (p - 1) * (forward + backward - weight)
    h2 = (p - 1) * (forward + backward - 2 * weight)
    assert bubble(simulate(problem, zb_h2_order(problem))) == max(0, h2)


@pytest.mark.parametrize(("p", "n"), SIZES)
def test_memory_is_activations_in_flight_and_pending_weights(p: int, n: int) -> None:
    activation, pending = 7, 3
    problem = instance(p, n, (10, 10, 10), Memory(activation, pending - activation, -pending, None))
    h1, h2 = (peak_memory(simulate(problem, make(problem))).tolist() for make in (zb_h1_order, zb_h2_order))
    assert h1 == [(p - i) * activation + i * pending for i in range(p)]
    assert h2 == [min(n, 2 * (p - i) - 1) * activation + 2 * i * pending for i in range(p)]
