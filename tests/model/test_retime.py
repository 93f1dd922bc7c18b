"""Re-timing: optimal start times of an order, against an independent linear program's dual."""

from dataclasses import replace

import numpy as np
from helpers.cases import instances, random_order
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import Instance, Objective, OpKind, Order, retime, simulate, validate
from tightpipe.model.metrics import cost, device_spans
from tightpipe.model.simulate import Simulation
from tightpipe.model.simulate_kernel import NO_PATH


def arcs(instance: Instance, order: Order) -> list[tuple[int, int, int]]:
    """Return (i, j, lag): operation j starts at least `lag` after operation i starts."""
    rows = {tuple(op): i for i, op in enumerate(order.operations.tolist())}
    found = []
    for (kind, stage, m), j in rows.items():
        device = instance.device(stage, m)
        if kind == OpKind.F and stage:
            before = (OpKind.F, stage - 1, m)
        elif kind == OpKind.B and stage == instance.stages - 1:
            before = (OpKind.F, stage, m)
        elif kind == OpKind.B:
            before = (OpKind.B, stage + 1, m)
        elif kind == OpKind.W:
            before = (OpKind.B, stage, m)
        else:
            before = None
        if before:
            sender = instance.device(before[1], m)
            found.append((rows[before], j, instance.duration(*before[:2]) + instance.comm(sender, device)))
    for d in range(order.devices):
        first, end = int(order.offsets[d]), int(order.offsets[d + 1])
        for i in range(first, end - 1):
            found.append((i, i + 1, instance.duration(*order.operations[i, :2].tolist())))
    return found


def spans_at_most(instance: Instance, order: Order, target: int) -> bool:
    """Bellman-Ford on all operations: is there a schedule whose every device span is at most `target`?"""
    edges = arcs(instance, order)
    for d in range(order.devices):
        first, last = int(order.offsets[d]), int(order.offsets[d + 1]) - 1
        edges.append((last, first, instance.duration(*order.operations[last, :2].tolist()) - target))
    start = [0] * len(order)
    for _ in range(len(order) + 1):
        changed = False
        for i, j, lag in edges:
            if start[j] < start[i] + lag:
                start[j] = start[i] + lag
                changed = True
        if not changed:
            return True
    return False


@given(instances(), st.integers(0, 999))
def test_no_times_of_the_same_order_cost_less(instance: Instance, seed: int) -> None:
    order = random_order(instance, seed)
    schedule = retime(instance, order)
    assert schedule.order == order
    assert {v.rule for v in validate(instance, schedule)} <= {"memory_limit"}
    earliest = simulate(instance, order)
    assert cost(schedule) <= cost(earliest)
    if instance.objective is Objective.DEVICE_SPAN:
        best = int(device_spans(schedule).max())
        assert spans_at_most(instance, order, best)
        assert not spans_at_most(instance, order, best - 1)
    else:
        assert schedule == earliest


def test_later_first_operations_shorten_spans() -> None:
    """Device 1 gains by waiting for its B: its span shrinks, device 0 is not delayed."""
    instance = Instance.uniform(
        devices=2, microbatches=1, forward=[1, 1], backward=[1, 1], weight=[1, 9], comm=5, placement="linear"
    )
    order = Order.parse("F0.0 B0.0 W0.0\nF1.0 B1.0 W1.0")
    assert cost(simulate(instance, order)) == cost(retime(instance, order)) == 15
    loop = Instance.uniform(
        devices=2, microbatches=1, forward=[1, 1, 9, 1], backward=1, weight=1, placement="loop"
    )
    order = Order.parse("F0.0 F2.0 B2.0 W2.0 B0.0 W0.0\nF1.0 F3.0 B3.0 W3.0 B1.0 W1.0")
    assert cost(simulate(loop, order)) == 17
    assert cost(retime(loop, order)) == 17
    two = Instance.uniform(
        devices=2, microbatches=2, forward=[9, 1], backward=1, weight=1, placement="linear"
    )
    order = Order.parse("F0.0 F0.1 B0.0 W0.0 B0.1 W0.1\nF1.0 F1.1 B1.0 W1.0 B1.1 W1.1")
    assert device_spans(simulate(two, order)).tolist() == [24, 14]
    assert device_spans(retime(two, order)).max() == 24


@given(instances(), st.integers(0, 99), st.integers(0, 30))
def test_the_longest_paths_are_the_delays_that_a_late_device_causes(
    instance: Instance, seed: int, occupancy: int
) -> None:
    """If one device begins after all operations, what moves lies on a path from it, by the path's length."""
    instance = replace(instance, costs=replace(instance.costs, link_occupancy=occupancy))
    order = random_order(instance, seed)
    simulation = Simulation(instance, order)
    earliest, sequence = simulation.run_in_sequence(np.zeros(instance.devices, np.int64))
    to_first, to_last = simulation.longest_paths(sequence)
    horizon = int(earliest.end.max()) + 1
    firsts, lasts = order.offsets[:-1], order.offsets[1:] - 1
    for device in range(instance.devices):
        late = simulate(instance, order, [horizon * (device == d) for d in range(instance.devices)])
        first, last = late.start[firsts] - horizon, late.end[lasts] - horizon
        assert to_first[device].tolist() == np.where(first >= 0, first, NO_PATH).tolist()
        assert to_last[device].tolist() == np.where(last > 0, last, NO_PATH).tolist()
