"""Searches over prefixes with joint and absent operations and a step around: against start times alone."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from itertools import combinations
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from helpers.cases import classed, mixed_order, uniform, wide_instances, widened
from helpers.independent_model import optimal_schedule
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import Instance, Memory, Objective, retime, solve, validate
from tightpipe.model.costs import Step
from tightpipe.model.graph_arrays import arrays_of, nodes_of
from tightpipe.model.metrics import cost
from tightpipe.model.operation import COMPUTES, OpKind
from tightpipe.model.result import Proof, ignore
from tightpipe.params.budget import UNLIMITED
from tightpipe.registry.solve import bound
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.engine.portfolio import alone
from tightpipe.solver.engine.run import Incumbent
from tightpipe.solver.prefixes import BeamSearch, PrefixProofs, is_whole, search_prefixes, start_windows

SHAPES = (
    *((1, 4, "v"), (2, 3, "linear"), (2, 4, "linear"), (3, 3, "linear")),
    *((2, 2, "v"), (2, 3, "v"), (2, 2, "loop"), (2, 4, "bidirectional")),
)


def case(seed: int) -> Instance:
    """Stages that differ, fused backwards; on half of the seeds pairs, on half a frozen stage or a step.

    Where there are pairs, there are few operations: start times alone take long to decide them.
    """
    rng = random.Random(seed)
    devices, microbatches, placement = rng.choice(SHAPES)
    if seed % 2:
        microbatches = min(microbatches, 3 if placement == "linear" else 2)
    stages = uniform(devices, microbatches, (1, 1, 1), placement=placement).stages
    f, b, w = ([rng.randint(1, 9) for _ in range(stages)] for _ in "FBW")
    entries: dict[str, Any] = {
        "fused": [rng.randint(max(2, x, y), x + y + 1) for x, y in zip(b, w, strict=True)]
    }
    if seed % 2:
        longest = max(map(sum, zip(f, b, strict=True)))
        entries["overlapped"] = [rng.randint(longest - 2, longest + 5) for _ in range(devices)]
    if rng.random() < 0.7:
        entries["memory"] = Memory(2, -1, -1, rng.choice((2, 3, 4)) * (2 * stages // devices))
    if seed % 7 < 2 and microbatches % 2 == 0 and placement != "bidirectional":
        entries["iterations"] = 2
    instance = Instance.uniform(
        devices=devices,
        microbatches=microbatches,
        forward=f,
        backward=b,
        weight=w,
        comm=rng.randint(0, 2),
        placement=placement,
        objective=rng.choice(("makespan", "device_span", "step")),
        **entries,
    )
    if seed % 4 > 1:
        instance = widened(instance, seed)
    return classed(instance, seed) if seed % 10 == 4 and instance.iterations == 1 else instance


def is_exact(instance: Instance) -> bool:
    """Whether the prefixes of all devices leave nothing out: no frames that float, no stages reduced in turn."""
    step = instance.barrier
    one_each = all(len(instance.placement.stages_on(d)) == 1 for d in range(instance.devices))
    in_turn = step is not None and not one_each and any(step.reduce)
    whole = is_whole(arrays_of(instance), range(instance.devices))
    return whole and instance.whole and not in_turn


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_no_set_of_devices_refutes_an_optimum_and_all_together_find_it(seed: int) -> None:
    instance = case(seed)
    optimum = cost(optimal_schedule(instance))
    for size in range(1, instance.devices + 1):
        for devices, more in (
            (d, m) for d in combinations(range(instance.devices), size) for m in (0, seed % 5)
        ):
            windows = start_windows(instance, optimum + more)
            assert windows.feasible
            found = search_prefixes(instance, windows, devices, UNLIMITED.within(20), 10**6)
            assert found.bound is not None
            assert found.bound <= optimum
    if is_exact(instance):
        assert found.bound == optimum
        assert found.schedule is not None
        assert cost(found.schedule) == optimum
        windows = start_windows(instance, optimum - 1)
        if windows.feasible:
            answer = search_prefixes(instance, windows, devices, UNLIMITED.within(20), 10**6)
            assert answer.bound == optimum


@given(wide_instances(), st.integers(0, 9999), st.booleans())
def test_operations_start_inside_the_windows_of_the_cost(instance: Instance, seed: int, free: bool) -> None:
    """The proof of the docstring: of a BW, a pair, a W alone, whatever the times of its items."""
    if free:
        instance = replace(instance, memory=None)
    schedule = retime(instance, mixed_order(instance, seed))
    if validate(instance, schedule):
        return
    windows, order = start_windows(instance, cost(schedule)), schedule.order
    assert windows.feasible
    origin = {
        Objective.STEP: 0,
        Objective.MAKESPAN: schedule.start.min(),
        Objective.DEVICE_SPAN: schedule.start[order.rows(instance.placement.routes[0][0])].min(),
    }
    start = schedule.start - origin[instance.objective]
    queue = windows.graph.nodes["queue"][nodes_of(instance, order)]
    for q in np.unique(queue[windows.graph.queues["kind"][queue] != OpKind.W]).tolist():
        mine = slice(windows.graph.first[q], windows.graph.first[q + 1])
        starts = np.sort(start[queue == q])
        assert (windows.earliest[mine] <= starts).all()
        assert (starts <= windows.latest[mine]).all()
    last = [int(schedule.end[order.rows(d)].max()) - origin[instance.objective] for d in range(order.devices)]
    assert (np.array(last) <= windows.begin + windows.horizon).all()


def scarce(**entries: Any) -> Instance:
    """Two thirds of 1F1B's memory on a V, where a fused backward is 14 % shorter than B and W."""
    given = {
        "placement": "v",
        "comm": 5,
        "objective": "makespan",
        "memory": Memory(2, -1, -1, 8),
        "fused": 172,
    }
    return uniform(3, 6, (100, 110, 90), **given | entries)


def closed(instance: Instance) -> Incumbent:
    start = solve(instance, "list").schedule
    assert start is not None
    incumbent = Incumbent(start, 1, None, perf_counter(), ignore)
    alone(UNLIMITED.within(60), incumbent, partial(PrefixProofs, instance, incumbent, 1.0, 1.0))
    assert incumbent.closed
    assert incumbent.proof in (Proof.PREFIXES, Proof.SHAVING)
    assert validate(instance, incumbent.schedule) == []
    return incumbent


def test_scarce_memory_is_closed_with_fused_backwards_and_with_pairs_between_flushes() -> None:
    """Each optimum is below that with fewer ways to run operations jointly, and a flush costs more."""
    split = closed(scarce(fused=None)).cost
    mixed = closed(scarce())
    kinds = set(mixed.schedule.order.operations[:, 0].tolist())
    assert kinds == set(COMPUTES)
    assert mixed.cost < split
    assert best_bound(scarce()).value < mixed.cost
    paired = closed(scarce(overlapped=200))
    assert paired.schedule.order.pairs.any()
    assert paired.cost < mixed.cost
    flushed = closed(scarce(iterations=2))
    assert flushed.cost > mixed.cost


def test_a_beam_mixes_fused_and_split_backwards() -> None:
    instance = scarce()
    start = solve(instance, "list").schedule
    assert start is not None
    search = BeamSearch(instance, start_windows(instance, cost(start) - 1), 300, UNLIMITED)
    while not search.ended:
        search.step()
    assert search.schedule is not None
    assert validate(instance, search.schedule) == []
    assert cost(search.schedule) < cost(start)
    assert set(search.schedule.order.operations[:, 0].tolist()) == set(COMPUTES)


def test_bounds_are_searched_where_stages_are_frozen() -> None:
    """A stage of F alone, a W alone, and ticks around the operations."""
    backward, weight = [0, 0, 110, 110], [0, 90, 90, 90]
    entries: dict[str, Any] = {"placement": "v", "comm": 5, "objective": "step", "step": Step(30, 40, 25)}
    memory = Memory([1, 2, 2, 2], [0, 0, -1, -1], [0, -2, -1, -1], [5, 4])
    instance = Instance.uniform(
        devices=2,
        microbatches=4,
        forward=100,
        backward=backward,
        weight=weight,
        fused=172,
        memory=memory,
        **entries,
    )
    found, least = bound(instance, time_limit=60, workers=1), cost(optimal_schedule(instance))
    assert best_bound(instance).value < found.value == least
