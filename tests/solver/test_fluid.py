"""The fluid bound: what its inequalities claim of every schedule, and what they refute."""

import numpy as np
import pytest
from helpers.brute_force import optimum
from helpers.cases import instances
from helpers.exact_cases import (
    TINY_SHAPES,
    plain_memory,
    table_memory,
    tiny_instance,
    v_instance,
    with_busy_links,
)
from helpers.schedules import schedules_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Objective, Schedule, retime
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost, largest_work
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.settings import load_settings
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.bounds.searches.fluid import FluidRows, Refuter, fluid_bound
from tightpipe.solver.bounds.searches.linear import UNIT, Inequalities, is_infeasible
from tightpipe.solver.engine.run import in_queue_order
from tightpipe.solver.queues import queues_of, starts_of, words_of
from tightpipe.solver.windows import Windows, shaved_windows, windows_of


def progress_of(schedule: Schedule, rows: FluidRows) -> list[float]:
    """The values of the variables in a first-in-first-out schedule, in parts of `UNIT`."""
    instance, queues, device = schedule.instance, rows.queues.queues, rows.device
    order, makespan = schedule.order, instance.objective is Objective.MAKESPAN
    first = [int(schedule.start[order.rows(d)].min()) for d in range(instance.devices)]
    origin = 0 if makespan else first[instance.placement.routes[0][0]]
    point = [0.0] * len(rows.system.lower)
    word = words_of(rows.queues, order)[device]
    for q, start in zip(word, schedule.start[order.rows(device)].tolist(), strict=True):
        done = np.clip((rows.grid - (start - origin)) / queues[q].duration, 0, 1) * UNIT
        for i, value in enumerate(done.tolist()):
            point[rows.progress(q, i)] += value
    point[rows.start] = 0 if makespan else (first[device] - origin) * UNIT
    return point


def assert_solves(schedule: Schedule, windows: Windows, device: int, step: int) -> None:
    """The progress of a device satisfies every inequality of the windows' target."""
    rows = FluidRows(queues_of(schedule.instance), windows, device, step)
    point = progress_of(schedule, rows)
    scale = 1e-9 * max(1.0, *(abs(value) for value in point))
    assert all(
        a - scale <= x <= b + scale
        for a, x, b in zip(rows.system.lower, point, rows.system.upper, strict=True)
    )
    missing = rows.system.shortfall(point)  # type: ignore[arg-type]  # floats will do here
    size = [1.0] * len(missing)
    for row, coefficient in zip(rows.system.row, rows.system.coefficient, strict=True):
        size[row] += abs(coefficient)
    assert all(miss <= scale * s for miss, s in zip(missing, size, strict=True))


@settings(max_examples=100, deadline=None)
@given(
    instances(max_devices=4, max_microbatches=4), st.integers(0, 2**16), st.integers(1, 40), st.integers(0, 9)
)
def test_every_schedule_satisfies_the_inequalities(
    instance: Instance, seed: int, step: int, room: int
) -> None:
    for schedule in sorted(schedules_of(instance, seed), key=cost)[:3]:
        windows = windows_of(queues_of(instance), cost(schedule) + room)
        for device in range(instance.devices):
            assert_solves(schedule, windows, device, step)


@pytest.mark.parametrize("step", [20_000, 60_000])
def test_a_schedule_at_scale_satisfies_the_inequalities(step: int) -> None:
    instance = load_settings()["6.2B-8x24"].instance()
    schedule = in_queue_order(retime(instance, HEURISTICS["greedy-v"].order(instance)))
    queues = queues_of(instance)
    windows = shaved_windows(queues, cost(schedule), UNLIMITED.within(5))
    for device in (0, 3, 7):
        assert_solves(schedule, windows, device, step)


@pytest.mark.parametrize("name", ["6.2B-8x24", "toy-4x8"])
def test_starts_of_a_schedule_are_not_cut_off(name: str) -> None:
    """What is cut off are starts that no schedule of the target has: that of the greedy keeps its own."""
    instance = load_settings()[name].instance()
    schedule = in_queue_order(retime(instance, HEURISTICS["greedy-v"].order(instance)))
    queues, refuter = queues_of(instance), Refuter(instance)
    windows = windows_of(queues, cost(schedule))
    for grid in (3.2, 0.8):
        windows, before = refuter.narrowed(windows, grid, Budget(threads=2)), windows
        start = np.array(starts_of(queues, schedule))
        start -= windows.origin(start.tolist())
        assert windows.feasible
        assert np.all((windows.earliest <= start) & (start <= windows.latest))
        narrower = np.diff(windows.frames, axis=0).sum() < np.diff(before.frames, axis=0).sum()
        assert narrower or grid < 3.2, "else nothing is tested"


@pytest.mark.parametrize("microbatches", [1, 6, 60])
def test_grids_cover_the_frame_of_the_device(microbatches: int) -> None:
    instance = v_instance(3, microbatches, (10, 12, 8, 1), plain_memory(12))
    queues = queues_of(instance)
    windows = windows_of(queues, largest_work(instance) + 50)
    for device in range(3):
        times = FluidRows(queues, windows, device, 35).times
        assert times == sorted(set(times))
        assert times[0] == windows.frames[0][device]
        assert times[-1] == windows.frames[1][device] + windows.horizon


@pytest.mark.sampled(3)
@pytest.mark.parametrize("objective", ["device_span", "makespan"])
@pytest.mark.parametrize("occupancy", [0, 9])
@pytest.mark.parametrize("shape", TINY_SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_never_above_the_optimum(
    shape: tuple[str, int, int], objective: str, occupancy: int, from_work: None
) -> None:
    instance = with_busy_links(tiny_instance(shape, 3, objective, limited=True), occupancy)
    best = optimum(instance)
    for upper in (best, best + 3):
        assert fluid_bound(instance, upper, Budget(threads=2)).value <= best


def test_device_starts_are_not_pinned(from_work: None) -> None:
    """With b > f a device gains by starting late: a version that pins the starts claims a bubble of 16."""
    instance = v_instance(2, 4, (8, 14, 8, 2), plain_memory(8))
    bound = fluid_bound(instance, largest_work(instance) + 16, Budget(threads=2))
    assert largest_work(instance) < bound.value <= largest_work(instance) + 12


@pytest.mark.parametrize(("devices", "microbatches", "optimal"), [(4, 12, 4), (8, 16, 12)])
def test_closes_where_memory_is_the_trouble(
    devices: int, microbatches: int, optimal: int, from_work: None
) -> None:
    instance = v_instance(devices, microbatches, (3, 3, 2, 0), table_memory(devices))
    work = largest_work(instance)
    bound = fluid_bound(instance, work + optimal, Budget(threads=2), work + optimal - 1)
    assert (bound.name, bound.value) == ("fluid", work + optimal)
    assert "no fractional progress" in bound.argument


def test_no_time_gives_the_bound_by_formula() -> None:
    instance = v_instance(3, 6, (10, 12, 8, 1), plain_memory(12))
    bound = fluid_bound(instance, 400, UNLIMITED.within(0))
    assert (bound.name, bound.value) == (best_bound(instance).name, best_bound(instance).value)


def triangle(least: int) -> Inequalities:
    """x + y >= least with x + 2 y <= 2 and 2 x + y <= 2 in the unit square: x + y is at most 4/3."""
    system = Inequalities()
    for _ in range(2):
        system.add_variable(0, UNIT)
    system.at_least([(0, 3), (1, 3)], least)
    system.at_least([(0, -1), (1, -2)], -2)
    system.at_least([(0, -1), (1, -1), (0, -1)], -2)
    return system


@pytest.mark.parametrize(("least", "infeasible"), [(0, False), (3, False), (4, False), (5, True), (9, True)])
def test_infeasible_systems(least: int, infeasible: bool) -> None:
    assert is_infeasible(triangle(least), UNLIMITED) is infeasible


@pytest.mark.parametrize(("bubble", "infeasible"), [(10, True), (18, True), (32, False)])
def test_progress_of_a_target(bubble: int, infeasible: bool) -> None:
    instance = v_instance(4, 8, (10, 12, 8, 1), plain_memory(16))
    queues = queues_of(instance)
    windows = windows_of(queues, largest_work(instance) + bubble, UNLIMITED)
    systems = [FluidRows(queues, windows, device, 9).system for device in range(4)]
    assert any(is_infeasible(system, UNLIMITED) for system in systems) is infeasible


def test_multipliers_prove_only_what_they_add_up_to() -> None:
    assert triangle(5).refuted_by([1, 1, 1])
    assert triangle(5).refuted_by([1, 1, 1]) is not triangle(4).refuted_by([1, 1, 1])
    assert not triangle(5).refuted_by([1, 0, 0])
    assert not triangle(5).refuted_by([-1, -1, -1])
