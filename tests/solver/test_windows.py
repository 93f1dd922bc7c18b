"""Windows hold: every schedule lies inside the windows of its own cost, however they were shaved."""

from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from helpers.brute_force import optimum
from helpers.cases import instances, random_order, serial_order, uniform
from helpers.exact_cases import (
    TINY_SHAPES,
    plain_memory,
    table_memory,
    tiny_instance,
    v_instance,
    with_busy_links,
)
from helpers.schedules import schedules_of
from helpers.small_instances import known_optima, small_instance
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Objective, OpKind, Order, Schedule, retime, simulate, validate
from tightpipe.base.errors import DeadlockError
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.graph_arrays import beside
from tightpipe.model.metrics import cost
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.settings import load_settings
from tightpipe.solver.engine.run import in_queue_order
from tightpipe.solver.queues import queues_of, words_of
from tightpipe.solver.windows import Shaver, Windows, windows_of
from tightpipe.solver.windows.window_state_kernel import STEPS, copy_of, open_state, under_horizon


def item_starts(schedule: Schedule) -> np.ndarray:
    """Start times by item, from the start of the anchor's frame: the k-th of a queue is its k-th in time."""
    instance = schedule.instance
    queues = queues_of(instance)
    first = np.cumsum([0, *(queue.count for queue in queues.queues)])
    starts, done = np.zeros(first[-1], int), [0] * len(queues.queues)
    order = schedule.order
    for device, word in enumerate(words_of(queues, order)):
        for q, start in zip(word, schedule.start[order.rows(device)].tolist(), strict=True):
            starts[first[q] + done[q]] = start
            done[q] += 1
    if instance.objective is Objective.MAKESPAN:
        return starts - starts.min()
    return starts - schedule.start[order.rows(instance.placement.routes[0][0])].min()


def assert_contains(windows: Windows, schedule: Schedule) -> None:
    """The schedule costs no more than the windows' horizon."""
    graph, starts = windows.arrays.graph, item_starts(schedule)
    assert np.all(windows.earliest <= starts)
    assert np.all(starts <= windows.latest)
    for item, (queue, others) in enumerate(zip(graph.queue, beside(graph), strict=True)):
        for k, other in enumerate(others):
            if other >= 0 and other != queue:
                preceding = int((starts[graph.first[other] : graph.first[other + 1]] < starts[item]).sum())
                assert windows.before[item, k] <= preceding <= windows.after[item, k]


@lru_cache(maxsize=64)
def narrowed(instance: Instance, horizon: int) -> tuple[Windows, Windows]:
    """Windows before and after shaving, once for all schedules of an instance that cost the same."""
    windows = windows_of(queues_of(instance), horizon)
    assert windows.feasible
    shaved = replace(windows, state=copy_of(windows.state))
    assert Shaver(shaved).run(UNLIMITED) is False
    return windows, shaved


def small_and_busy(most_microbatches: int) -> st.SearchStrategy[Instance]:
    """Links may be busy; so few operations that shaving to the very end takes a tenth of a second.

    Of `wave`, that leaves three microbatches on one device, and one on more; `WAVES` and others are larger.
    """
    return instances(3, most_microbatches, most_occupancy=20, most_operations=42)


WAVES = with_busy_links(uniform(2, 2, (7, 9, 4), comm=2, placement="wave", memory=plain_memory(24)), 5)


def check(instance: Instance, schedule: Schedule) -> None:
    assert validate(instance, schedule) == []
    for windows in narrowed(instance, cost(schedule)):
        assert_contains(windows, schedule)


@settings(max_examples=80, deadline=None)
@given(small_and_busy(3), st.integers(0, 2**16))
def test_schedules_lie_inside_the_windows_of_their_cost(instance: Instance, seed: int) -> None:
    for schedule in sorted(schedules_of(instance, seed), key=cost)[:3]:
        check(instance, schedule)


@settings(max_examples=80, deadline=None)
@given(small_and_busy(4), st.integers(0, 2**16))
@example(WAVES, 0)
@example(WAVES, 1)
def test_schedules_that_are_not_first_in_first_out_lie_inside_too(instance: Instance, seed: int) -> None:
    """Microbatches overtake each other, devices start late, and the times stay as they are."""
    late = np.random.default_rng(seed).integers(0, 30, instance.devices)
    serial = simulate(instance, serial_order(instance), late)
    for schedule in (simulate(instance, random_order(instance, seed), late), shuffled(serial, seed, 40)):
        if validate(instance, schedule) == []:
            check(instance, schedule)


@pytest.mark.parametrize(
    ("devices", "microbatches", "occupancy", "objective"),
    [
        *((3, 2, 0, "device_span"), (3, 2, 2, "makespan"), (3, 3, 2, "device_span")),
        *((3, 2, 16, "makespan"), (2, 3, 16, "makespan")),
    ],
)
def test_schedules_of_four_stages_per_device_lie_inside(
    devices: int, microbatches: int, occupancy: int, objective: str
) -> None:
    waves = uniform(
        *(devices, microbatches, (7, 9, 4)),
        comm=2,
        placement="wave",
        memory=plain_memory(12),
        objective=objective,
    )
    instance = with_busy_links(waves, occupancy)
    schedules = [
        retime(instance, order) for order in (HEURISTICS["list"].order(instance), serial_order(instance))
    ]
    check(instance, min(map(in_queue_order, schedules), key=cost))


@pytest.mark.parametrize("seed", range(4))
def test_a_shuffled_heuristic_lies_inside(seed: int) -> None:
    instance = v_instance(3, 5, (10, 14, 8, 2), plain_memory(12))
    schedule = shuffled(retime(instance, HEURISTICS["greedy-v"].order(instance)), seed, 300)
    assert schedule.order != in_queue_order(schedule).order
    check(instance, schedule)


def shuffled(schedule: Schedule, seed: int, swaps: int) -> Schedule:
    """Try to swap neighbours of a device at random, and keep what gives a valid schedule."""
    random, instance = np.random.default_rng(seed), schedule.instance
    for _ in range(swaps):
        lists = schedule.order.to_lists()
        device = lists[random.integers(instance.devices)]
        k = int(random.integers(len(device) - 1))
        device[k], device[k + 1] = device[k + 1], device[k]
        try:
            swapped = simulate(instance, Order.from_lists(lists))
        except DeadlockError:
            continue
        if validate(instance, swapped) == []:
            schedule = swapped
    return schedule


@pytest.mark.sampled(5)
@pytest.mark.parametrize("objective", ["device_span", "makespan"])
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("shape", TINY_SHAPES, ids=lambda shape: "-".join(map(str, shape)))
@pytest.mark.parametrize("seed", range(6))
def test_the_optimum_is_never_refuted(
    shape: tuple[str, int, int], objective: str, limited: bool, seed: int
) -> None:
    instance = tiny_instance(shape, seed, objective, limited=limited)
    windows = windows_of(queues_of(instance), optimum(instance))
    assert Shaver(windows).run(UNLIMITED) is False


@pytest.mark.parametrize("threads", [1, 2])
def test_windows_of_a_real_schedule_at_scale(threads: int) -> None:
    instance = load_settings()["6.2B-8x24"].instance()
    schedule = in_queue_order(retime(instance, HEURISTICS["greedy-v"].order(instance)))
    windows = windows_of(queues_of(instance), cost(schedule))
    shaver = Shaver(windows, threads)
    shaver.sweep(UNLIMITED)
    assert shaver.feasible
    assert_contains(windows, schedule)


@pytest.mark.parametrize(
    ("devices", "microbatches", "bubble"),
    [(4, 12, 4), (5, 10, 6), (6, 18, 8), (8, 16, 12), (8, 24, 12), (12, 24, 20)],
)
def test_shaving_alone_proves_optima(devices: int, microbatches: int, bubble: int) -> None:
    instance = v_instance(devices, microbatches, (3, 3, 2, 0), table_memory(devices))
    shaver = Shaver(windows_of(queues_of(instance), instance.work(0) + bubble - 1))
    assert shaver.run(UNLIMITED) is True


class Forgetful(Shaver):
    """Looks at every item again in each sweep, to the last one, whatever is known of it."""

    def sweep(self, budget: Budget) -> bool:
        ended = super().sweep(budget)
        self.exhausted[:] = False
        return ended


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_exhausted_is_passed_over_without_loss(threads: int) -> None:
    worked, ended_early = {Shaver: 0, Forgetful: 0}, 0
    for line, room in product(known_optima()[5::200], (-1, 0, 3)):
        queues, found = queues_of(small_instance(line.seed)), []
        for kind in worked:
            windows = windows_of(queues, line.optimum + room)
            shaver = kind(windows, threads)
            found.append((shaver.run(UNLIMITED), windows.state.value.tolist()))
            worked[kind] += windows.state.counter[STEPS]
            ended_early += shaver.feasible and shaver.exhausted.all()
        assert found[0] == found[1], (line, room)
    assert ended_early
    assert worked[Shaver] < 0.6 * worked[Forgetful]


def test_a_decision_ends_what_is_known_of_other_items() -> None:
    instance = v_instance(2, 4, (10, 12, 8, 1), plain_memory(8))
    shaver = Shaver(windows_of(queues_of(instance), instance.work(0) + 8))
    before = shaver.windows.undecided
    assert shaver.sweep(UNLIMITED)
    assert shaver.windows.undecided < before
    assert not shaver.exhausted.any()
    assert shaver.run(UNLIMITED) is False
    assert shaver.exhausted.all()


def test_orders_of_one_microbatch_are_decided_by_way_of_other_devices() -> None:
    queues = queues_of(v_instance(3, 4, (10, 12, 8, 1), table_memory(3)))
    arrays = under_horizon(queues.instance, 500)
    windows = Windows(500, arrays, True, open_state(arrays, 500))
    down, up, back = (queues.index[key] for key in ((OpKind.F, 0, 0), (OpKind.F, 0, 5), (OpKind.B, 0, 0)))
    first, local = arrays.graph.first, arrays.graph.queues["local"]
    items = [slice(first[q], first[q + 1]) for q in (down, up, back)]
    assert windows.after[items[0], local[up]].tolist() == [0, 1, 2, 3]
    assert windows.before[items[1], local[down]].tolist() == [1, 2, 3, 4]
    assert windows.before[items[2], local[up]].tolist() == [1, 2, 3, 4]


def test_wider_windows_are_a_start_with_the_same_end() -> None:
    instance = v_instance(4, 10, (10, 16, 9, 1), table_memory(4))
    queues, horizon = queues_of(instance), instance.work(0) + 80
    fresh = windows_of(queues, horizon)
    begun = windows_of(queues, horizon, wider=windows_of(queues, horizon + 30))
    assert (begun.state.value == fresh.state.value).all()
    assert begun.state.counter[STEPS] < fresh.state.counter[STEPS]


def test_first_elements_open_their_devices() -> None:
    instance = v_instance(3, 6, (10, 12, 8, 1), table_memory(3))
    windows = windows_of(queues_of(instance), instance.work(0) + 40)
    first = queues_of(instance).index[OpKind.F, 0, 0]
    assert (
        windows.earliest[windows.arrays.graph.first[first]]
        == windows.latest[windows.arrays.graph.first[first]]
        == 0
    )


def test_messages_that_wait_for_each_other_arrive_later() -> None:
    free = Instance.uniform(
        devices=2, microbatches=4, forward=2, backward=3, weight=1, comm=1, placement="linear"
    )
    busy = with_busy_links(free, 10)
    queues, horizon = queues_of(busy), 200
    arrives, sends = queues.index[OpKind.F, 0, 1], queues.index[OpKind.F, 0, 0]
    begun, windows = (windows_of(queues_of(instance), horizon) for instance in (free, busy))
    first = windows.arrays.graph.first
    assert begun.earliest[first[arrives] : first[arrives + 1]].tolist() == [3, 5, 7, 9]
    assert windows.earliest[first[arrives] : first[arrives + 1]].tolist() == [3, 13, 23, 33]
    last = first[sends + 1] - 1
    due = windows.latest[first[arrives + 1] - 1] - 1
    assert windows.latest[last] == due - 2
    assert windows.latest[last - 2] == due - 20 - 2
