"""No rule of the checker loses a schedule: whatever steps run, all schedules of the target stay in the windows."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from certificates.proofs import training_step, wide_instance
from helpers.cases import mixed_order, random_order, serial_order
from helpers.copied_cases import copied_case
from helpers.copies import order_with_copies
from helpers.copying import copying
from helpers.schedules import schedules_of
from helpers.small_instances import small_instance

from tightpipe import Instance, Objective, OpKind, Order, Schedule, retime, solve, validate
from tightpipe.certificates.check_proof import RULES, CheckError, InputError, Problem, RefutedError, Windows
from tightpipe.certificates.derivation import (
    Derivation,
    counts_at,
    overload_step,
    room_step,
    three_times_step,
)
from tightpipe.model.instance_file import instance_to_dict
from tightpipe.model.metrics import cost
from tightpipe.solver.bounds.relaxed import narrower, split_backwards
from tightpipe.solver.queues import queues_of, starts_of

SEEDS = range(100)
_STEPS = 150


def random_step(windows: Derivation, rng: random.Random) -> list[Any]:
    """A step with arguments of the right kinds, mostly about the same device."""
    device = rng.randrange(len(windows.on))
    mine = [i for q in windows.on[device] for i in range(windows.queues[q].first, windows.queues[q].end)]
    name = rng.choice([*RULES])
    if name == "overload":
        times = sorted(rng.randint(windows.frame_early[device], max(windows.late)) for _ in range(2))
        return [name, device, times[0], counts(windows, device, rng), times[1], counts(windows, device, rng)]
    if name == "progress":
        return [name, device, *progress(windows, device, rng)]
    values: dict[str, Any] = {
        "d": lambda: device,
        "q": lambda: rng.choice(windows.on[device]),
        "r": lambda: rng.randrange(windows.problem.microbatches),
        "i": lambda: rng.choice(mine),
        "s": lambda: [rng.randint(0, windows.queues[q].count) for q in windows.on[device]],
    }
    if name == "suppose":
        values["s"] = lambda: [random_step(windows, rng) for _ in range(3)]
    return [name, *(values[kind]() for kind in RULES[name])]


def progress(windows: Derivation, device: int, rng: random.Random) -> tuple[list[int], Any, Any]:
    """Random times and weights with counts that are shown, so that nothing else is wrong with the step."""
    lengths = rng.randint(2, 4), len(windows.on[device])
    times = sorted(rng.randint(windows.frame_early[device], max(windows.late)) for _ in range(lengths[0]))
    weights = [[rng.randint(-2, 3) for _ in range(lengths[1])] for _ in times[1:]]
    return times, [counts_at(windows, device, t) for t in times], weights


def counts(windows: Derivation, device: int, rng: random.Random) -> list[list[int]]:
    """Random counts for the rule `overload`."""
    return [[rng.randint(0, windows.queues[q].count) for _ in range(4)] for q in windows.on[device]]


def derive(windows: Derivation, rng: random.Random) -> None:
    """Run random steps, of which most are refused, between visits of items that find good ones."""
    for _ in range(_STEPS):
        if rng.random() < 0.5:
            windows.visit(rng.randrange(len(windows.queue)))
        else:
            try:
                windows.run([random_step(windows, rng)])
            except (CheckError, InputError):
                take_back(windows)


def take_back(windows: Derivation) -> None:
    """Forget suppositions that were not closed. The checker need not: it ends at the first step that fails."""
    windows.take_back(0)
    windows.depth = 0


def assert_inside(windows: Derivation, instance: Instance, starts: list[int]) -> None:
    """Assert that the starts of the items, in the sequence of their numbers, lie in the windows."""
    device = [windows.queues[q].device for q in windows.queue]
    frames = [min(s for s, d in zip(starts, device, strict=True) if d == k) for k in range(instance.devices)]
    origin = min(starts) if windows.problem.makespan else frames[0]
    if windows.problem.stepped:
        origin = windows.problem.step["ready"][0]
    for i, start in enumerate(starts):
        assert windows.early[i] <= start - origin <= windows.late[i]
        for q, (low, high) in windows.orders(i).items():
            before = sum(starts[j] < start for j in range(windows.queues[q].first, windows.queues[q].end))
            assert low <= before
            assert q == windows.queue[i] or before <= high
    if not windows.problem.makespan:
        for early, frame, late in zip(windows.frame_early, frames, windows.frame_late, strict=True):
            assert early <= frame - origin <= late


def cut(schedule: Schedule, narrow: Instance) -> Schedule:
    """The schedule with a shorter B and, right after it, a W in place of each BW."""
    slots, times, took = [], [], zip(schedule.start.tolist(), schedule.end.tolist(), strict=True)
    for device in schedule.order.to_lists():
        slots.append([])
        for op in device:
            start, _ = next(took)
            for kind in (OpKind.B, OpKind.W) if op.kind is OpKind.BW else (op.kind,):
                slots[-1].append((op._replace(kind=kind),))
                times.append((start, start := start + narrow.duration_of(op._replace(kind=kind))))
    return Schedule(narrow, Order.from_slots(slots), *np.array(times).T)


def class_of(windows: Windows, microbatch: int) -> int:
    """The class of a microbatch in the windows: that of its route, times and memory."""
    problem = windows.problem
    given, route = problem.part[microbatch], problem.way[microbatch]
    costs = problem.time[given], problem.resident(given)
    return next(
        k
        for k, (own_route, *own, _) in enumerate(windows.classes)
        if own_route == route
        and all(a[kind] == b[kind] for a, b in zip(own, costs, strict=True) for kind in "FBW")
    )


def starts_in(windows: Derivation, schedule: Schedule) -> list[int]:
    """The starts of the items of the windows, whatever the numbers of the microbatches in the schedule."""
    ran: dict[tuple[str, int, int], list[int]] = {}
    for (kind, stage, m), start in zip(
        schedule.order.operations.tolist(), schedule.start.tolist(), strict=True
    ):
        mb_class = class_of(windows, m)
        alone = not windows.classes[mb_class][1]["B"][stage]
        name = "B" if kind == OpKind.W and alone else OpKind(kind).name
        ran.setdefault((name, mb_class, stage), []).append(start)
    return [
        start
        for queue in windows.queues
        for start in sorted(start for k, stage in queue.members for start in ran[queue.kind, k, stage])
    ]


def derived(problem: Problem, target: int, anchor: int, rng: random.Random) -> Derivation:
    """The windows of schedules that cost at most `target` after random steps, none of which refutes them all."""
    windows = Derivation(problem, target, anchor)
    try:
        derive(windows, rng)
    except RefutedError:
        pytest.fail(f"no schedule of cost {target} is left, and there is one")
    for device in range(len(windows.on)):
        assert overload_step(windows, device) is None
        assert three_times_step(windows, device) is None
        assert room_step(windows, device) is None
    return windows


def assert_keeps(windows: Derivation, target: int, schedules: list[Schedule], narrow: Instance) -> None:
    """Assert that the windows have room for all schedules of the target, whose BW's are cut into B and W."""
    for schedule in schedules:
        if cost(schedule) <= target:
            shorter = cut(schedule, narrow)
            assert validate(narrow, shorter) == []
            assert_inside(windows, schedule.instance, starts_in(windows, shorter))


def unpaired(instance: Instance, orders: list[Order]) -> list[Schedule]:
    """The valid schedules of these orders without pairs."""
    schedules = [retime(instance, Order(order.operations, order.offsets)) for order in orders]
    return [schedule for schedule in schedules if not validate(instance, schedule)]


@pytest.mark.parametrize("seed", range(60))
def test_no_step_loses_a_training_step_with_fused_backwards(seed: int) -> None:
    """Its BW's are cut into B and W, which is a schedule of the narrower instance that the windows are about."""
    instance = training_step(seed)
    orders = [schedule.order for schedule in schedules_of(instance, seed)]
    orders += [mixed_order(small_instance(seed), seed + k) for k in range(4)]
    schedules = unpaired(instance, orders)
    target = min(map(cost, schedules)) + seed % 3
    long, narrow = ("B", split_backwards(instance)[0]) if seed % 2 else ("W", split_backwards(instance)[-1])
    problem = Problem(instance_to_dict(instance)).split(long)
    (time,) = problem.time
    assert (time["B"], time["W"]) == (list(narrow.costs.backward), list(narrow.costs.weight))
    windows = derived(problem, target, 0, random.Random(seed))
    assert_keeps(windows, target, schedules, replace(narrow, objective=Objective.MAKESPAN, step=None))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(120))
def test_no_step_loses_a_schedule_of_a_wide_instance(seed: int) -> None:
    """Stages without B or W, microbatches that differ, fused backwards cut in two, a step around them."""
    instance = wide_instance(seed)
    classes = [replace(one, memory=None) for one in instance.classes]
    free = replace(instance, memory=None, classes=classes) if seed % 2 else instance
    orders = [serial_order(free), random_order(free, seed)]
    orders += [mixed_order(free, seed + k) for k in range(4)]
    schedules, found = unpaired(free, orders), narrower(free)
    if not (schedules and found):  # nothing fits the memory, or a BW of one tick cannot be cut
        return
    problem = Problem(instance_to_dict(free))
    if free.fusing_saves:
        problem = problem.split("W" if seed % 2 else "B")
    target = min(map(cost, schedules)) + seed % 3
    windows = derived(problem, target, free.placement.routes[0][0], random.Random(seed))
    assert_keeps(windows, target, schedules, found[-(seed % 2)].instance)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_no_step_loses_a_schedule_with_copies(seed: int) -> None:
    """Without its copies, it is a schedule of an instance in which what may leave takes no memory."""
    instance = copied_case(seed) if seed % 2 else copying(wide_instance(seed), seed)
    found = narrower(instance)
    if not found:  # a BW of one tick cannot be cut
        return
    schedules = [retime(instance, order_with_copies(instance, seed + k, pairs=False)) for k in range(8)]
    schedules = [schedule for schedule in schedules if not validate(instance, schedule)]
    schedules += [schedule for schedule in (solve(instance, "list").schedule,) if schedule is not None]
    if schedules:
        problem = Problem(instance_to_dict(instance))
        if instance.fusing_saves:
            problem = problem.split("W" if seed % 2 else "B")
        target = min(map(cost, schedules)) + seed % 3
        windows = derived(problem, target, instance.placement.routes[0][0], random.Random(seed))
        computing = [schedule.without_copies() for schedule in schedules]
        assert_keeps(windows, target, computing, found[-(seed % 2)].instance)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_step_loses_a_schedule(seed: int) -> None:
    instance = small_instance(seed)
    schedules = schedules_of(instance, seed)
    target = max(map(cost, schedules)) if seed % 2 else min(map(cost, schedules)) + seed % 3
    windows = derived(Problem(instance_to_dict(instance)), target, 0, random.Random(seed))
    for schedule in schedules:
        if cost(schedule) <= target:
            assert_inside(windows, instance, starts_of(queues_of(instance), schedule))
