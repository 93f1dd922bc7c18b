"""Idle time, reasons and critical paths are true: checked by the validator, on schedules of every placement."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers.cases import instances, random_order, uniform, wide_instances, widened
from helpers.small_instances import without_diagonal
from hypothesis import assume, given
from hypothesis import strategies as st

from tightpipe import (
    Instance,
    Memory,
    MicrobatchClass,
    Offload,
    Operation,
    OpKind,
    Order,
    Schedule,
    retime,
    simulate,
    solve,
    validate,
)
from tightpipe.explain import Idle, Link, Phase, Reason, arrivals, critical_path, explain, explanation, legs
from tightpipe.model.costs import Step
from tightpipe.model.metrics import busy_times, cost, device_spans, peak_memory, total_time


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Random orders within the memory limit, earliest, re-timed or late.

    With busy links, frozen stages and steps, or without.
    """
    instance = draw(instances())
    if draw(st.booleans()):
        instance = widened(instance, draw(st.integers(0, 999)))
    if draw(st.booleans()):
        times = [draw(st.lists(st.integers(0, 30), min_size=n, max_size=n)) for n in (instance.stages,) * 2]
        instance = replace(instance, objective="step", step=Step(*times, draw(st.integers(0, 5))))
    costs = replace(instance.costs, link_occupancy=draw(st.sampled_from([0, 0, 1, 5])))
    instance = replace(instance, costs=costs)
    schedule = retime(instance, random_order(instance, draw(st.integers(0, 999))))
    if instance.memory is not None:
        extra = draw(st.integers(0, 3))
        limit = tuple((peak_memory(schedule) + extra).tolist())
        instance = replace(instance, memory=replace(instance.memory, limit=limit))
    slow = instance
    if draw(st.booleans()):  # times that are later than they need be
        comm = without_diagonal([[c + 3 for c in row] for row in instance.costs.comm])
        slow = replace(instance, costs=replace(instance.costs, comm=comm))
    timed = simulate(slow, schedule.order) if draw(st.booleans()) else retime(slow, schedule.order)
    schedule = Schedule(instance, timed.order, timed.start, timed.end)
    assume(not validate(instance, schedule))
    return schedule


def without(schedule: Schedule, op: Operation, device: int, before: Operation, start: int) -> Schedule:
    """The same schedule with `op` right before `before` and starting at `start`, all else in its place."""
    times = dict(zip(flat(schedule), zip(schedule.start, schedule.end, strict=True), strict=True))
    begin, end = times[op]
    times[op] = start, start + end - begin
    lists = schedule.order.to_lists()
    lists[device].remove(op)
    lists[device].insert(lists[device].index(before), op)
    order = Order.from_lists(lists)
    start_end = np.array([times[o] for device_ops in lists for o in device_ops])
    return Schedule(schedule.instance, order, start_end[:, 0], start_end[:, 1])


def flat(schedule: Schedule) -> list[Operation]:
    return [op for ops in schedule.order.to_lists() for op in ops]


def broken_rules(schedule: Schedule) -> set[str]:
    return {violation.rule for violation in validate(schedule.instance, schedule)}


def claims_hold(schedule: Schedule, idle: Idle) -> None:
    """Check an interval's reason against the rules of the model."""
    ends = dict(zip(flat(schedule), schedule.end.tolist(), strict=True))
    if idle.reason is Reason.FINISHED:
        assert idle.next is None
        return
    assert idle.next is not None
    if idle.reason is Reason.DEPENDENCY:
        assert idle.awaits is not None
        assert ends[idle.awaits] >= idle.end
    if idle.reason in (Reason.LINK, Reason.COMMUNICATION):
        assert idle.awaits is not None
        assert ends[idle.awaits] <= idle.start
    if idle.reason is Reason.STAGE:
        step = schedule.instance.step
        assert step is not None
        assert idle.next.kind is OpKind.F
        assert idle.end <= step.ready[idle.next.stage]  # type: ignore[index]
    if idle.reason is Reason.LATE:
        starts = dict(zip(flat(schedule), schedule.start.tolist(), strict=True))
        row = flat(schedule).index(idle.next)
        start, end = schedule.start.copy(), schedule.end.copy()
        start[row], end[row] = idle.start, idle.start + end[row] - start[row]
        assert starts[idle.next] == idle.end
        assert broken_rules(Schedule(schedule.instance, schedule.order, start, end)) == set()
    if idle.reason is Reason.ORDER:
        assert idle.ready is not None
        filled = without(schedule, idle.ready, idle.device, idle.next, idle.start)
        # a message that leaves before another one can delay it where links are busy
        allowed = {"link_capacity"} if schedule.instance.costs.link_occupancy else set()
        assert broken_rules(filled) <= allowed
    if idle.reason is Reason.MEMORY:
        assert idle.ready is not None
        assert idle.frees is not None
        assert moved_peak(schedule, idle, idle.next) > schedule.instance.memory_limit(idle.device)
        ops = schedule.order.to_lists()[idle.device]
        after = ops[ops.index(idle.frees) + 1]
        assert moved_peak(schedule, idle, after) <= schedule.instance.memory_limit(idle.device)


def moved_peak(schedule: Schedule, idle: Idle, before: Operation) -> int:
    """Peak memory of the device if its order had the ready operation right before `before`."""
    lists = schedule.order.to_lists()
    ops = [op for op in lists[idle.device] if op != idle.ready]
    place = ops.index(before) if before in ops else lists[idle.device].index(before)
    ops.insert(place, idle.ready)
    held, peak = 0, 0
    for op in ops:
        delta = schedule.instance.memory_delta(op.kind, op.stage)
        passing = schedule.instance.memory_while_running(op.stage) if op.kind is OpKind.F else 0
        peak = max(peak, held + max(delta, 0) + passing)
        held += delta
    return peak


@given(schedules())
def test_idle_time_sums_to_what_the_objective_charges(schedule: Schedule) -> None:
    found = explain(schedule, relax=False)
    charged = {
        "step": np.full(schedule.order.devices, cost(schedule)),
        "makespan": np.full(schedule.order.devices, total_time(schedule)),
        "device_span": device_spans(schedule),
    }
    idle = charged[schedule.instance.objective] - busy_times(schedule)
    assert [d.idle for d in found.devices] == idle.tolist()
    for device in found.devices:
        assert sum(device.by_phase.values()) == sum(device.by_reason.values()) == device.idle
        assert device.charged == device.busy + device.idle
        mine = [i for i in found.idle if i.device == device.device]
        assert all(a.end <= b.start for a, b in pairwise(mine))
        assert all(i.ticks > 0 for i in mine)


@given(schedules())
def test_every_reason_is_true(schedule: Schedule) -> None:
    for idle in explain(schedule, relax=False).idle:
        claims_hold(schedule, idle)


@given(schedules())
def test_the_critical_path_leaves_no_time_out_and_sums_to_the_cost(schedule: Schedule) -> None:
    path = critical_path(schedule, arrivals(schedule))
    assert sum(step.ticks for step in path) == cost(schedule)
    assert all(a.end == b.start for a, b in pairwise(path))
    assert sum(leg.ticks for leg in legs(path)) == cost(schedule)
    ends = dict(zip(flat(schedule), schedule.end.tolist(), strict=True))
    running = [step for step in path if step.runs]
    assert [step.end for step in running] == [ends[step.operation] for step in running]
    around = schedule.instance.barrier
    for step in path:
        if step.link is Link.REDUCTION:
            assert step.ticks == around.reduce[step.operation.stage]  # type: ignore[index, union-attr]
        if step.link is Link.OPTIMIZER:
            assert step.ticks == around.optimizer[step.device]  # type: ignore[index, union-attr]
    for before, step in pairwise(path):
        if step.link is Link.DEVICE:
            assert before.end == step.start
            assert before.link is Link.LATE or before.device == step.device


@given(schedules())
def test_earliest_times_have_no_late_path(schedule: Schedule) -> None:
    objective = schedule.instance.objective
    instance = replace(schedule.instance, objective="step" if objective == "step" else "makespan")
    earliest = simulate(instance, schedule.order)
    path = critical_path(earliest, arrivals(earliest))
    assert Link.LATE not in {step.link for step in path}
    assert path[0].link in (Link.FIRST, Link.STAGE)
    assert Reason.LATE not in {idle.reason for idle in explain(earliest, relax=False).idle}


def test_every_reason_and_phase_occurs(greedy: Schedule) -> None:
    """Each reason on a schedule that is built to have it, so that the properties above are not empty."""
    met: Counter[Reason] = Counter()
    line = Instance.uniform(
        devices=2, microbatches=2, forward=4, backward=4, weight=4, comm=1, placement="linear",
        memory=Memory(2, -1, -1, 2), objective="makespan",
    )  # fmt: skip
    tight = simulate(line, Order.parse("F0.0 B0.0 W0.0 F0.1 B0.1 W0.1\nF1.0 B1.0 W1.0 F1.1 B1.1 W1.1"))
    found = explain(tight, relax=False)
    memory = next(i for i in found.idle if i.reason is Reason.MEMORY)
    assert [str(op) for op in (memory.next, memory.awaits, memory.ready, memory.frees)] == [
        "B0.0", "B1.0", "F0.1", "W0.0",
    ]  # fmt: skip
    met.update(i.reason for i in found.idle)
    wide = replace(line, memory=None, costs=replace(line.costs, link_occupancy=9))
    met.update(i.reason for i in explain(simulate(wide, tight.order), relax=False).idle)
    burst = Order.parse("F0.0 F0.1 B0.0 W0.0 B0.1 W0.1\nF1.0 F1.1 B1.0 W1.0 B1.1 W1.1")
    slow = replace(wide, costs=replace(wide.costs, backward=30))  # B does not fit in while F waits
    met.update(i.reason for i in explain(simulate(slow, burst), relax=False).idle)
    late = simulate(replace(wide, costs=replace(wide.costs, comm=7)), burst)
    met.update(i.reason for i in explain(Schedule(wide, late.order, late.start, late.end), relax=False).idle)
    leaving = replace(line, memory=Memory(2, -1, -1), offload=Offload(1, 30, 1))
    copied = Order.parse("F0.0 O0.0 F0.1 L0.0 B0.0 W0.0 B0.1 W0.1\nF1.0 F1.1 B1.0 W1.0 B1.1 W1.1")
    met.update(i.reason for i in explain(simulate(leaving, copied), relax=False).idle)
    waiting = replace(line, objective="step", step=Step([7, 0]))
    met.update(i.reason for i in explain(simulate(waiting, tight.order), relax=False).idle)
    assert set(met) == set(Reason)
    assert {i.phase for i in explain(greedy, relax=False).idle} == set(Phase)


@pytest.fixture(scope="module")
def greedy() -> Schedule:
    instance = Instance.uniform(
        devices=4, microbatches=8, forward=10, backward=12, weight=8, comm=2, memory=Memory(2, -1, -1, 12)
    )
    schedule = solve(instance, "greedy-v").schedule
    assert schedule is not None
    return schedule


def test_an_f_of_a_frozen_stage_needs_memory_while_it_runs() -> None:
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=4, backward=[0, 4, 4, 4], weight=[0, 4, 4, 4], placement="loop",
        chunks=2, memory=Memory([2] * 4, [0, -1, -1, -1], [0, -1, -1, -1], [3, 9]), objective="makespan",
    )  # fmt: skip
    order = "F0.0 F2.0 B2.0 W2.0 F0.1 F2.1 B2.1 W2.1\n"
    order += "F1.0 F3.0 B3.0 B1.0 W3.0 W1.0 F1.1 F3.1 B3.1 B1.1 W3.1 W1.1"
    schedule = simulate(instance, Order.parse(order))
    assert validate(instance, schedule) == []
    found = explain(schedule, relax=False)
    for idle in found.idle:
        claims_hold(schedule, idle)
    assert "F0.1 could run, but memory is full until B2.0 ends" in [str(idle) for idle in found.idle]


def test_relaxations_are_computed(greedy: Schedule) -> None:
    found = {r.name: r for r in explain(greedy, "greedy-v").relaxations}
    free = replace(greedy.instance, costs=replace(greedy.instance.costs, comm=0))
    assert found["no communication"].cost == cost(retime(free, greedy.order))
    assert found["no communication"].cost < found["half the communication"].cost < cost(greedy)
    memory = greedy.instance.memory
    assert memory is not None
    more = replace(greedy.instance, memory=replace(memory, limit=14))
    again = found["memory +1 activation"]
    assert (again.how, again.cost) == ("greedy-v run anew", solve(more, "greedy-v").cost)
    assert again.unrelaxed == cost(greedy)
    best = {r.name: r for r in explain(greedy, "cpsat").relaxations}["memory +1 activation"]
    assert best.how == "best of all heuristics"
    assert best.cost is not None
    assert best.cost <= again.cost


def test_relaxations_that_do_not_apply_are_left_out(greedy: Schedule) -> None:
    bare = replace(greedy.instance, memory=None, costs=replace(greedy.instance.costs, comm=0))
    found = explain(retime(bare, greedy.order), "greedy-v").relaxations
    assert [r.name for r in found] == ["nothing"]


def test_the_path_of_a_step_begins_with_its_stage_and_ends_with_reductions() -> None:
    """Stage 0 computes last, but its reduction waits for that of stage 1."""
    instance = Instance.uniform(
        devices=1, microbatches=2, forward=10, backward=10, weight=10, placement="loop", chunks=2,
        objective="step", step=Step([50, 0], [30, 90], 7),
    )  # fmt: skip
    order = "F0.0 F1.0 B1.0 W1.0 F0.1 F1.1 B1.1 W1.1 B0.0 W0.0 B0.1 W0.1"
    found = explain(simulate(instance, Order.parse(order)), relax=False)
    assert [(str(i.reason), str(i)) for i in found.idle] == [
        ("stage", "F0.0 waits until its stage is ready"),
        ("finished", "no operation is left to run"),
    ]
    path = [(str(s.link), s.name, s.ticks) for s in found.critical if not s.runs]
    assert path == [
        ("stage", "F0.0", 50), ("reduction", "W1.1", 90), ("reduction", "W0.1", 30), ("optimizer", "W0.1", 7),
    ]  # fmt: skip
    assert [step.name for step in found.critical if step.runs][-1] == "W1.1"
    assert [(str(leg), leg.step, leg.late) for leg in legs(found.critical)] == [
        ("before F0.0", 50, 0), ("F0.0 to W1.1 (8 operations)", 0, 0), ("after W1.1", 127, 0),
    ]  # fmt: skip


def test_pairs_wait_together() -> None:
    instance = Instance.uniform(
        devices=2, microbatches=4, forward=3, backward=3, weight=3, placement="bidirectional", comm=1
    )
    schedule = solve(instance, "dualpipe").schedule
    assert schedule is not None
    assert schedule.order.pairs.any()
    found = explain(schedule, relax=False)
    assert sum(step.ticks for step in found.critical) == cost(schedule)
    for idle in found.idle:
        claims_hold(schedule, idle) if idle.reason is not Reason.ORDER else None


def test_relaxations_know_a_class_without_w() -> None:
    frozen = MicrobatchClass(1, weight=0, memory=Memory(2, -2, 0))
    instance = Instance.uniform(
        devices=2,
        forward=[10, 20],
        backward=10,
        weight=8,
        placement="linear",
        memory=Memory(2, -1, -1, 4),
        classes=[frozen, MicrobatchClass(2)],
    )
    found = explain(retime(instance, solve(instance, "list").schedule.order))
    assert {one.name: one.cost is not None for one in found.relaxations}["even work"]


AROUND = {"objective": "step", "step": Step([50, 0, 0], [0, 40, 0], 100)}
COPIED = {"memory": Memory(2, -2, 0, 4), "offload": Offload(2, 20, 20), "objective": "makespan"}


@pytest.mark.parametrize("beside", [AROUND, COPIED], ids=["step", "offload"])
def test_even_work_leaves_what_is_no_operation_as_long_as_it_is(beside: dict[str, Any]) -> None:
    uneven, even = (
        solve(uniform(3, 8, times, placement="linear", comm=5, **beside), "list")
        for times in (([10, 20, 30], [20, 40, 60], [10, 20, 30]), (20, 40, 20))
    )
    assert even.schedule.order.has_copies == ("offload" in beside)
    assert {r.name: r for r in explain(uneven.schedule, "list").relaxations}["even work"].cost == even.cost


@given(wide_instances(max_devices=3, max_microbatches=3), st.integers(0, 99))
def test_schedules_of_wide_instances_are_explained(instance: Instance, seed: int) -> None:
    found = explain(retime(instance, random_order(instance, seed)), relax=False)
    assert sum(step.ticks for step in found.critical) == cost(found.schedule)
    assert all(device.busy + device.idle == device.charged for device in found.devices)


def test_heuristics_that_would_take_long_do_not_run_anew(
    greedy: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "_PATIENCE", 0.0)
    found = explain(greedy, "greedy-v").relaxations
    left = {r.name: r for r in found}["memory +1 activation"]
    assert (left.cost, left.saved, left.unrelaxed) == (None, None, None)
    assert left.how == "left out: greedy-v run anew would take about 0 s"
    assert all(r.cost is not None for r in found if r is not left)
