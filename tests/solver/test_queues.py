"""Queues: what shares one, what waits for what, and the way from an order to words and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from helpers.cases import serial_order, uniform

from tightpipe import Instance, Order, retime, solve, validate
from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.operation import FUSED, PAIRED, SINGLE, OpKind
from tightpipe.solver.queues import Queues, order_of_words, queues_of, starts_of, tokens_of, words_of

F, B, W, BW = OpKind.F, OpKind.B, OpKind.W, OpKind.BW


def linear(microbatches: int = 2, **entries: Any) -> Instance:
    return uniform(2, microbatches, (3, 4, 2), comm=1, placement="linear", **entries)


def one_device() -> Queues:
    """A V on one device: the queues of F0, F1, B0, B1 and one of both W's."""
    return queues_of(uniform(1, 1, (3, 4, 2)))


def test_equal_weights_of_a_device_share_a_queue() -> None:
    queues = queues_of(uniform(2, 3, (3, 4, 2))).queues
    pools = [(queue.device, queue.members, queue.count) for queue in queues if queue.kind is W]
    assert pools == [(0, ((0, 0), (0, 3)), 6), (1, ((0, 1), (0, 2)), 6)]


def test_weights_that_differ_have_queues_of_their_own() -> None:
    uneven = Instance.uniform(devices=2, microbatches=3, forward=3, backward=4, weight=[2, 2, 5, 7])
    pools = [(queue.members, queue.duration) for queue in queues_of(uneven).queues if queue.kind is W]
    assert pools == [(((0, 0),), 2), (((0, 3),), 7), (((0, 1),), 2), (((0, 2),), 5)]


def test_the_kth_of_a_queue_waits_for_the_kth_of_another() -> None:
    queues = queues_of(linear())
    index = queues.index
    assert sorted(queues.precedences()) == sorted(
        [
            (index[F, 0, 0], index[F, 0, 1], 1),
            (index[B, 0, 1], index[B, 0, 0], 1),
            (index[F, 0, 1], index[B, 0, 1], 0),
            (index[B, 0, 0], index[W, 0, 0], 0),
            (index[B, 0, 1], index[W, 0, 1], 0),
        ]
    )


def test_a_pool_waits_for_several_queues_and_not_for_one() -> None:
    queues = one_device()
    pool = queues.index[W, 0, 0]
    assert pool == queues.index[W, 0, 1]
    assert all(r != pool for _, r, _ in queues.precedences())
    assert queues.backwards_of(pool) == [queues.index[B, 0, 0], queues.index[B, 0, 1]]


def test_only_a_sender_that_is_shorter_than_its_message_makes_a_link_busy() -> None:
    occupied = queues_of(linear(link_occupancy=4))  # F takes 3 ticks, B 4
    assert occupied.links() == [[(occupied.index[F, 0, 0], occupied.index[F, 0, 1], 1)]]
    assert queues_of(linear(link_occupancy=3)).links() == []


def test_a_fused_backward_is_two_elements() -> None:
    queues = queues_of(linear(1))
    order = Order.from_lists([[(F, 0, 0), (BW, 0, 0)], [(F, 1, 0), (BW, 1, 0)]])
    assert words_of(queues, order) == [
        [queues.index[kind, 0, device] for kind in (F, B, W)] for device in range(2)
    ]


def test_words_name_microbatches_in_sequence() -> None:
    queues = queues_of(linear(2))
    swapped = Order.from_lists(
        [
            [(F, 0, 1), (F, 0, 0), (B, 0, 1), (W, 0, 1), (B, 0, 0), (W, 0, 0)],
            [(F, 1, 1), (B, 1, 1), (F, 1, 0), (B, 1, 0), (W, 1, 0), (W, 1, 1)],
        ]
    )
    assert order_of_words(queues, words_of(queues, swapped)).to_lists() == [
        [(F, 0, 0), (F, 0, 1), (B, 0, 0), (W, 0, 0), (B, 0, 1), (W, 0, 1)],
        [(F, 1, 0), (B, 1, 0), (F, 1, 1), (B, 1, 1), (W, 1, 0), (W, 1, 1)],
    ]


def test_a_pooled_weight_belongs_to_the_oldest_backward() -> None:
    queues = one_device()
    word = [queues.index[key] for key in ((F, 0, 0), (F, 0, 1), (B, 0, 1), (B, 0, 0), (W, 0, 0), (W, 0, 0))]
    assert order_of_words(queues, [word]).to_lists() == [
        [(F, 0, 0), (F, 1, 0), (B, 1, 0), (B, 0, 0), (W, 1, 0), (W, 0, 0)]
    ]


def test_starts_are_told_queue_after_queue() -> None:
    instance = linear(1)
    queues = queues_of(instance)
    schedule = retime(instance, serial_order(instance))
    starts = dict(zip([(q.device, q.kind) for q in queues.queues], starts_of(queues, schedule), strict=True))
    begun = starts[0, F]
    assert {key: start - begun for key, start in starts.items()} == {
        **{(0, F): 0, (0, B): 12, (0, W): 16},
        **{(1, F): 4, (1, B): 7, (1, W): 11},
    }


def test_a_pair_without_a_time_of_its_own_is_a_forward_and_then_a_fused_backward() -> None:
    """Otherwise an annealing would take the pair for shorter than either."""
    instance = uniform(2, 4, (4, 5, 6), comm=1, fused=9)
    start = solve(instance, "dualpipe-v").schedule
    assert start is not None
    assert start.order.pairs.any()
    assert set(tokens_of(queues_of(instance), start.order).joined.tolist()) == {SINGLE, FUSED}
    paired = replace(instance, costs=replace(instance.costs, overlapped=12))
    assert PAIRED in tokens_of(queues_of(paired), start.order).joined


def test_messages_of_a_pair_wait_for_each_other_on_a_link_that_is_else_always_free() -> None:
    costs = {"forward": 3, "backward": 3, "weight": 3, "comm": 1, "link_occupancy": 2}
    apart = Instance.uniform(devices=2, microbatches=3, **costs)
    paired = Instance.uniform(devices=2, microbatches=3, **costs, overlapped=5)
    quick = Instance.uniform(devices=2, microbatches=3, **costs, fused=1)
    assert (arrays_of(apart).links, arrays_of(paired).links, arrays_of(quick).links) == (0, 2, 2)
    for instance in (paired, quick):
        found = solve(instance, "improve", effort=0.2, seed=1)
        assert found.schedule is not None
        assert validate(instance, found.schedule) == []
        assert solve(instance, "cpsat", effort=20, workers=1).cost <= found.cost
