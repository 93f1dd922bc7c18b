"""Simulation: earliest times, memory, deadlocks."""

import numpy as np
import pytest
from helpers.cases import instances, random_order, serial_order, wide_instances
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import DeadlockError, InputError, Instance, Memory, OpKind, Order, simulate, validate
from tightpipe.model.simulate import memory_trace

TWO = Instance.uniform(
    devices=2,
    microbatches=2,
    forward=10,
    backward=12,
    weight=8,
    comm=1,
    placement="linear",
    memory=Memory(5, -3, -2, 10),
)
ORDER = Order.parse("F0.0 F0.1 B0.0 W0.0 B0.1 W0.1\nF1.0 B1.0 F1.1 B1.1 W1.0 W1.1")


def test_earliest_times_by_hand() -> None:
    schedule = simulate(TWO, ORDER)
    assert schedule.start.tolist() == [0, 10, 34, 46, 56, 68, 11, 21, 33, 43, 55, 63]
    assert schedule.end.tolist() == [10, 20, 46, 54, 68, 76, 21, 33, 43, 55, 63, 71]


def test_memory_counts_f_from_its_start_and_b_and_w_until_their_end() -> None:
    assert memory_trace(TWO, ORDER).tolist() == [5, 10, 10, 7, 5, 2, 5, 5, 7, 7, 4, 2]


def test_release_delays_a_device_and_what_waits_for_it() -> None:
    late = simulate(TWO, ORDER, np.array([0, 20]))
    assert late.start.tolist()[6:] == [20, 30, 42, 52, 64, 72]


def test_fused_backward_stands_for_b_and_w() -> None:
    order = Order.parse("F0.0 F0.1 BW0.0 BW0.1\nF1.0 BW1.0 F1.1 B1.1 W1.1")
    schedule = simulate(TWO, order)
    assert schedule.start.tolist() == [0, 10, 42, 64, 11, 21, 41, 51, 63]
    assert validate(TWO, schedule) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "F0.0 B0.0 F0.1 W0.0 B0.1 W0.1\nF1.1 F1.0 B1.0 B1.1 W1.0 W1.1",
            ["B0.0", "F1.0 waits for F1.1", "F0.1 waits for B0.0"],
        ),
        ("W0.0 F0.0 B0.0 F0.1 B0.1 W0.1\nF1.0 B1.0 F1.1 B1.1 W1.0 W1.1", ["W0.0 waits for B0.0"]),
        (
            "F0.0 B0.0 F0.1 W0.0 B0.1 W0.1\nF1.1 F1.0 B1.1 W1.0 W1.1",
            ["B0.0 waits for B1.0, which no device runs"],
        ),
    ],
)
def test_deadlock_names_who_waits_for_whom(text: str, words: list[str]) -> None:
    with pytest.raises(DeadlockError) as error:
        simulate(TWO, Order.parse(text))
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize(
    "text",
    ["F0.0 F0.0\nF1.0", "F2.0\nF1.0", "F0.2\nF1.0", "F0.0"],
    ids=["twice", "stage", "microbatch", "devices"],
)
def test_operations_that_the_instance_has_not_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        simulate(TWO, Order.parse(text))


@given(st.one_of(instances(), wide_instances()), st.integers(0, 99))
def test_every_simulated_order_is_valid_but_for_memory(instance: Instance, seed: int) -> None:
    schedule = simulate(instance, random_order(instance, seed))
    assert {v.rule for v in validate(instance, schedule)} <= {"memory_limit"}


@given(st.one_of(instances(), wide_instances()))
def test_the_serial_order_fits_every_feasible_limit(instance: Instance) -> None:
    assert instance.infeasibility() is None
    assert validate(instance, simulate(instance, serial_order(instance))) == []


@given(st.one_of(instances(), wide_instances()), st.integers(0, 99))
def test_memory_trace_agrees_with_a_walk_over_the_events(instance: Instance, seed: int) -> None:
    order = random_order(instance, seed)
    expected = []
    for operations in order.to_lists():
        held = 0
        for kind, stage, _ in operations:
            held += instance.memory_delta(kind, stage) if kind is OpKind.F else 0
            expected.append(held + (instance.memory_while_running(stage) if kind is OpKind.F else 0))
            held += 0 if kind is OpKind.F else instance.memory_delta(kind, stage)
    assert memory_trace(instance, order).tolist() == expected


@pytest.mark.parametrize(
    "joined", [[0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]], ids=["last", "no backward", "device"]
)
def test_only_an_f_and_a_backward_of_one_device_run_together(joined: list[int]) -> None:
    operations = np.array([(0, 0, 0), (0, 0, 1), (3, 1, 0), (0, 1, 0)])
    with pytest.raises(InputError, match="runs together with the next operation of its device"):
        simulate(TWO, Order(operations, np.array([0, 2, 4]), np.array(joined)))
