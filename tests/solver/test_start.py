"""What a solve starts from."""

from __future__ import annotations

from helpers.cases import uniform

from tightpipe import Instance, Memory, Order, Schedule, retime, validate
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.solver.engine.run import checked_start, in_queue_order, one_by_one

F, B, W, BW = OpKind.F, OpKind.B, OpKind.W, OpKind.BW


def linear(limit: int | None = None) -> Instance:
    return uniform(2, 2, (3, 4, 2), comm=1, placement="linear", memory=Memory(2, -1, -1, limit))


def test_one_by_one_runs_a_microbatch_to_its_end() -> None:
    assert one_by_one(linear()).to_lists() == [
        [(kind, stage, m) for m in range(2) for kind in (F, B, W)] for stage in range(2)
    ]


def test_one_by_one_comes_back_the_way_it_went() -> None:
    turn = uniform(1, 1, (3, 4, 2))  # a V on one device
    assert one_by_one(turn).to_lists() == [[(F, 0, 0), (F, 1, 0), (B, 1, 0), (W, 1, 0), (B, 0, 0), (W, 0, 0)]]


def test_without_a_warm_start_the_tightest_limit_still_has_a_schedule() -> None:
    tight = linear(limit=2)
    assert validate(tight, checked_start(tight, None)) == []


def test_a_warm_start_is_kept_as_it_is_where_other_times_cost_no_less() -> None:
    instance = linear()
    best = retime(instance, one_by_one(instance))
    later = Schedule(instance, best.order, best.start + 7, best.end + 7)
    assert (checked_start(instance, later).start == later.start).all()


def test_a_warm_start_that_idles_is_timed_again() -> None:
    instance = linear()
    best = retime(instance, one_by_one(instance))
    last = best.order.rows(0).stop - 1
    idle = best.start.copy()
    idle[last] += 50
    warm = Schedule(instance, best.order, idle, idle + best.end - best.start)
    assert validate(instance, warm) == []
    assert cost(checked_start(instance, warm)) == cost(best) == cost(warm) - 50


def test_queue_order_splits_fused_backwards_and_names_microbatches_in_sequence() -> None:
    instance = linear()
    order = [[(F, stage, 1), (F, stage, 0), (BW, stage, 1), (BW, stage, 0)] for stage in range(2)]
    schedule = retime(instance, Order.from_lists(order))
    queued = in_queue_order(schedule)
    assert queued.order.to_lists() == [
        [(F, stage, 0), (F, stage, 1), (B, stage, 0), (W, stage, 0), (B, stage, 1), (W, stage, 1)]
        for stage in range(2)
    ]
    assert cost(queued) <= cost(schedule)
