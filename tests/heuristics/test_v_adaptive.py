"""V schedules whose blocks run at the costs of the instance: costs of the authors' searches, and validity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from helpers.cases import uniform
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Memory, NoScheduleError, Order, retime, validate
from tightpipe.heuristics.v_blocks_kernel import PERIOD, steady_peak
from tightpipe.heuristics.v_families import (
    V_HALF,
    V_MIN,
    V_ZB,
    Shape,
    blocks_with_peaks,
    building_block,
    order_of_block,
    v_adaptive_order,
    v_half_order,
    v_min_order,
    v_zb_order,
    variants,
)
from tightpipe.model.costs import Objective
from tightpipe.model.metrics import cost, peak_memory

Make = Callable[[Instance], Order]
FAMILIES = [(v_min_order, V_MIN), (v_half_order, V_HALF), (v_zb_order, V_ZB)]


def instance(p: int, n: int, ticks: tuple[int, int, int, int], limit: int | None = None) -> Instance:
    """The ticks of F, B, W and a message; a limit counts activations of one stage, of which each holds 2."""
    memory = Memory(2, -1, -1, None if limit is None else 2 * limit)
    return uniform(p, n, ticks[:3], comm=ticks[3], placement="v", memory=memory)


def cost_of(make: Make, problem: Instance) -> int:
    schedule = retime(problem, make(problem))
    assert validate(problem, schedule) == []
    return cost(schedule)


# The costs of the orders that the authors' runtime makes for V-Half and V-Min.
@pytest.mark.parametrize(
    ("make", "p", "n", "of_authors"),
    [
        (v_half_order, 6, 32, 2106),
        (v_half_order, 4, 12, 816),
        (v_half_order, 6, 8, 664),
        (v_half_order, 8, 24, 1714),
        (v_half_order, 12, 24, 1896),
        (v_min_order, 6, 32, 2652),
    ],
)
def test_half_and_min_cost_no_more_than_in_the_runtime_of_their_authors(
    make: Make, p: int, n: int, of_authors: int
) -> None:
    problem = uniform(p, n, (10, 12, 8), comm=1, placement="v", objective=Objective.MAKESPAN)
    assert cost_of(make, problem) <= of_authors


# The costs that the authors' search over building blocks finds within a number of activations.
@pytest.mark.parametrize(
    ("p", "n", "ticks", "limit", "of_authors"),
    [
        (3, 12, (20, 16, 12, 3), 4, 1312),
        (4, 8, (10, 12, 8, 1), 4, 702),
        (4, 8, (10, 20, 5, 1), 4, 1051),
        (4, 8, (8, 14, 8, 2), 6, 608),
        (4, 12, (10, 10, 10, 0), 5, 800),
        (4, 12, (20, 16, 12, 3), 6, 1326),
        (4, 20, (20, 16, 12, 3), 5, 2536),
        (5, 8, (20, 16, 12, 3), 7, 1030),
        (5, 8, (10, 20, 5, 1), 10, 707),
        (8, 10, (20, 16, 12, 3), 10, 1446),
        (8, 24, (20, 16, 12, 3), 12, 2694),
    ],
)
def test_the_search_over_blocks_costs_no_more_than_that_of_their_authors(
    p: int, n: int, ticks: tuple[int, int, int, int], limit: int, of_authors: int
) -> None:
    assert cost_of(v_adaptive_order, instance(p, n, ticks, limit)) <= of_authors


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(FAMILIES),
    st.integers(1, 6),
    st.integers(1, 20),
    st.tuples(*[st.integers(1, 20)] * 3, st.integers(0, 5)),
)
def test_a_family_never_costs_more_or_holds_more_than_its_block_alone(
    family: tuple[Make, Shape], p: int, n: int, ticks: tuple[int, int, int, int]
) -> None:
    make, shape = family
    problem = instance(p, n, ticks)
    block = building_block(p, shape)
    alone, schedule = (
        retime(problem, order) for order in (order_of_block(problem, block, shape), make(problem))
    )
    assert validate(problem, schedule) == []
    assert cost(schedule) <= cost(alone)
    assert peak_memory(schedule).max() <= 2 * steady_peak(block, shape.backward)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 14),
    st.tuples(*[st.integers(1, 20)] * 3, st.integers(0, 5)),
    st.integers(1, 12) | st.none(),
    st.integers(0, 99),
)
def test_what_the_search_over_blocks_finds_is_valid_for_unequal_stages_and_any_limit(
    p: int, n: int, ticks: tuple[int, int, int, int], limit: int | None, uneven: int
) -> None:
    f, b, w = ([time + uneven * s % 7 for s in range(2 * p)] for time in ticks[:3])
    memory = Memory(2, -1, -1, None if limit is None else 2 * max(2, limit))
    problem = Instance.uniform(
        devices=p, microbatches=n, forward=f, backward=b, weight=w, comm=ticks[3], memory=memory
    )
    try:
        order = v_adaptive_order(problem)
    except NoScheduleError:
        assert limit is not None
        return
    assert validate(problem, retime(problem, order)) == []


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8, 17])
def test_blocks_repeat_without_conflict_and_variants_need_no_more_memory(p: int) -> None:
    blocks = [block for block, _ in blocks_with_peaks(p, 3)]
    for shape in (V_MIN, V_HALF, V_ZB):
        found = variants(p, shape)
        blocks += found
        assert max(steady_peak(block, 1) for block in found) == steady_peak(found[0], 1)
    for block in blocks:
        for slots in block.T % PERIOD:
            assert len(set(slots.tolist())) == 4


def test_a_limit_below_all_blocks_is_refused() -> None:
    with pytest.raises(NoScheduleError, match="v-adaptive finds no building block that fits"):
        v_adaptive_order(instance(8, 8, (10, 12, 8, 1), limit=2))


@pytest.mark.parametrize(("make", "shape"), FAMILIES)
@pytest.mark.parametrize("p", [3, 4, 7])
def test_a_family_is_refused_below_the_memory_of_its_block_and_says_what_is_enough(
    make: Make, shape: Shape, p: int
) -> None:
    free = instance(p, 3 * p, (10, 12, 8, 1))
    alone = retime(free, order_of_block(free, building_block(p, shape), shape))
    peak = int(peak_memory(alone).max())
    enough, short = (replace(free, memory=Memory(2, -1, -1, limit)) for limit in (peak, peak - 1))
    assert cost_of(make, enough) <= cost(alone)
    with pytest.raises(NoScheduleError, match=f"needs a memory limit of at least {peak}, and has {peak - 1}"):
        make(short)
