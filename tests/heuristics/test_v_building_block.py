"""V-Min, V-Half, V-ZB and 1F1B-V: blocks without conflict, the papers' memory and bubbles."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import uniform

from tightpipe import Instance, Memory, Order, retime, simulate, validate
from tightpipe.heuristics.v_blocks_kernel import PERIOD
from tightpipe.heuristics.v_families import (
    ONE_F_ONE_B_V,
    V_HALF,
    V_MIN,
    V_ZB,
    Shape,
    building_block,
    one_f_one_b_v_order,
    v_half_order,
    v_min_order,
    v_zb_order,
)
from tightpipe.model.metrics import bubble, cost, peak_memory
from tightpipe.model.operation import OpKind

MAKE = {"v-min": v_min_order, "v-half": v_half_order, "v-zb": v_zb_order, "1f1b-v": one_f_one_b_v_order}
DEVICES = [1, 2, 3, 4, 5, 6, 7, 8, 12, 17]


def instance(p: int, n: int) -> Instance:
    return uniform(p, n, (1, 1, 1), placement="v", memory=Memory(2, -1, -1, None))


@pytest.mark.parametrize("shape", [V_MIN, V_HALF, V_ZB, ONE_F_ONE_B_V])
@pytest.mark.parametrize("p", DEVICES)
def test_a_block_repeats_without_conflict(shape: Shape, p: int) -> None:
    block = building_block(p, shape)
    used = [*block, *(block[2:] + 1 if shape.backward == 2 else [])]
    for slots in np.array(used).T % PERIOD:
        assert len(set(slots.tolist())) == len(used)
    lengths = np.repeat([1, 1, shape.backward, shape.backward], p)
    route = [*range(p), *reversed(range(p))] * 2
    along = np.array([block[leg, device] for leg, device in zip(np.repeat(range(4), p), route, strict=True)])
    assert (np.diff(along) >= lengths[:-1]).all()


@pytest.mark.parametrize("p", DEVICES)
@pytest.mark.parametrize(
    ("name", "whole_stages"),
    [("v-min", lambda p: (p + 4) // 3), ("v-half", lambda p: (p + 2) // 2), ("v-zb", lambda p: p)],
)
def test_peak_memory_of_the_paper(name: str, whole_stages: type, p: int) -> None:
    problem = instance(p, 3 * p)
    # a stage has two chunks; an activation here is 2
    assert peak_memory(simulate(problem, MAKE[name](problem))).max() == 2 * 2 * whole_stages(p)


@pytest.mark.parametrize("p", DEVICES)
def test_bubbles_of_the_paper(p: int) -> None:
    problem = instance(p, 4 * p)
    bubbles = {name: bubble(simulate(problem, make(problem))) for name, make in MAKE.items()}
    of_1f1b = (p - 1) * PERIOD
    assert bubbles["v-zb"] == 0
    assert bubbles["v-half"] <= of_1f1b / 2
    assert bubbles["v-min"] <= of_1f1b * 2 / 3
    assert bubbles["1f1b-v"] < of_1f1b or p == 1


@pytest.mark.parametrize("p", [6, 9, 12, 24])
def test_1f1b_v_holds_about_two_thirds_of_1f1b(p: int) -> None:
    problem = instance(p, 4 * p)
    chunks = peak_memory(simulate(problem, one_f_one_b_v_order(problem))).max() / 2
    assert 4 / 3 * p <= chunks <= 4 / 3 * p + 2


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("times", [(10, 10, 10, 0), (10, 12, 8, 1), (10, 20, 5, 4), (8, 14, 8, 2)])
def test_v_min_of_two_devices_holds_three_activations_as_its_authors_have_it(
    n: int, times: tuple[int, int, int, int]
) -> None:
    forward, backward, weight, comm = times
    problem = Instance.uniform(
        devices=2,
        microbatches=n,
        forward=forward,
        backward=backward,
        weight=weight,
        comm=comm,
        memory=Memory(2, -1, -1, 6),
    )
    published = retime(problem, published_v_min(n))
    assert validate(problem, published) == []
    assert cost(retime(problem, v_min_order(problem))) <= cost(published)


def published_v_min(n: int) -> Order:
    """The order of the authors' runtime on two devices; F, B and W of the upper stage are in lower case."""
    first = "FFfbwBW" + "fbwFBW" * (n - 2) + "fbwBW"
    second = "FfbB" + "FfwWbB" * (n - 1) + "wW"
    rows = []
    for device, passes in enumerate((first, second)):
        for place, each in enumerate(passes):
            stage = 3 - device if each.islower() else device
            rows.append((OpKind[each.upper()], stage, passes[:place].count(each)))
    return Order(np.array(rows), np.array([0, len(first), len(rows)]))
