"""Which orders of items windows leave open."""

from __future__ import annotations

import numpy as np
from helpers.cases import instances
from helpers.schedules import schedules_of
from hypothesis import given, settings

from tightpipe import Instance
from tightpipe.model.metrics import cost
from tightpipe.solver.queues import queues_of, starts_of
from tightpipe.solver.windows import windows_of
from tightpipe.solver.windows.windows import OpenOrders


def one_stage(devices: int) -> OpenOrders:
    instance = Instance.uniform(
        devices=devices, microbatches=2, forward=3, backward=4, weight=2, placement="linear"
    )
    queues = queues_of(instance)
    return OpenOrders(queues, windows_of(queues, 100))


def test_items_are_numbered_queue_after_queue() -> None:
    orders = one_stage(1)
    assert [list(orders.items(q)) for q in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_only_queues_of_one_device_are_pairs() -> None:
    assert one_stage(2).pairs() == [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]


def test_what_a_microbatch_decides_is_not_open() -> None:
    orders = one_stage(1)
    forward, backward = 0, 1
    assert [orders.open_ranks(i, backward) for i in orders.items(forward)] == [range(0, 0), range(0, 1)]
    assert [orders.open_ranks(i, forward) for i in orders.items(backward)] == [range(1, 2), range(2, 2)]


@settings(max_examples=30, deadline=None)
@given(instances())
def test_every_schedule_is_among_the_open_orders(instance: Instance) -> None:
    queues = queues_of(instance)
    for schedule in schedules_of(instance, 1):
        orders = OpenOrders(queues, windows_of(queues, cost(schedule)))
        start = np.array(starts_of(queues, schedule))
        for x, y in orders.pairs():
            for i in orders.items(x):
                ranks = orders.open_ranks(i, y)
                assert ranks.start <= (start[orders.items(y)] < start[i]).sum() <= ranks.stop
