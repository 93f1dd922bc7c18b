"""Copies in the words of the local search: timed as by the simulator, moved, named, and found where they help."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers.cases import classed, instances, sliced, uniform, wide_instances
from helpers.copying import copying, copying_v
from helpers.walking import EVERY_MOVE, Walk
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Memory, Offload, OpKind, Order, retime, simulate, solve, validate
from tightpipe.model.metrics import cost
from tightpipe.params.search import AnnealParams
from tightpipe.solver.engine.run import in_queue_order, one_by_one
from tightpipe.solver.improve.paths_kernel import cost_of
from tightpipe.solver.improve.words import order_of_positions, positions_of

F, B, W, BW, O, L = OpKind  # noqa: E741
MANY_TRIPS = AnnealParams(trips=0.5)


@settings(max_examples=80, deadline=None)
@given(
    st.one_of(
        instances(max_microbatches=3, most_occupancy=20), wide_instances(max_microbatches=3, most_occupancy=9)
    ),
    st.integers(0, 9999),
    st.sampled_from([lambda instance, _: instance, classed, sliced]),
)
def test_words_with_copies_stay_valid_under_random_moves_and_end_when_the_simulator_says(
    instance: Instance, seed: int, change: object
) -> None:
    instance = copying(change(instance, seed), seed)  # type: ignore[operator]
    walk = Walk(instance, seed, MANY_TRIPS)
    for warmth in [EVERY_MOVE] * 12 + [1.0] * 4:
        walk.go_on(25, warmth)
    task, words, order = walk.task, walk.timed(), walk.order
    schedule = retime(instance, order)
    assert validate(instance, schedule) == []
    assert cost(schedule) <= cost_of(task.graph, words)
    timed = simulate(instance, order, words.begin)
    parts = np.where(order.operations[:, 0] == BW, 2, 1)
    assert words.end[walk.items].tolist() == np.repeat(timed.end, parts).tolist()
    again = positions_of(task.queues, order)
    assert order_of_positions(task.queues, task.graph, again) == order


def test_moves_make_and_drop_trips_of_all_sorts() -> None:
    walk, found = Walk(copying_v(2, 3, 4, 3), 1, MANY_TRIPS), []
    for _ in range(300):
        walk.go_on(5)
        found.append({(s, m) for kind, s, m in walk.order.operations.tolist() if kind == O})
    assert set.union(*found) == {(s, m) for s in range(4) for m in range(3)}
    assert any(before - after for before, after in pairwise(found))


def test_moves_leave_the_copies_of_a_stage_in_the_sequence_of_their_units() -> None:
    walk = Walk(copying_v(2, 4, 6, 3), 1, MANY_TRIPS)
    graph = walk.task.graph
    for _ in range(1500):
        walk.go_on(1)
        copies = walk.items[walk.items >= graph.trips.first]
        by_queue = copies[np.argsort(graph.arrays.queue[copies], kind="stable")]
        assert by_queue.tolist() == sorted(copies.tolist())


@pytest.mark.parametrize("joint", [{"fused": 6}, {"overlapped": 9}, {"fused": 6, "overlapped": 8}])
def test_an_operation_that_moves_with_its_copy_parts_none_that_run_together(joint: dict[str, int]) -> None:
    walk = Walk(one_stage(4, 6, **joint), 1, AnnealParams())
    for _ in range(1500):
        walk.go_on(1)  # what is parted would have other times


@pytest.mark.parametrize(
    ("instance", "most"),
    [
        (copying_v(2, 6, 4, 3), 428),  # 468 is optimal without copies, and 401 is known with them
        (copying_v(2, 6, 4, 6), 434),
        (copying_v(3, 6, 6, 6), 446),  # 506 is the best that is known without copies
    ],
)
def test_copies_are_found_where_they_save_time(instance: Instance, most: int) -> None:
    result = solve(instance, "improve", effort=1, workers=1)
    assert result.schedule is not None
    assert validate(instance, result.schedule) == []
    assert result.schedule.order.has_copies
    assert result.cost <= most


def one_stage(microbatches: int, limit: int, **entries: Any) -> Instance:
    return uniform(
        *(1, microbatches, (4, 4, 4)),
        placement="linear",
        memory=Memory(2, -1, -1, limit),
        offload=Offload(1, 2, 2),
        **entries,
    )


def test_queue_order_names_copies_like_the_operations_between_which_they_run() -> None:
    instance = one_stage(3, 6)
    rows = [(F, 2), (O, 2), (F, 0), (F, 1), (O, 1), (L, 2), (B, 2), (BW, 0), (L, 1), (W, 2), (B, 1), (W, 1)]
    schedule = retime(instance, Order.from_lists([[(kind, 0, m) for kind, m in rows]]))
    queued = in_queue_order(schedule)
    name = {2: 0, 0: 1, 1: 2}
    split = [row for row in rows for row in ([(B, 0), (W, 0)] if row == (BW, 0) else [row])]
    assert queued.order.to_lists() == [[(kind, 0, name[m]) for kind, m in split]] or (
        validate(instance, queued) == [] and cost(queued) <= cost(schedule)
    )
    assert validate(instance, queued) == []


def test_copies_that_fit_no_microbatch_in_sequence_do_not_stop_a_search() -> None:
    instance = one_stage(3, 6)
    rows = [(F, 0), (O, 0), (F, 1), (F, 2), (B, 2), (W, 2), (B, 1), (W, 1), (L, 0), (B, 0), (W, 0)]
    schedule = retime(instance, Order.from_lists([[(kind, 0, m) for kind, m in rows]]))
    assert validate(instance, schedule) == []
    assert validate(instance, in_queue_order(schedule)) == []
    found = solve(instance, "improve", effort=0.1, workers=1, warm_start=schedule)
    assert found.cost <= cost(schedule)


def test_what_only_fits_with_copies_is_scheduled_with_copies() -> None:
    instance = copying_v(2, 4, 3, 3)
    assert replace(instance, offload=None).infeasibility() is not None
    result = solve(instance, "improve", effort=0.5, workers=1)
    assert result.schedule is not None
    assert validate(instance, result.schedule) == []
    assert result.cost < cost(retime(instance, one_by_one(instance)))
