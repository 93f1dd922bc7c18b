"""Copies beside the orders of heuristics: within memory, no later, and what is needed last first."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from helpers.cases import classed, instances, sliced, uniform, wide_instances
from helpers.copying import copying, copying_v
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Memory, NoScheduleError, Offload, OpKind, Order, retime, solve, validate
from tightpipe.heuristics import HEURISTICS
from tightpipe.heuristics.offloading import RULES, copied_out, offloaded
from tightpipe.heuristics.reversed_copies import last_needed_first
from tightpipe.model.metrics import cost
from tightpipe.registry.starts import schedule_of

F, B, W, BW, O, L = OpKind  # noqa: E741


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        instances(max_microbatches=3, most_occupancy=20), wide_instances(max_microbatches=3, most_occupancy=9)
    ),
    st.integers(0, 9999),
    st.sampled_from([lambda instance, _: instance, classed, sliced]),
)
def test_orders_of_lists_with_copies_are_valid(instance: Instance, seed: int, change: object) -> None:
    instance = copying(change(instance, seed), seed)  # type: ignore[operator]
    try:
        schedule = schedule_of(instance, HEURISTICS["list"])
    except NoScheduleError:
        return
    assert validate(instance, schedule) == []
    if instance.offload is not None:
        try:
            stays = schedule_of(replace(instance, offload=None), HEURISTICS["list"])
        except NoScheduleError:  # nothing fits without copies
            return
        assert cost(schedule) <= cost(stays)


@pytest.mark.parametrize("name", ["list", "due-date", "v-adaptive", "modulo"])
def test_every_heuristic_gains_where_half_of_the_memory_may_leave(name: str) -> None:
    instance = copying_v(4, 12, 8, 3)
    found, stays = (solve(one, name) for one in (instance, replace(instance, offload=None)))
    assert validate(instance, found.schedule) == []
    assert found.schedule.order.has_copies
    assert stays.schedule is None or found.cost < stays.cost


def stack(limit: int, out: int = 2, *, duplex: bool = True, microbatches: int = 3) -> Instance:
    return uniform(
        *(1, microbatches, (4, 4, 4)),
        placement="linear",
        objective="makespan",
        memory=Memory(2, -1, -1, limit),
        offload=Offload(1, out, 2, duplex),
    )


LAST_FIRST = [(F, 0), (F, 1), (F, 2), (B, 2), (W, 2), (B, 1), (W, 1), (B, 0), (W, 0)]


def last_first(instance: Instance) -> Order:
    return Order.from_lists([[(kind, 0, m) for kind, m in LAST_FIRST]])


def test_what_is_needed_last_leaves_first() -> None:
    instance = stack(5)
    wider = replace(instance, offload=None, memory=Memory(2, -1, -1, 6))
    order = copied_out(instance, retime(wider, last_first(wider)))
    assert order is not None
    assert [op for op in order.to_lists()[0] if op[0] in (O, L)] == [(O, 0, 0), (L, 0, 0)]
    assert order.without_copies() == last_first(instance)
    assert cost(retime(instance, order)) == cost(retime(wider, last_first(wider)))


@pytest.mark.parametrize("instance", [stack(4), stack(5, out=5)])
def test_copies_that_would_come_too_late_for_a_limit_are_not_made(instance: Instance) -> None:
    wider = replace(instance, offload=None, memory=Memory(2, -1, -1, 6))
    assert copied_out(instance, retime(wider, last_first(wider))) is None
    with pytest.raises(NoScheduleError, match="memory limits"):
        offloaded(instance, last_first)


@pytest.mark.parametrize("ticks", [4, 8, 10])
def test_one_engine_halves_the_memory_of_v_beat_at_no_cost(ticks: int) -> None:
    instance = replace(copying_v(4, 12, 8, ticks), offload=Offload(2, ticks, ticks, duplex=False))
    wider = replace(instance, offload=None, memory=Memory(2, -1, -1, 16))
    schedule = schedule_of(wider, HEURISTICS["v-beat"])
    order = copied_out(instance, schedule)
    assert order is not None
    copied = retime(instance, order)
    assert validate(instance, copied) == []
    assert cost(copied) == cost(schedule)


@settings(max_examples=60, deadline=None)
@given(instances(max_microbatches=4, most_occupancy=20), st.integers(0, 9999), st.integers(1, 3))
def test_copies_in_time_take_turns_and_keep_the_limit_at_the_times_of_the_schedule(
    instance: Instance, seed: int, times: int
) -> None:
    instance = copying(instance, seed)
    if instance.offload is None or instance.memory is None:
        return
    stays = replace(instance, offload=None)
    limits = [times * stays.smallest_limit(d) for d in range(instance.devices)]
    wider = replace(stays, memory=replace(instance.memory, limit=limits))
    schedule = schedule_of(wider, HEURISTICS["list"])
    found = [last_needed_first(instance, schedule, device) for device in range(instance.devices)]
    for trips in found:
        out, back = [], []
        for trip in trips or []:
            ticks_out, ticks_back = (instance.duration(kind, trip.stay.stage) for kind in (O, L))
            assert trip.stay.begin <= trip.out <= trip.back - ticks_out
            assert trip.back + ticks_back <= trip.stay.until
            out.append((trip.out, trip.out + ticks_out))
            back.append((trip.back, trip.back + ticks_back))
        for engine in (out, back) if instance.offload.duplex else (out + back,):
            assert all(before[1] <= after[0] for before, after in pairwise(sorted(engine)))
    if None not in found:
        order = copied_out(instance, schedule)
        assert order is not None
        copied = retime(instance, order)
        assert validate(instance, copied) == []
        assert cost(copied) == cost(schedule)


def test_limits_between_are_tried_where_copies_would_delay() -> None:
    instance, tried = replace(copying_v(4, 12, 8, 14), offload=Offload(2, 14, 14, duplex=False)), []

    def make(wider: Instance) -> Order:
        tried.append(wider.memory_limit(0))
        return HEURISTICS["greedy-v"].order(wider)

    offloaded(instance, make)
    even, between = tried[:6], tried[6:]
    assert even == sorted(set(even))
    assert even[0] == 8
    assert between
    assert not set(between) & set(even)
    assert all(8 < limit < even[-1] for limit in between)


def test_copies_come_late_where_no_rule_has_them_in_time() -> None:
    instance = replace(copying_v(4, 12, 11, 14), offload=Offload(2, 14, 14, duplex=False))
    wider = replace(instance, offload=None, memory=Memory(2, -1, -1, 16))
    schedule = schedule_of(wider, HEURISTICS["v-beat"])
    assert all(copied_out(instance, schedule, rule) is None for rule in RULES)
    order = copied_out(instance, schedule)
    assert order is not None
    late = retime(instance, order)
    assert validate(instance, late) == []
    assert cost(late) > cost(schedule)


def test_without_a_memory_limit_nothing_leaves() -> None:
    instance = replace(stack(6), memory=Memory(2, -1, -1))
    assert offloaded(instance, last_first) == last_first(instance)


def test_one_engine_makes_one_copy_at_a_time() -> None:
    for duplex in (True, False):
        instance = replace(copying_v(2, 8, 5, 4), offload=Offload(1, 4, 4, duplex))
        schedule = schedule_of(instance, HEURISTICS["list"])
        assert validate(instance, schedule) == []


def test_an_order_of_a_function_of_a_user_gets_copies_too() -> None:
    instance = copying_v(4, 12, 8, 3)
    found = solve(instance, lambda known: HEURISTICS["list"].order(known))
    assert validate(instance, found.schedule) == []
    assert found.schedule.order.has_copies
    assert found.cost == solve(instance, "list").cost


@pytest.mark.parametrize("duplex", [True, False])
@pytest.mark.parametrize(("rule", "units"), [("pipe-offload", [0, 1]), ("fixed-share", [2, 5])])
def test_a_rule_says_which_activations_leave(rule: str, units: list[int], duplex: bool) -> None:
    instance = stack(14, duplex=duplex, microbatches=8)
    wider = replace(instance, offload=None, memory=Memory(2, -1, -1, 16))
    backwards = [(kind, 0, m) for m in reversed(range(8)) for kind in (B, W)]
    order = Order.from_lists([[*((F, 0, m) for m in range(8)), *backwards]])
    found = copied_out(instance, retime(wider, order), rule)
    assert found is not None
    assert sorted(unit for kind, _, unit in found.to_lists()[0] if kind == O) == units
    assert cost(retime(instance, found)) == cost(retime(wider, order))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("duplex", [True, False])
def test_copies_by_a_rule_gain_where_memory_is_scarce(rule: str, duplex: bool) -> None:
    instance = replace(copying_v(4, 12, 8, 3), offload=Offload(1, 3, 3, duplex))
    found, stays = solve(instance, f"list:{rule}"), solve(replace(instance, offload=None), "list")
    assert found.method == f"list:{rule}"
    assert validate(instance, found.schedule) == []
    assert found.schedule.order.has_copies
    assert found.cost < stays.cost


@settings(max_examples=30, deadline=None)
@given(wide_instances(max_microbatches=3, most_occupancy=9), st.integers(0, 9999), st.sampled_from([*RULES]))
def test_orders_with_copies_by_a_rule_are_valid(instance: Instance, seed: int, rule: str) -> None:
    instance = copying(instance, seed)
    try:
        schedule = schedule_of(instance, replace(HEURISTICS["list"], name=f"list:{rule}", copies=rule))
    except NoScheduleError:
        return
    assert validate(instance, schedule) == []
