"""Schedules under noise: against a slow reference, without noise, with common random numbers, and along critical paths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.cases import instances, random_order, serial_order, uniform
from helpers.copies import offloading, order_with_copies
from helpers.noise_reference import Sample
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Operation, OpKind, Order, Schedule, retime, solve
from tightpipe.model.costs import MicrobatchSlice, Step
from tightpipe.model.metrics import busy_times, cost
from tightpipe.noise import Bursts, Jitter, NoiseModel, SlowDevice, Slowdown, SlowLink, Stall, run_noisy
from tightpipe.noise.models import BLOCK
from tightpipe.noise.noisy import draw_times
from tightpipe.registry.starts import warm_starts

V = uniform(4, 6, (10, 12, 8), comm=3, placement="v")
MODELS: tuple[NoiseModel, ...] = (
    Jitter(0.3),
    SlowDevice(0, 1.3),
    SlowLink(1, 2, Slowdown(ticks=5.0)),
    Bursts(0, 1, 0.3, 2.0, Slowdown(4.0)),
    Stall(None, 40.0),
)


def fused(order: Order) -> Order:
    """Every W that follows its B becomes a part of it."""
    devices: list[list[Operation]] = []
    for device in order.to_lists():
        mine: list[Operation] = []
        for op in device:
            if op.kind is OpKind.W and mine and mine[-1] == Operation(OpKind.B, op.stage, op.microbatch):
                mine[-1] = Operation(OpKind.BW, op.stage, op.microbatch)
            else:
                mine.append(op)
        devices.append(mine)
    return Order.from_lists(devices)


def assert_as_the_reference(schedule: Schedule, models: tuple[NoiseModel, ...], seed: int) -> None:
    (found,) = run_noisy([schedule], models, samples=BLOCK + 3, seed=seed)
    assert (found.busy <= found.costs + 1e-6).all()
    for sample in range(BLOCK + 3):
        times = draw_times(schedule.instance, models, seed, sample // BLOCK)
        assert found.costs[sample] == pytest.approx(Sample(schedule, times, sample % BLOCK).cost, rel=1e-12)


@pytest.mark.parametrize("models", [(), (Jitter(0.0),)])
def test_an_empty_stage_takes_no_time_under_noise(models: tuple[NoiseModel, ...]) -> None:
    relay = uniform(*(3, 2, ([5, 0, 7], [6, 0, 8], [4, 0, 3])), comm=2, placement="linear")  # type: ignore[arg-type]
    schedule = retime(relay, serial_order(relay))
    (found,) = run_noisy([schedule], models, samples=2, seed=0)
    assert found.costs.tolist() == [cost(schedule)] * 2


@settings(max_examples=60)
@given(
    instances(max_devices=3, max_microbatches=4, most_occupancy=6, most_operations=90),
    st.integers(0, 2**31 - 1),
)
def test_costs_are_those_of_a_slow_simulator(instance: Instance, seed: int) -> None:
    order = random_order(instance, seed)
    schedule = retime(instance, fused(order) if seed % 2 else order)
    models: tuple[NoiseModel, ...] = (Jitter(0.2), SlowDevice(0, 1.5), Stall(None, 17.0))
    if instance.devices > 1:
        models = (*models, SlowLink(0, 1, Slowdown(ticks=3.0)), Bursts(1, 0, 0.4, 2.0, Slowdown(ticks=9.0)))
    assert_as_the_reference(schedule, models, seed)


@pytest.mark.parametrize("overlapped", [None, 17, 40])
@pytest.mark.parametrize("objective", ["device_span", "makespan"])
def test_pairs_take_their_time_in_proportion(overlapped: int | None, objective: str) -> None:
    instance = uniform(
        4,
        8,
        (10, 12, 8),
        comm=2,
        placement="bidirectional",
        overlapped=overlapped,
        objective=objective,
        link_occupancy=9,
    )
    paired = [s for _, s in warm_starts(instance) if s.order.pairs.any()]
    assert paired
    for schedule in paired:
        assert_as_the_reference(schedule, (Jitter(0.2), Stall(1, 30.0)), 1)


@settings(max_examples=60)
@given(instances(most_occupancy=6), st.integers(0, 1000))
def test_without_noise_the_cost_is_that_of_the_schedule(instance: Instance, seed: int) -> None:
    schedule = retime(instance, random_order(instance, seed))
    (found,) = run_noisy([schedule], (), samples=2)
    assert found.costs.tolist() == [cost(schedule)] * 2
    assert found.planned == cost(schedule)
    assert found.busy.tolist() == [busy_times(schedule).max()] * 2
    assert found.delay.tolist() == found.message_delay.tolist() == [0.0] * len(schedule.order)


def test_the_result_does_not_depend_on_threads_and_fewer_samples_are_the_first_ones() -> None:
    schedule = warm_starts(V)[0][1]
    many, one = (run_noisy([schedule], MODELS, samples=100, seed=3, workers=w)[0] for w in (3, 1))
    few = run_noisy([schedule], MODELS, samples=40, seed=3)[0]
    other = run_noisy([schedule], MODELS, samples=40, seed=4)[0]
    assert many.costs.tolist() == one.costs.tolist()
    assert many.delay.tolist() == one.delay.tolist()
    assert few.costs.tolist() == many.costs[:40].tolist()
    assert not set(few.costs.tolist()) & set(other.costs.tolist())


def test_an_operation_takes_the_same_time_in_every_schedule() -> None:
    instance = uniform(2, 3, (10, 12, 8), comm=1, placement="linear", objective="makespan")
    text = "F0.0 F0.1 F0.2 B0.0 W0.0 B0.1 W0.1 B0.2 W0.2\nF1.0 B1.0 F1.1 B1.1 F1.2 B1.2 W1.0 W1.1 W1.2"
    orders = Order.parse(text), Order.parse(text.replace("W1.0 W1.1", "W1.1 W1.0"))  # of equal sums
    one, other = run_noisy([retime(instance, order) for order in orders], (Jitter(0.4),), samples=64)
    assert other.costs == pytest.approx(one.costs, rel=1e-12)
    assert one.costs.std() > 1.0


def test_a_fused_backward_takes_its_b_and_its_w() -> None:
    instance = uniform(1, 3, (10, 12, 8), placement="linear")
    order = Order.parse("F0.0 B0.0 W0.0 F0.1 B0.1 W0.1 F0.2 B0.2 W0.2")
    one, other = run_noisy([retime(instance, o) for o in (order, fused(order))], (Jitter(0.4),), samples=64)
    assert len(other.critical) == 6
    assert other.costs == pytest.approx(one.costs, rel=1e-12)


def test_a_further_model_leaves_the_random_numbers_of_the_others_alone() -> None:
    jittered, slowed = (
        draw_times(V, models, 5, 0) for models in ((Jitter(0.1),), (Jitter(0.1), SlowDevice(1, 2.0)))
    )
    on_one = np.array([[V.device(s, m) == 1 for m in range(V.microbatches)] for s in range(V.stages)])
    assert np.array_equal(slowed.duration[:, ~on_one], jittered.duration[:, ~on_one])
    assert np.array_equal(slowed.duration[:, on_one], 2.0 * jittered.duration[:, on_one])


def test_the_slices_of_a_microbatch_share_its_bursts() -> None:
    instance = uniform(4, 6, (10, 12, 8), comm=3, placement="v", slices=[MicrobatchSlice()] * 2)
    lag = draw_times(instance, [Bursts(0, 1, 0.3, 2.0, Slowdown(4.0))], 5, 0).lag
    slices = lag.reshape(2, instance.stages, 6, 2, BLOCK)
    assert np.array_equal(slices[..., 0, :], slices[..., 1, :])
    assert set(np.unique(slices[OpKind.F, 1])) == {3.0, 12.0}


def test_the_critical_path_of_a_chain_is_the_chain() -> None:
    instance = uniform(2, 1, (10, 12, 8), comm=1, placement="linear", objective="makespan")
    order = Order.parse("F0.0 B0.0 W0.0\nF1.0 B1.0 W1.0")
    (found,) = run_noisy(
        [retime(instance, order)], (SlowLink(0, 1, Slowdown(3.0)), SlowDevice(1, 1.5)), samples=5
    )
    assert found.critical.tolist() == [1.0, 1.0, 1.0, 1.0, 1.0, 0.0]
    assert found.message_critical.tolist() == [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]
    assert found.delay.tolist() == [0.0, 0.0, 0.0, 5.0, 6.0, 0.0]
    assert found.message_delay.tolist() == [0.0, 0.0, 0.0, 2.0, 0.0, 0.0]
    assert found.costs.tolist() == [found.planned + 13.0] * 5


@settings(max_examples=40)
@given(instances(most_occupancy=0), st.integers(0, 1000))
def test_what_enters_along_the_critical_path_explains_the_makespan(instance: Instance, seed: int) -> None:
    """Durations and messages of the path sum to the cost, sample by sample."""
    instance = replace(instance, objective="makespan")
    schedule = retime(instance, random_order(instance, seed))
    (found,) = run_noisy([schedule], (Jitter(0.3),), samples=1, seed=seed)
    durations = [instance.duration(OpKind(k), s) for k, s, _ in schedule.order.operations.tolist()]
    lags = [message_ticks(instance, schedule.order.operation_at(row)) for row in range(len(schedule.order))]
    path = found.critical @ durations + found.message_critical @ lags
    assert path + found.delay.sum() + found.message_delay.sum() == pytest.approx(found.costs[0])


def message_ticks(instance: Instance, op: Operation) -> int:
    behind = op.stage + (-1 if op.kind is OpKind.F else 1)
    if op.kind is OpKind.W or not 0 <= behind < instance.stages:
        return 0
    return instance.comm(instance.device(behind, op.microbatch), instance.device(op.stage, op.microbatch))


def test_a_stall_while_the_device_waits_costs_nothing() -> None:
    instance = uniform(2, 1, (10, 12, 8), comm=200, placement="linear", objective="makespan")
    schedule = solve(instance, "1f1b").schedule
    assert schedule is not None
    found = run_noisy([schedule], (Stall(0, 20.0),), samples=300)[0]
    waits = np.isclose(found.costs, found.planned)
    assert 0.5 < waits.mean() < 1.0
    assert found.costs[~waits].min() > found.planned
    assert found.costs.max() <= found.planned + 20.0


def test_schedules_of_different_instances_are_refused() -> None:
    other = uniform(4, 6, (10, 12, 9), comm=3, placement="v")
    with pytest.raises(InputError, match="same instance"):
        run_noisy([warm_starts(V)[0][1], warm_starts(other)[0][1]], ())


@pytest.mark.parametrize(
    ("samples", "seed", "key"), [(0, 0, "samples"), (10**6 + 1, 0, "samples"), (1, -1, "seed")]
)
def test_numbers_out_of_range_are_refused(samples: int, seed: int, key: str) -> None:
    with pytest.raises(InputError, match=key):
        run_noisy([warm_starts(V)[0][1]], (), samples=samples, seed=seed)


@pytest.mark.parametrize("step", [None, Step(ready=[0, 9, 4, 30], reduce=[40, 0, 25, 60], optimizer=[5, 0])])
@pytest.mark.parametrize("placement", ["v", "loop"])
def test_a_step_ends_when_the_last_device_has_reduced_and_updated(step: Step | None, placement: str) -> None:
    instance = uniform(2, 4, (10, 12, 8), comm=3, placement=placement, objective="step", step=step)
    for _, schedule in warm_starts(instance)[:3]:
        assert_as_the_reference(schedule, (Jitter(0.3), Stall(None, 25.0)), 7)
        (found,) = run_noisy([schedule], [Jitter(0.0)], samples=3)
        assert set(found.costs.tolist()) == {found.planned} == {cost(schedule)}


def test_the_critical_path_of_a_step_ends_where_the_longest_reduction_begins() -> None:
    """Stage 0, on device 0, is reduced for so long that nothing behind its last operation matters."""
    step = Step(ready=0, reduce=[1000, 0, 0, 0], optimizer=0)
    instance = uniform(2, 4, (10, 12, 8), placement="v", objective="step", step=step)
    schedule = retime(instance, warm_starts(instance)[0][1].order)
    (found,) = run_noisy([schedule], [Jitter(0.1)], samples=20)
    operations = schedule.order.to_lists()[0]
    last = max(k for k, op in enumerate(operations) if op.stage == 0)
    assert found.critical[last] == 1.0
    assert not found.critical[last + 1 : len(operations)].any()


@settings(max_examples=40, deadline=None)
@given(
    instances(max_devices=3, max_microbatches=3), st.integers(0, 999), st.sampled_from(["makespan", "step"])
)
def test_copies_wait_for_slow_operations_and_take_their_planned_ticks(
    instance: Instance, seed: int, objective: str
) -> None:
    instance = replace(offloading(instance, seed), objective=objective)
    schedule = retime(instance, order_with_copies(instance, seed, pairs=False))
    (found,) = run_noisy([schedule], [SlowDevice(d, 2.0) for d in range(instance.devices)], samples=2)
    given = {key: getattr(instance.costs, key) for key in ("forward", "backward", "weight", "fused")}
    slow = {key: [2 * ticks for ticks in stages] for key, stages in given.items() if stages is not None}
    slower = retime(replace(instance, costs=replace(instance.costs, **slow)), schedule.order)
    assert found.costs.tolist() == [cost(slower)] * 2
    assert found.busy.tolist() == [busy_times(slower.without_copies()).max()] * 2
    assert found.planned == cost(schedule)
