"""The event graph of an instance: its arcs between devices, its credits, and where items may move."""

from __future__ import annotations

from typing import Any

import numpy as np
from helpers.cases import uniform

from tightpipe import Instance
from tightpipe.model.graph import NO_LIMIT
from tightpipe.model.operation import OpKind
from tightpipe.solver.improve.words import EventGraph, event_graph_of, mirrored, with_fixed
from tightpipe.solver.queues import queues_of

F, B, W = OpKind.F, OpKind.B, OpKind.W


def linear(microbatches: int = 2, **entries: Any) -> Instance:
    return uniform(2, microbatches, (3, 4, 2), comm=1, placement="linear", **entries)


def graph_of(instance: Instance) -> EventGraph:
    return event_graph_of(instance)


def test_arcs_join_items_of_different_devices() -> None:
    graph = graph_of(linear())  # items: F0 0-1, B0 2-3, W0 4-5, F1 6-7, B1 8-9, W1 10-11
    arcs = {
        (int(graph.arrays.items["source"][i]), int(i)): int(graph.arrays.items["lag"][i])
        for i in np.flatnonzero(graph.arrays.items["source"] >= 0)
    }
    assert arcs == {(0, 6): 1, (1, 7): 1, (8, 2): 1, (9, 3): 1}
    assert {
        (int(i), int(graph.arrays.items["target"][i]))
        for i in np.flatnonzero(graph.arrays.items["target"] >= 0)
    } == set(arcs)


def test_credits_stand_for_what_a_device_waits_for_on_its_own() -> None:
    queues = queues_of(
        uniform(2, 2, (3, 4, 2))
    )  # a V: the device of the last stage holds the one before, too
    graph, index = event_graph_of(queues.instance), queues.index
    kinds = {
        (giver, taker)
        for giver in range(len(queues.queues))
        for taker in range(len(queues.queues))
        for kind in graph.arrays.queues["takes"][taker]
        if kind >= 0 and kind in graph.arrays.queues["gives"][giver]
    }
    assert kinds == {
        (index[F, 0, 1], index[F, 0, 2]),  # the V turns on device 1
        (index[B, 0, 2], index[B, 0, 1]),
        (index[F, 0, 3], index[B, 0, 3]),  # the last stage
        *((index[B, 0, s], index[W, 0, s]) for s in range(4)),
    }
    assert graph.arrays.credits == 5  # both B's of a device fill one pool of W's


def test_spans_follow_the_objective() -> None:
    spans, makespan = graph_of(linear()), graph_of(linear(objective="makespan"))
    assert (spans.spans, makespan.spans) == (True, False)


def test_mirrored_words_are_read_from_their_ends() -> None:
    graph = graph_of(linear())
    other = mirrored(graph)
    arcs = {
        (int(other.arrays.items["source"][i]), int(i)): int(other.arrays.items["lag"][i])
        for i in np.flatnonzero(other.arrays.items["source"] >= 0)
    }
    assert arcs == {(6, 0): 1, (7, 1): 1, (2, 8): 1, (3, 9): 1}
    assert (other.arrays.items["home"] == 1 - graph.arrays.items["home"]).all()
    assert (mirrored(other).arrays.items["lag"] == graph.arrays.items["lag"]).all()
    assert (mirrored(other).offsets == graph.offsets).all()


def test_no_limit_is_larger_than_any_memory() -> None:
    assert graph_of(linear()).arrays.devices["limit"].tolist() == [NO_LIMIT, NO_LIMIT]


def test_no_item_leaves_an_iteration_that_is_flushed() -> None:
    graph = graph_of(linear(4, iterations=2, flush=True))
    first = [0] * 6 + [6] * 6 + [12] * 6 + [18] * 6
    assert graph.lowest.tolist() == first
    assert graph.highest.tolist() == [low + 5 for low in first]


def test_without_a_flush_an_item_moves_along_the_whole_word() -> None:
    graph = graph_of(linear(4, iterations=2, flush=False))
    assert set(zip(graph.lowest.tolist(), graph.highest.tolist(), strict=True)) == {(0, 11), (12, 23)}


def test_a_fixed_range_stays_and_parts_what_is_before_from_what_is_behind() -> None:
    graph = with_fixed(graph_of(linear()), np.array([2, 1]), np.array([4, 3]))
    assert graph.lowest.tolist() == [0, 0, 2, 3, 4, 4, 6, 7, 8, 9, 9, 9]
    assert graph.highest.tolist() == [1, 1, 2, 3, 5, 5, 6, 7, 8, 11, 11, 11]


def test_only_messages_that_may_wait_have_a_link() -> None:
    graph = graph_of(linear(link_occupancy=4))  # F takes 3 ticks, B 4
    assert (graph.arrays.links, graph.arrays.occupancy) == (1, 4)
    assert np.flatnonzero(graph.arrays.queues["link"][graph.arrays.queue] >= 0).tolist() == [0, 1]
