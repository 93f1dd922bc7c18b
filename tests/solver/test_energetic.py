"""The energetic bound: what it claims of every schedule, and what it proves."""

from itertools import count

import pytest
from helpers.brute_force import optimum
from helpers.cases import instances, uniform
from helpers.exact_cases import TINY_SHAPES, plain_memory, tiny_instance, v_instance, with_busy_links
from helpers.schedules import schedules_of
from helpers.small_instances import known_optima, small_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, retime, solve
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost, largest_work
from tightpipe.model.result import Status
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.registry.starts import warm_starts
from tightpipe.settings import load_settings
from tightpipe.solver.bounds.destructive import energetic_bound
from tightpipe.solver.bounds.energetic_kernel import overload_of
from tightpipe.solver.bounds.formulas import ramps_bound
from tightpipe.solver.queues import queues_of
from tightpipe.solver.windows import windows_of


def overloads(instance: Instance, target: int) -> list[int]:
    queues = queues_of(instance)
    windows = windows_of(queues, target)
    assert windows.feasible
    return [overload_of(windows, device) for device in range(instance.devices)]


@settings(max_examples=80, deadline=None)
@given(instances(max_devices=4, max_microbatches=6, most_occupancy=9), st.integers(0, 2**16))
def test_no_device_is_overloaded_at_the_cost_of_a_schedule(instance: Instance, seed: int) -> None:
    for schedule in schedules_of(instance, seed):
        assert max(overloads(instance, cost(schedule))) <= 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("costs", [(10, 10, 10, 1), (10, 16, 9, 3), (12, 10, 2, 0)])
@pytest.mark.parametrize("placement", ["linear", "v", "loop", "wave", "bidirectional"])
def test_nor_at_that_of_larger_ones(placement: str, costs: tuple[int, int, int, int]) -> None:
    for limit in (14, 16, 20, 30, 200):
        instance = uniform(6, 16, costs[:3], comm=costs[3], placement=placement, memory=plain_memory(limit))
        for schedule in schedules_of(instance, limit):
            assert max(overloads(instance, cost(schedule))) <= 0


def test_no_device_is_overloaded_at_the_optimum() -> None:
    """Nor is a window of the optimum empty, which `overloads` asserts."""
    for line in known_optima():
        assert max(overloads(small_instance(line.seed), line.optimum)) <= 0, line


@pytest.mark.parametrize("objective", ["device_span", "makespan"])
@pytest.mark.parametrize("occupancy", [0, 9])
@pytest.mark.parametrize("shape", TINY_SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_never_above_the_optimum(
    shape: tuple[str, int, int], objective: str, occupancy: int, from_work: None
) -> None:
    for seed in range(4):
        instance = with_busy_links(tiny_instance(shape, seed, objective, limited=True), occupancy)
        best = optimum(instance)
        assert energetic_bound(instance, best + 5, UNLIMITED.within(60)).value <= best


def test_device_starts_are_not_pinned(from_work: None) -> None:
    """With b > f a device gains by starting late: a version that pins the starts claims a bubble of 16."""
    instance = v_instance(2, 4, (8, 14, 8, 2), plain_memory(8))
    bound = energetic_bound(instance, largest_work(instance) + 16, UNLIMITED.within(60))
    assert bound.value <= largest_work(instance) + 12


@pytest.mark.parametrize("name", ["1.5B-8x64", "6.2B-8x64", "14.6B-16x48", "6.2B-16x48", "6.2B-16x128"])
def test_it_proves_the_greedy_optimal_on_published_settings(name: str, from_work: None) -> None:
    instance = load_settings()[name].instance(0)
    greedy = cost(retime(instance, HEURISTICS["greedy-v"].order(instance)))
    assert ramps_bound(instance).value < greedy
    assert energetic_bound(instance, greedy, UNLIMITED.within(60)).value == greedy
    assert overloads(instance, greedy - 1)[-1] == 1


def test_it_does_not_depend_on_the_cost_that_it_starts_from(from_work: None) -> None:
    instance = load_settings()["6.2B-8x24-swapped"].instance(0)
    upper = cost(warm_starts(instance)[0][1])
    values = {
        energetic_bound(instance, upper + more, UNLIMITED.within(60)).value for more in (0, 1, 1000, 100_000)
    }
    assert len(values) == 1


def test_without_a_deadline_it_reads_no_clock(monkeypatch: pytest.MonkeyPatch, from_work: None) -> None:
    """It counts targets, of which it looks at one at least."""
    instance = v_instance(4, 12, (10, 10, 10, 0), plain_memory(9))
    whole = energetic_bound(instance, 10_000, UNLIMITED.within(60)).value
    now = count(0, 1000)
    monkeypatch.setattr("tightpipe.params.budget.perf_counter", lambda: float(next(now)))
    assert energetic_bound(instance, 10_000, UNLIMITED).value == whole
    one, few, every = (
        energetic_bound(instance, 10_000, Budget(effort=effort)).value for effort in (1e-9, 8e-3, 60.0)
    )
    assert largest_work(instance) <= one < few < every == whole


@pytest.mark.parametrize("method", ["best", "cpsat", "improve"])
def test_methods_take_it(method: str) -> None:
    result = solve(load_settings()["6.2B-16x48"].instance(0), method, time_limit=100, workers=1)
    assert result.status is Status.OPTIMAL


def test_memory_is_what_it_rests_on(from_work: None) -> None:
    bounds = []
    for limit in (16, 12, 9):
        instance = v_instance(4, 12, (10, 10, 10, 0), plain_memory(limit))
        bounds.append(energetic_bound(instance, 10_000, UNLIMITED.within(60)).value)
    assert bounds[0] == largest_work(instance) < bounds[1] < bounds[2]
    assert ramps_bound(instance).value < bounds[2]
