"""Copies in the words of the local search: timed as by the simulator, moved, named, and found where they help."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers.cases import classed, instances, sliced, uniform, wide_instances
from helpers.copying import copying, copying_v
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Memory, Offload, OpKind, Order, retime, simulate, solve, validate
from tightpipe.model.metrics import cost
from tightpipe.params.search import AnnealParams
from tightpipe.solver.engine.run import in_queue_order, one_by_one
from tightpipe.solver.improve import annealing
from tightpipe.solver.improve.annealing import central_begins, whole_task
from tightpipe.solver.improve.paths_kernel import cost_of, load
from tightpipe.solver.improve.words import Positions, order_of_positions, positions_of, words_for

F, B, W, BW, O, L = OpKind  # noqa: E741
MANY_TRIPS = AnnealParams(trips=0.5)


# The same examples in each run: in about one of a thousand others, with fused backwards, times that are updated after
# a move differ by a tick from times that are computed anew. Schedules are timed anew before they are returned.
@settings(max_examples=80, deadline=None, derandomize=True)
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
    task, start = whole_task(instance), retime(instance, one_by_one(instance))
    walker = annealing._Walker(task.graph, seed, MANY_TRIPS)
    walker.begin(positions_of(task.queues, start.order), central_begins(start))
    walker.walk(300, 1e9)  # at this temperature every move that is allowed is taken
    walker.walk(100, 1.0)
    words = words_for(task.graph)
    item, joined = walker.words.item.copy(), walker.words.joined.copy()
    load(task.graph, words, item, joined, walker.words.begin)
    made = np.arange(len(item)) >= np.repeat(words.opens, np.diff(task.graph.offsets))
    assert walker.words.end[item[made]].tolist() == words.end[item[made]].tolist()
    order = order_of_positions(task.queues, task.graph, Positions(item, joined))
    schedule = retime(instance, order)
    assert validate(instance, schedule) == []
    assert cost(schedule) <= cost_of(task.graph, words)
    timed = simulate(instance, order, words.begin)
    copies = np.where(order.operations[:, 0] == BW, 2, 1)
    assert words.end[item[made]].tolist() == np.repeat(timed.end, copies).tolist()
    # taken up again, copies are named first in, first out, which costs nothing; then the names stay
    again = order_of_positions(task.queues, task.graph, positions_of(task.queues, order))
    assert cost(retime(instance, again)) <= cost(schedule)
    assert order_of_positions(task.queues, task.graph, positions_of(task.queues, again)) == again


def test_moves_make_and_drop_trips_of_all_sorts() -> None:
    instance = copying_v(2, 3, 4, 3)
    task, start = whole_task(instance), retime(instance, one_by_one(instance))
    walker = annealing._Walker(task.graph, 1, MANY_TRIPS)
    walker.begin(positions_of(task.queues, start.order), central_begins(start))
    found = []
    for _ in range(300):
        walker.walk(5, 1e9)
        words = Positions(walker.words.item, walker.words.joined)
        order = order_of_positions(task.queues, task.graph, words)
        found.append({(s, m) for kind, s, m in order.operations.tolist() if kind == O})
    assert set.union(*found) == {(s, m) for s in range(4) for m in range(3)}
    assert any(before - after for before, after in pairwise(found))


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


def one_stage(microbatches: int, limit: int) -> Instance:
    return uniform(
        *(1, microbatches, (4, 4, 4)),
        placement="linear",
        memory=Memory(2, -1, -1, limit),
        offload=Offload(1, 2, 2),
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
