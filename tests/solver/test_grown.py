"""Blocks of many devices that are grown from blocks of few: valid at every size, and where there are none."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from helpers.cases import uniform
from helpers.endless import problem

from tightpipe import Instance, Memory, validate
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.search import BlockParams
from tightpipe.params.solve_params import DEFAULTS, params_from_dict
from tightpipe.solver.blocks import block_search
from tightpipe.solver.blocks.block import Block, Shape, period_bound
from tightpipe.solver.blocks.block_search import BlockSearch
from tightpipe.solver.blocks.grown import GrownSearch, Growth, growth_of
from tightpipe.solver.blocks.period_search import Answer, PeriodSearch, ask
from tightpipe.solver.blocks.unroll import unrolled
from tightpipe.solver.engine.portfolio import alone
from tightpipe.solver.engine.run import Incumbent

FROM_SIX = replace(DEFAULTS.blocks, grown_from=6, few=9)


def scarce(devices: int, **more: Any) -> Instance:
    """A V with memory for an activation of each device and two more."""
    memory = Memory(2, -1, -1, 2 * devices + 4)
    usual: dict[str, Any] = {"forward": 31, "backward": 30, "weight": 15, "comm": 1, "memory": memory}
    return Instance.uniform(devices=devices, microbatches=4 * devices, **{**usual, **more})


def growth(devices: int, params: BlockParams = FROM_SIX, **more: Any) -> Growth:
    found = growth_of(scarce(devices, **more), params)
    assert found is not None
    return found


def narrow_block(grow: Growth, factor: float = 1.25, like: Block | None = None) -> Block:
    """A block of the narrow instance with the tie, its period a factor of the least that may exist."""
    period = round(period_bound(grow.narrow) * factor)
    block = ask(grow.narrow, period, UNLIMITED, 20.0, like, grow.tie).block
    assert block is not None
    return block


@pytest.mark.parametrize("devices", [10, 14, 22])
def test_a_block_with_the_tie_grows_to_a_valid_block_of_no_longer_period(devices: int) -> None:
    grow = growth(devices)
    narrow = narrow_block(grow)
    assert (grow.narrow.instance.devices, grow.cells) == (6, (devices - 6) // 4)
    wide = grow.grown(narrow)
    assert wide is not None
    assert wide.period <= narrow.period
    assert problem(grow.instance, 2, wide.period, wide.start) == ""
    assert validate(grow.instance, unrolled(wide, grow.instance)) == []


def test_blocks_of_devices_that_differ_at_both_ends_grow_too() -> None:
    forward = [40, *[31] * 18, 45]
    comm = [[abs(i - j) + (1 if {i, j} == {0, 1} else 0) for j in range(10)] for i in range(10)]
    grow = growth(10, forward=forward, comm=comm)
    assert grow.narrow.instance.costs.forward == (40, *[31] * 10, 45)
    assert [grow.narrow.instance.comm(d, d + 1) for d in range(5)] == [2, 1, 1, 1, 1]
    wide = grow.grown(narrow_block(grow))
    assert wide is not None
    assert problem(grow.instance, 2, wide.period, wide.start) == ""


def test_fused_backwards_grow_too() -> None:
    grow = growth(10, fused=35)
    narrow = narrow_block(grow, 1.3)
    wide = grow.grown(narrow)
    assert wide is not None
    assert len(wide.fused) > len(narrow.fused) > 0
    assert validate(grow.instance, unrolled(wide, grow.instance)) == []


def test_each_device_more_takes_an_activation_of_every_other_one() -> None:
    few, many = growth(10), growth(22)
    for grow in (few, many):
        assert grow.narrow.instance.memory == Memory((2,) * 12, (-1,) * 12, (-1,) * 12, (16,) * 6)
    narrow = narrow_block(few)
    assert few.grown(narrow) is not None
    less = replace(few.instance, memory=Memory(2, -1, -1, 2 * 10 - 2))
    assert replace(few, instance=less).grown(narrow) is None


def test_a_block_without_the_tie_grows_to_nothing_that_is_invalid() -> None:
    grow = growth(10)
    narrow = narrow_block(grow)
    mixed = replace(narrow, start={op: at + 7 * (op.stage == 5) for op, at in narrow.start.items()})
    found = grow.grown(mixed)
    assert found is None or problem(grow.instance, 2, found.period, found.start) == ""


@pytest.mark.parametrize(
    "instance",
    [
        scarce(9),  # no more than a cell above six
        uniform(10, 40, (31, 30, 15), comm=1, placement="loop", memory=Memory(2, -1, -1, 24)),
        uniform(10, 40, (31, 30, 15), comm=1),
        uniform(10, 40, (31, 30, 15), comm=1, memory=Memory(2, -1, -1, 10)),
        scarce(10, forward=[31] * 4 + [32] + [31] * 15),
        scarce(10, comm=[[abs(i - j) + (i == 4 and j == 5) for j in range(10)] for i in range(10)]),
        scarce(10, memory=Memory(2, -1, -1, [24] * 5 + [26] + [24] * 4)),
    ],
    ids=["few devices", "no V", "no limit", "scarce", "costs", "links", "limits"],
)
def test_blocks_do_not_grow(instance: Instance) -> None:
    assert growth_of(instance, FROM_SIX) is None


def test_without_the_new_devices_a_grown_block_has_the_laps_of_the_narrow_one() -> None:
    grow = growth(14)
    narrow = narrow_block(grow)
    shape = Shape(grow.instance, 2)
    start = {op: narrow.start[source] + later for op, source, later in grow.moved(narrow)}
    like = grow.like(Block(shape, narrow.period, start))
    assert like.start == narrow.start


def test_the_search_gives_blocks_of_all_devices_to_the_search_over_them() -> None:
    grow = growth(14)
    wide = PeriodSearch(Shape(grow.instance, 2), grow.grown(narrow_block(grow, 1.5)), FROM_SIX)
    search, first, found = GrownSearch(grow, wide), wide.block.period, []
    for block in search.ask_round(lambda: UNLIMITED, 1.0, lambda: wide.block.pace):
        if block is not None:
            found.append(block.period)
            assert block is wide.block
    assert found == sorted(found, reverse=True)
    assert wide.block.period < first
    assert problem(grow.instance, 2, wide.block.period, wide.block.start) == ""


def test_that_there_is_no_block_with_the_tie_says_nothing_of_shorter_periods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grow = growth(10)
    refuted = Answer(None, refuted=True)
    monkeypatch.setattr("tightpipe.solver.blocks.period_search.ask", lambda *_: refuted)
    tied = PeriodSearch(grow.narrow, params=FROM_SIX, tie=grow.tie)
    free = PeriodSearch(grow.narrow, params=FROM_SIX)
    for search in (tied, free):
        assert search.ask(500, UNLIMITED, 1.0) is None
    assert (tied.bound, free.bound) == (period_bound(grow.narrow), 501)


def test_blocks_that_grow_are_not_asked_for_without_time() -> None:
    grow = growth(10)
    wide = PeriodSearch(Shape(grow.instance, 2), grow.grown(narrow_block(grow, 1.5)), FROM_SIX)
    asked = GrownSearch(grow, wide).ask_round(lambda: UNLIMITED.within(0), 1.0, lambda: wide.block.pace)
    assert list(asked) == []


def test_blocks_that_grow_are_searched_for_first(monkeypatch: pytest.MonkeyPatch) -> None:
    grow, asked = growth(10), []
    wide = grow.grown(narrow_block(grow, 1.5))
    assert wide is not None
    incumbent = Incumbent(unrolled(wide, grow.instance), 1, None, 0.0, lambda _: None)

    def answer(shape: Shape, period: int, *_: Any) -> Answer:
        asked.append((shape.instance.devices, shape.copies, period))
        return Answer(None, False)

    monkeypatch.setattr("tightpipe.solver.blocks.period_search.ask", answer)
    repeated = {2: wide}
    monkeypatch.setattr(block_search, "steady_block", lambda _, copies, *__: repeated.get(copies))
    names = {"grown_from": 6, "few": 9, "rounds": 1}
    budget = Budget(params=params_from_dict({f"blocks.{name}": value for name, value in names.items()}))
    alone(budget, incumbent, partial(BlockSearch, grow.instance, incumbent, 1.0))
    assert [devices for devices, _, _ in asked] == sorted(devices for devices, _, _ in asked)
    (_, _, first), (_, _, second) = (one for one in asked if one[:2] == (6, 2))
    assert second == int(1.1 * first)
    assert {(devices, copies) for devices, copies, _ in asked} == {(6, 2), (10, 2)}
