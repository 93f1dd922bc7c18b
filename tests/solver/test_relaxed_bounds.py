"""Bounds of instances with fused backwards come from instances without them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.cases import classed, instances, uniform
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import Instance, Memory, Order, retime, solve, validate
from tightpipe.model.costs import Step
from tightpipe.model.metrics import cost
from tightpipe.model.operation import COMPUTES, Operation, OpKind
from tightpipe.model.orders import torch_stage0_instance, without_absent
from tightpipe.params.budget import Allowance
from tightpipe.registry.solve import bound, bounds_within
from tightpipe.solver.bounds.formulas import all_bounds, best_bound
from tightpipe.solver.bounds.formulas.ends import ends_bound
from tightpipe.solver.bounds.relaxed import relaxed, split_backwards
from tightpipe.solver.queues import is_modelled, order_of_tokens, queues_of, tokens_of

COSTS = (100, 110, 90)


def v_placement(devices: int, microbatches: int, fused: int) -> Instance:
    """Two activations per device and stage; PyTorch's fused backward took 14 % less than B and W."""
    memory = Memory(2, -1, -1, 4 * devices)
    return uniform(
        devices, microbatches, COSTS, comm=5, placement="v", objective="makespan", memory=memory, fused=fused
    )


def test_an_instance_without_fused_backwards_is_its_own() -> None:
    plain = uniform(2, 4, COSTS)
    assert split_backwards(plain) == (plain,)


@pytest.mark.parametrize("fused", [150, 200, 250])
def test_b_and_w_together_take_the_shorter_of_both_ways(fused: int) -> None:
    for without in split_backwards(uniform(2, 4, COSTS, fused=fused)):
        backward, weight = (without.duration(kind, 0) for kind in (OpKind.B, OpKind.W))
        assert backward + weight == min(200, fused)
        assert backward <= 110
        assert weight <= 90
        assert without.costs.fused is None


def test_a_fused_backward_of_one_tick_leaves_the_bounds_that_know_it() -> None:
    instance = uniform(2, 4, COSTS, placement="linear", fused=1)
    assert split_backwards(instance) == ()
    assert [found.name for found in all_bounds(instance)] == ["work", "ends", "splits"]
    assert best_bound(instance).value > 4 * 101


@given(instances(max_devices=3, max_microbatches=4, overlapped=True, fused=True), st.integers(0, 2**32))
def test_a_schedule_with_its_backwards_cut_costs_no_more(instance: Instance, seed: int) -> None:
    """The proof of the docstring, step by step: cut each BW, give all operations the new times."""
    schedule = retime(instance, mixed_order(instance, seed))
    broken = {fault.rule for fault in validate(instance, schedule)}
    for without in split_backwards(instance):
        cut = retime(without, Order.from_slots([cut_slots(row) for row in schedule.order.to_slots()]))
        assert {fault.rule for fault in validate(without, cut)} <= broken
        assert cost(cut) <= cost(schedule)


@given(instances(max_devices=3, max_microbatches=4, fused=True), st.integers(0, 2**32))
def test_a_w_alone_at_stage_0_is_cut_like_a_fused_backward(whole: Instance, seed: int) -> None:
    whole = classed(whole, seed) if seed % 2 else whole
    instance = torch_stage0_instance(whole)
    order = without_absent(instance, mixed_order(whole, seed))
    schedule = retime(instance, order)
    broken = {fault.rule for fault in validate(instance, schedule)}
    found = relaxed(instance)
    classes = range(len(instance.class_counts))
    assert found or min(instance.least_backward(s, c) for s in range(instance.stages) for c in classes) < 2
    for narrow, around in found:
        slots = [cut_slots(row, first=True) for row in order.to_slots()]
        cut = retime(narrow, Order.from_slots(slots))
        assert {fault.rule for fault in validate(narrow, cut)} <= broken
        assert cost(cut) + around <= cost(schedule)


def test_pairs_say_nothing_of_a_w_alone_at_stage_0() -> None:
    """The entries of its column do not count, so they may be 0."""
    entries = {"forward": 5, "backward": [0, 6], "weight": [7, 4], "pairs": [[0, 0], [0, 15]]}
    instance = Instance.uniform(devices=2, microbatches=4, placement="linear", **entries)
    apart = replace(instance, costs=replace(instance.costs, pairs=None))
    assert best_bound(instance).value == best_bound(apart).value == 60


def mixed_order(instance: Instance, seed: int) -> Order:
    """One microbatch after another, of which about half have fused backwards."""
    lists: list[list[Operation]] = [[] for _ in range(instance.devices)]
    for m in range(instance.microbatches):
        for stage in range(instance.stages):
            lists[instance.device(stage, m)].append(Operation(OpKind.F, stage, m))
        for stage in reversed(range(instance.stages)):
            fused = (seed >> (stage * instance.microbatches + m) % 32) & 1
            for kind in (OpKind.BW,) if fused else (OpKind.B, OpKind.W):
                lists[instance.device(stage, m)].append(Operation(kind, stage, m))
    return Order.from_lists(lists)


def cut_slots(slots: list[tuple[Operation, ...]], *, first: bool = False) -> list[tuple[Operation, ...]]:
    """Each BW that runs alone as a B and a W; with `first`, so is each W of stage 0."""
    found: list[tuple[Operation, ...]] = []
    for slot in slots:
        whole = slot[0].kind is OpKind.BW or (first and slot[0][:2] == (OpKind.W, 0))
        if len(slot) == 1 and whole:
            found += [(slot[0]._replace(kind=kind),) for kind in (OpKind.B, OpKind.W)]
        else:
            found.append(slot)
    return found


@pytest.mark.parametrize(
    ("devices", "microbatches", "fused", "least"),
    [(4, 12, 172, 6903), (4, 12, 190, 7335), (8, 24, 172, 13931)],
)
def test_the_bound_of_fused_backwards_that_are_cut(
    devices: int, microbatches: int, fused: int, least: int
) -> None:
    narrow = split_backwards(v_placement(devices, microbatches, fused))
    assert max(best_bound(one).value for one in narrow) == least


def test_searches_raise_the_bound_of_fused_backwards() -> None:
    entries = {"placement": "v", "comm": 1, "memory": Memory(2, -1, -1, 8), "fused": 26}
    instance = uniform(2, 4, (10, 20, 8), **entries)
    found = bound(instance, time_limit=60, workers=1)
    assert best_bound(instance).value < found.value


def test_best_fuses_some_backwards_and_splits_others() -> None:
    memory = Memory(2, -1, -1, 4)
    entries = {"placement": "linear", "comm": 1, "objective": "makespan", "memory": memory}
    instance = uniform(2, 8, (20, 22, 18), **entries, fused=34)
    result = solve(instance, "best", effort=5, workers=1)
    assert result.cost is not None
    assert result.schedule is not None
    assert result.bound is not None
    assert (
        result.bound <= 471 <= result.cost < 494
    )  # 471 is optimal, 508 if all are split, 494 if all are fused
    kinds = set(result.schedule.order.operations[:, 0].tolist())
    assert kinds == set(COMPUTES)


def test_a_mix_of_fused_and_split_backwards_beats_both_on_a_v() -> None:
    result = solve(v_placement(4, 12, 172), "improve", effort=2, workers=1)
    assert result.cost is not None
    assert result.cost < 7575  # the optimum where all are split; 7620 where all are fused


def test_backwards_that_are_longer_when_fused_are_split() -> None:
    instance = uniform(2, 4, COSTS, placement="linear", fused=210)
    schedule = solve(instance, "1f1b").schedule
    assert schedule is not None
    assert OpKind.BW in schedule.order.operations[:, 0]
    queues = queues_of(instance)
    order = order_of_tokens(queues, tokens_of(queues, schedule.order))
    assert OpKind.BW not in order.operations[:, 0]
    assert cost(retime(instance, order)) < cost(schedule)


def test_what_comes_around_the_work_of_a_device_counts() -> None:
    frozen = Instance.uniform(
        devices=2,
        microbatches=8,
        forward=[6, 2],
        backward=[0, 2],
        weight=[0, 2],
        placement="linear",
        comm=1,
        objective="step",
        step=Step(ready=[3, 0], reduce=[0, 4], optimizer=5),
    )
    # device 1: F of stage 0 from tick 3 to 9, a message, 8 (2 + 2 + 2) ticks of work, reduction, optimizer
    assert ends_bound(frozen).value == 3 + 6 + 1 + 48 + 4 + 5
    assert ends_bound(replace(frozen, objective="device_span")).value == 48
    assert solve(frozen, "best", effort=5, workers=1).cost == 67


def test_bounds_hold_where_iterations_are_flushed() -> None:
    """A flush only restricts more, so formulas are asked about the instance without it."""
    memory = Memory(2, -1, -1, 5)
    flushed = {"iterations": 2, "memory": memory, "objective": "makespan"}
    instance = uniform(2, 6, (3, 5, 2), comm=1, placement="linear", **flushed)
    (narrow,) = relaxed(instance)
    assert (narrow.instance, narrow.around) == (replace(instance, flush=False), 0)
    found, _ = bounds_within(instance, Allowance(3, 1))
    assert not is_modelled(instance)
    best = solve(instance, "cpsat", time_limit=30, workers=1)
    assert best.cost is not None
    assert max(one.value for one in found) <= best.cost
