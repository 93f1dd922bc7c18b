"""Longest paths are those of the simulator, after every change and after taking it back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import random_order, serial_order, uniform

from tightpipe import Instance, simulate
from tightpipe.core.operation import OpKind
from tightpipe.kernels.arrays import Ints
from tightpipe.solver.improve.event_graph import EventGraph, event_graph_of
from tightpipe.solver.improve.paths_kernel import cost_of, load, undo, update
from tightpipe.solver.improve.words import Words, items_of, words_for
from tightpipe.solver.queues import order_of, queues_of, words_of


def linear(microbatches: int, **entries: Any) -> Instance:
    return uniform(2, microbatches, (3, 4, 2), comm=1, placement="linear", **entries)


def loaded(instance: Instance) -> tuple[EventGraph, Words, Ints]:
    """Graph, words and items of microbatch after microbatch."""
    queues = queues_of(instance)
    graph = event_graph_of(queues)
    words, item = words_for(graph), items_of(queues, serial_order(instance))
    load(graph, words, item)
    return graph, words, item


def swap(words: Words, i: int) -> None:
    """Exchange the items at positions i and i + 1."""
    words.item[[i, i + 1]] = words.item[[i + 1, i]]
    words.place[words.item[[i, i + 1]]] = [i, i + 1]


@pytest.mark.parametrize("occupancy", [0, 5, 15])
@pytest.mark.parametrize("placement", ["linear", "v", "loop", "wave", "bidirectional"])
def test_items_end_when_the_simulator_says(placement: str, occupancy: int) -> None:
    instance = uniform(
        *(2, 4, (3, 4, 2)), comm=1, placement=placement, objective="makespan", link_occupancy=occupancy
    )
    queues = queues_of(instance)
    graph = event_graph_of(queues)
    words = words_for(graph)
    for seed in range(5):
        order = order_of(queues, words_of(queues, random_order(instance, seed)))
        item, schedule = items_of(queues, order), simulate(instance, order)
        load(graph, words, item)
        assert words.end[item].tolist() == (schedule.end - schedule.start.min()).tolist()
        assert cost_of(graph, words, np.inf) == schedule.end.max() - schedule.start.min()


def test_a_cost_above_enough_is_not_computed_to_the_end() -> None:
    graph, words, _ = loaded(linear(3))
    exact = cost_of(graph, words, np.inf)
    assert cost_of(graph, words, exact) == exact
    assert exact - 10 < cost_of(graph, words, exact - 10) <= exact


def test_words_that_wait_for_each_other_are_no_schedule_and_are_taken_back() -> None:
    graph, words, _ = loaded(linear(1))  # device 0: F, B, W
    path, end = words.path.copy(), words.end.copy()
    swap(words, 0)  # its B before its F, which all of device 1 waits for
    possible, changes = update(graph, words, 0, 0, 1)
    assert not possible
    undo(words, changes)
    assert (words.path == path).all()
    assert (words.end == end).all()


def test_a_change_reaches_all_that_follows_and_nothing_else() -> None:
    graph, words, item = loaded(linear(2))  # device 0: F B W F B W
    path = words.path.copy()
    swap(words, 2)  # the second F before the first W
    possible, changes = update(graph, words, 0, 2, 4)
    again = words_for(graph)
    load(graph, again, words.item)
    assert possible
    assert (words.path == again.path).all()
    assert {int(x) for x in words.undo[:changes]} == set(np.flatnonzero((words.path != path).any(axis=1)))
    assert queues_of(linear(2)).queues[graph.queue[item[3]]].kind is OpKind.F
