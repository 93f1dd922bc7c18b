"""Windows of a few items computed by hand, and what shaving says of them and of itself."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import uniform
from helpers.constraint_families import TWO
from helpers.exact_cases import one_stage, plain_memory, v_instance

from tightpipe import Instance
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.solver.queues import queues_of
from tightpipe.solver.windows.propagate_kernel import shave
from tightpipe.solver.windows.windows import Shaver, Windows, shaved_windows, windows_of

ONE = uniform(2, 1, (3, 4, 2), comm=1, placement="linear")  # items: F, B and W of device 0, then of device 1
NARROW = one_stage(2, 3, (3, 4, 2, 1), 4)
POOLED = v_instance(2, 3, (3, 4, 2, 1), plain_memory(6))  # costs more than 72, which only shaving shows
STEPS = 1000  # more than any supposition about these few items takes


def windows(horizon: int, instance: Instance = ONE) -> Windows:
    return windows_of(queues_of(instance), horizon)


def test_what_can_idle_for_two_ticks_has_windows_of_two_ticks() -> None:
    """The microbatch takes 18 of 20 ticks; only its last W can wait for as long as its device's frame lasts."""
    found = windows(20)
    assert found.feasible
    assert found.earliest.tolist() == [0, 12, 16, 4, 7, 11]
    assert found.latest.tolist() == [0, 14, 18, 6, 9, 6 + 20 - 2]
    assert [frame.tolist() for frame in found.frames] == [[0, 4], [0, 6]]
    assert windows(18).feasible
    assert not windows(17).feasible


def test_an_item_has_the_work_before_it_between_itself_and_the_start_of_its_frame() -> None:
    found = windows(20)
    assert [work.tolist() for work in found.work_before()] == [[0, 3, 7] * 2] * 2
    least, most = found.from_frame()
    assert least.tolist() == [0, 12, 16, 0, 3, 7]
    assert most.tolist() == [0, 14, 18, 6 - 4, 9 - 4, 7 + 11]  # device 1 can idle for 11 of 20 ticks


@pytest.mark.parametrize(("objective", "origin"), [("device_span", 5), ("makespan", 3)])
def test_times_count_from_the_first_start_that_shares_the_frame_of_the_anchor(
    objective: str, origin: int
) -> None:
    instance = uniform(2, 1, (3, 4, 2), comm=1, placement="linear", objective=objective)
    found = windows(40, instance)
    assert found.floating is (objective == "device_span")
    assert found.origin([5, 12, 16, 3, 7, 11]) == origin


def shaved_item_by_item(found: Windows, known: bool) -> tuple[bool, set[bool], set[bool]]:
    """What a sweep returns, and what it notes, of items about which everything or nothing is known before."""
    items = np.arange(len(found.arrays.graph.queue))
    fruitful, exhausted = np.ones(len(items), np.bool_), np.full(len(items), known)
    stands = shave(found.arrays, found.state, items, STEPS, fruitful, exhausted)
    return stands, set(fruitful.tolist()), set(exhausted.tolist())


def test_below_the_optimum_both_sides_of_an_order_are_refuted() -> None:
    assert windows(72, POOLED).feasible
    assert not shaved_item_by_item(windows(72, POOLED), known=False)[0]


def test_where_every_supposition_stands_nothing_is_decided() -> None:
    found = windows(TWO.optimum + 2, TWO.instance)
    before = found.state.value.copy()
    assert found.undecided > 0
    assert shaved_item_by_item(found, known=False) == (True, {False}, {True})
    assert (found.state.value == before).all()


def test_items_of_which_everything_is_known_are_passed_over() -> None:
    found = windows(72, POOLED)
    assert shaved_item_by_item(found, known=True) == (True, {False}, {True})


def test_an_order_of_which_one_side_is_refuted_is_decided() -> None:
    found = windows(41, NARROW)
    before = found.undecided
    stands, fruitful, _ = shaved_item_by_item(found, known=False)
    assert (stands, fruitful) == (True, {False, True})
    assert found.undecided == before - 2


def test_a_few_items_are_shaved_and_others_left_as_they_are() -> None:
    found = windows(41, NARROW)
    fruitful, exhausted = (
        np.ones(len(found.arrays.graph.queue), np.bool_),
        np.zeros(len(found.arrays.graph.queue), np.bool_),
    )
    assert shave(found.arrays, found.state, np.array([0]), STEPS, fruitful, exhausted)
    assert fruitful.tolist() == [False, *[True] * (len(fruitful) - 1)]
    assert exhausted.tolist() == [True, *[False] * (len(fruitful) - 1)]


def test_a_shaver_says_whether_it_refuted_found_no_more_or_had_no_time() -> None:
    below, above = windows(72, POOLED), windows(73, POOLED)
    assert Shaver(below).run(UNLIMITED.within(0)) is None
    shaver = Shaver(below)
    assert shaver.run(UNLIMITED) is True
    assert not shaver.feasible
    assert Shaver(above).run(UNLIMITED) is False
    assert Shaver(windows(17)).run(UNLIMITED) is True  # without a sweep


def test_no_sweep_is_more_thorough_than_it_may_be() -> None:
    shaver = Shaver(windows(72, POOLED))
    assert shaver.run(UNLIMITED, thorough=shaver.steps - 1) is False
    assert shaver.feasible


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_share_the_promising_items_and_late_ones_come_first(threads: int) -> None:
    found = windows(41, NARROW)
    shaver = Shaver(found, threads)
    shaver._fruitful[3] = False
    (parts,) = shaver._parts()
    assert len(parts) == threads
    assert sorted(np.concatenate(parts).tolist()) == [0, 1, 2, *range(4, 18)]
    assert all((np.diff(found.earliest[part]) <= 0).all() for part in parts)


@pytest.mark.parametrize("threads", [1, 2])
def test_windows_are_feasible_until_shaving_has_refuted_them(threads: int) -> None:
    queues, budget = queues_of(POOLED), Budget(threads=threads)
    assert shaved_windows(queues, 73, budget).feasible
    assert not shaved_windows(queues, 72, budget).feasible
    assert shaved_windows(queues, 72, budget.within(0)).feasible
