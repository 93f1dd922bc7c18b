"""The ends of items are those of the simulator, after every change and after taking it back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.cases import instances, random_order, serial_order, uniform
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, retime, simulate
from tightpipe.kernels.arrays import Ints
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.solver.improve.paths_kernel import cost_of, load, load_mirror, undo, update
from tightpipe.solver.improve.words import (
    EventGraph,
    Words,
    event_graph_of,
    mirrored,
    positions_of,
    words_for,
)
from tightpipe.solver.queues import order_of_words, queues_of, words_of


def linear(microbatches: int, **entries: Any) -> Instance:
    return uniform(2, microbatches, (3, 4, 2), comm=1, placement="linear", **entries)


def loaded(instance: Instance) -> tuple[EventGraph, Words, Ints]:
    """Graph, words and items of microbatch after microbatch."""
    queues = queues_of(instance)
    graph = event_graph_of(queues.instance)
    words, start = words_for(graph), positions_of(queues, serial_order(instance))
    load(graph, words, *start, at_once(instance))
    return graph, words, start.item


def at_once(instance: Instance) -> Ints:
    """Every device may begin at once."""
    return np.zeros(instance.devices, np.int64)


def swap(words: Words, i: int) -> None:
    """Exchange the items at positions i and i + 1."""
    words.item[[i, i + 1]] = words.item[[i + 1, i]]
    words.place[words.item[[i, i + 1]]] = [i, i + 1]


@pytest.mark.parametrize("objective", ["makespan", "device_span"])
@pytest.mark.parametrize("occupancy", [0, 5, 15])
@pytest.mark.parametrize("placement", ["linear", "v", "loop", "wave", "bidirectional"])
def test_items_end_when_the_simulator_says(placement: str, occupancy: int, objective: str) -> None:
    instance = uniform(
        *(2, 4, (3, 4, 2)), comm=1, placement=placement, objective=objective, link_occupancy=occupancy
    )
    queues = queues_of(instance)
    graph = event_graph_of(queues.instance)
    words = words_for(graph)
    for seed in range(5):
        order = order_of_words(queues, words_of(queues, random_order(instance, seed)))
        begin = np.random.default_rng(seed).integers(0, 30, 2)
        start, schedule = positions_of(queues, order), simulate(instance, order, begin)
        load(graph, words, *start, begin)
        assert words.end[start.item].tolist() == schedule.end.tolist()
        assert cost_of(graph, words) == max(schedule.end[order.offsets[1:] - 1] - begin)


def test_the_cost_is_the_least_where_devices_begin_as_in_the_best_schedule() -> None:
    instance = linear(3)
    queues, best = queues_of(instance), retime(instance, serial_order(instance))
    graph = event_graph_of(queues.instance)
    words = words_for(graph)
    load(graph, words, *positions_of(queues, best.order), best.start[best.order.offsets[:-1]])
    assert cost_of(graph, words) == cost(best)


@settings(max_examples=60, deadline=None)
@given(instances(), st.integers(0, 999))
def test_a_change_is_given_up_exactly_if_it_costs_more_than_enough(instance: Instance, seed: int) -> None:
    queues, random = queues_of(instance), np.random.default_rng(seed)
    graph = event_graph_of(queues.instance)
    item, joined = positions_of(queues, serial_order(instance))
    words, again, begin = words_for(graph), words_for(graph), random.integers(0, 20, instance.devices)
    other = mirrored(graph)
    mirror = words_for(other, words)
    for _ in range(20):
        load(graph, words, item, joined, begin)
        load_mirror(graph, words, other, mirror)
        zero = words.begin[0] + mirror.begin[-1]  # the rest is counted from here
        i = int(random.integers(len(item) - 1))
        device = graph.arrays.items["home"][item[i]]
        if device != graph.arrays.items["home"][item[i + 1]]:
            continue
        swap(words, i)
        possible, changes = update(graph, words, device, i, i + 1, mirror.end, np.inf)
        new = cost_of(graph, words)
        undo(words, changes)
        if possible:
            load(graph, again, words.item, joined, begin)
            assert new == cost_of(graph, again)
            for enough in (new - 1, new, new + 3):
                kept, changes = update(graph, words, device, i, i + 1, mirror.end, float(enough + zero))
                assert (kept and cost_of(graph, words) <= enough) == (enough >= new)
                undo(words, changes)
            item = words.item.copy()


def test_a_change_that_costs_too_much_is_followed_no_further_than_needed() -> None:
    graph, words, _ = loaded(linear(8))
    other = mirrored(graph)
    mirror = words_for(other, words)
    load_mirror(graph, words, other, mirror)
    i = int(graph.offsets[1]) + 1
    swap(words, i)  # the first W of device 1 before its B, for which device 0 waits
    possible, all_changes = update(graph, words, 1, i, i + 1, mirror.end, np.inf)
    undo(words, all_changes)
    assert possible
    late = float(words.begin[0] + mirror.begin[-1] + cost_of(graph, words))
    possible, changes = update(graph, words, 1, i, i + 1, mirror.end, late)
    assert not possible
    assert changes < all_changes / 4


def test_the_rest_of_the_schedule_is_the_time_that_the_mirrored_words_take() -> None:
    graph, words, _ = loaded(linear(3))
    other = mirrored(graph)
    mirror = words_for(other, words)
    load_mirror(graph, words, other, mirror)
    ticks = graph.arrays.queues["duration"][graph.arrays.queue]
    through = words.end - ticks + mirror.end - (words.begin[0] + mirror.begin[-1])
    assert through.max() == cost_of(graph, words)
    first = words.item[graph.offsets[0]]
    assert through[first] == cost_of(graph, words)  # everything waits for it
    last = words.item[-1]
    assert through[last] == words.end[last] - words.begin[1]


def test_words_that_wait_for_each_other_are_no_schedule_and_are_taken_back() -> None:
    graph, words, _ = loaded(linear(1))  # device 0: F, B, W
    end = words.end.copy()
    swap(words, 0)  # its B before its F, which all of device 1 waits for
    possible, changes = update(graph, words, 0, 0, 1, end, np.inf)
    assert not possible
    undo(words, changes)
    assert (words.end == end).all()


def test_a_change_reaches_all_that_follows_and_nothing_else() -> None:
    graph, words, item = loaded(linear(2))  # device 0: F B W F B W
    end = words.end.copy()
    swap(words, 2)  # the second F before the first W
    possible, changes = update(graph, words, 0, 2, 3, end, np.inf)
    again = words_for(graph)
    load(graph, again, words.item, words.joined, at_once(linear(2)))
    assert possible
    assert (words.end == again.end).all()
    assert {int(x) for x in words.undo[:changes]} == set(np.flatnonzero(words.end != end))
    assert queues_of(linear(2)).queues[graph.arrays.queue[item[3]]].kind is OpKind.F
