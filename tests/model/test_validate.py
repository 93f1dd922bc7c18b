"""Every rule of the validator has a schedule that breaks only it."""

from __future__ import annotations

import dataclasses
import re

import pytest
from helpers.cases import instances, random_order, serial_order, uniform
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import (
    DeadlockError,
    InputError,
    Instance,
    Memory,
    Offload,
    Operation,
    Order,
    Schedule,
    retime,
    simulate,
    validate,
)
from tightpipe.model.costs import MicrobatchSlice, Step
from tightpipe.model.metrics import bubble, cost
from tightpipe.model.validate import RULES

INSTANCE = uniform(2, 2, (4, 5, 3), comm=1, placement="v", memory=Memory(5, -3, -2, 10))
VALID = simulate(INSTANCE, serial_order(INSTANCE))
Times = dict[str, tuple[int, int]]


def edited(change: Times, drop: tuple[str, ...] = (), move: dict[str, int] | None = None) -> Schedule:
    """Return VALID with other times, without some operations, or with some on another device."""
    devices: list[list[tuple[Operation, int, int]]] = [[] for _ in range(INSTANCE.devices)]
    for device, operations in enumerate(VALID.order.to_lists()):
        rows = VALID.order.rows(device)
        for op, start, end in zip(
            operations, VALID.start[rows].tolist(), VALID.end[rows].tolist(), strict=True
        ):
            if str(op) not in drop:
                times = change.get(str(op), (start, end))
                devices[(move or {}).get(str(op), device)].append((op, *times))
    for entries in devices:
        entries.sort(key=lambda entry: entry[1:])
    flat = [entry for entries in devices for entry in entries]
    order = Order.from_lists([[op for op, _, _ in entries] for entries in devices])
    return Schedule(INSTANCE, order, [s for _, s, _ in flat], [e for _, _, e in flat])  # type: ignore[arg-type]


def times(text: str) -> tuple[int, int]:
    row = [str(op) for ops in VALID.order.to_lists() for op in ops].index(text)
    return int(VALID.start[row]), int(VALID.end[row])


def shifted(text: str, by: int) -> Times:
    start, end = times(text)
    return {text: (start + by, end + by)}


def overlapping() -> Schedule:
    """Two W's of one device at once: no rule but the device itself keeps them apart."""
    start, _ = times("W0.1")
    return edited({"W3.1": (start + 1, start + 4)})


def turned_early() -> Schedule:
    """B of the last stage and its F, which lie back to back, change places."""
    start, end = times("F3.1")[0], times("B3.1")[1]
    return edited({"B3.1": (start, start + 5), "F3.1": (end - 4, end)})


TWO_ITERATIONS = Instance.uniform(
    devices=1, microbatches=2, forward=4, backward=5, weight=3, placement="linear", iterations=2
)


def crowded_link() -> Schedule:
    """Two F's of one device in a row, whose messages the link cannot carry that fast."""
    busy = Instance.uniform(
        devices=2,
        microbatches=2,
        forward=4,
        backward=5,
        weight=3,
        comm=1,
        placement="linear",
        link_occupancy=6,
    )
    free = dataclasses.replace(busy, costs=dataclasses.replace(busy.costs, link_occupancy=0))
    order = Order.parse("F0.0 F0.1 BW0.0 BW0.1\nF1.0 F1.1 BW1.0 BW1.1")
    schedule = simulate(free, order)
    return Schedule(busy, order, schedule.start, schedule.end)


def mixed_iterations() -> Schedule:
    return simulate(TWO_ITERATIONS, Order.parse("F0.0 F0.1 BW0.0 BW0.1"))


def torn_pair() -> Schedule:
    """F and BW that are said to run together, one after the other."""
    order = Order.parse("F0.0 F0.1+BW0.0 BW0.1")
    one = Instance.uniform(devices=1, microbatches=2, forward=4, backward=5, weight=3, placement="linear")
    return Schedule(one, order, [0, 4, 5, 17], [4, 16, 17, 25])  # type: ignore[arg-type]


def unready() -> Schedule:
    """A schedule that is right for stages that are ready at once."""
    late = dataclasses.replace(INSTANCE, objective="step", step=Step(ready=[1, 0, 0, 0]))
    return Schedule(late, VALID.order, VALID.start, VALID.end)


def swapped_slices() -> Schedule:
    """The F of slice 1 before that of slice 0, at a stage that no other stage waits for."""
    one = Instance.uniform(
        devices=1,
        microbatches=1,
        forward=4,
        backward=0,
        weight=0,
        placement="linear",
        slices=[MicrobatchSlice()] * 2,
    )
    return Schedule(one, Order.parse("F0.0.1 F0.0.0", 2), [0, 4], [4, 8])  # type: ignore[arg-type]


OFFLOADING = Instance.uniform(
    devices=1,
    microbatches=2,
    forward=4,
    backward=5,
    weight=3,
    placement="linear",
    memory=Memory(5, -3, -2),
    offload=Offload(2, 6, 6),
)
COPIED = {
    "F0.0": (0, 4), "F0.1": (4, 8), "O0.0": (4, 10), "O0.1": (10, 16), "L0.0": (10, 16), "L0.1": (16, 22),
    "BW0.0": (16, 24), "BW0.1": (24, 32),
}  # fmt: skip


def copied(change: Times, instance: Instance = OFFLOADING) -> Schedule:
    """Two microbatches whose activations leave and come back, with other times."""
    found = COPIED | change
    order = Order.parse(" ".join(name for name, (start, _) in found.items() if start >= 0))
    kept = [times for times in found.values() if times[0] >= 0]
    return Schedule(instance, order, [s for s, _ in kept], [e for _, e in kept])  # type: ignore[arg-type]


BREAKS = {
    "complete": lambda: edited({}, drop=("W0.1",)),
    "placement": lambda: edited({"W0.1": (100, 103)}, move={"W0.1": 1}),
    "overlap": torn_pair,
    "flush": mixed_iterations,
    "ready": unready,
    "link_capacity": crowded_link,
    "duration": lambda: edited({"W0.1": (times("W0.1")[0], times("W0.1")[1] + 1)}),
    "not_before_zero": lambda: edited({"F0.0": (-1, 3)}),
    "one_at_a_time": overlapping,
    "forward_dependency": lambda: edited(shifted("F1.0", -1)),
    "turning_point": turned_early,
    "backward_dependency": lambda: edited(shifted("B2.0", -1)),
    "weight_dependency": lambda: edited({"W0.1": (times("B0.1")[1] - 8, times("B0.1")[1] - 5)}),
    "slices": swapped_slices,
    "copy_engines": lambda: copied({"O0.1": (9, 15)}),
    "copy_dependency": lambda: copied({"L0.0": (9, 15)}),
    "memory_limit": lambda: edited(shifted("F0.1", times("F0.0")[1] - times("F0.1")[0])),
}


def test_the_base_schedule_is_valid() -> None:
    assert validate(INSTANCE, VALID) == []


def test_every_rule_has_a_breaking_schedule() -> None:
    assert set(BREAKS) == set(RULES)


@pytest.mark.parametrize("rule", BREAKS)
def test_a_schedule_that_breaks_only_this_rule(rule: str) -> None:
    schedule = BREAKS[rule]()
    found = validate(schedule.instance, schedule)
    assert {v.rule for v in found} == {rule}, found


ONE_ENGINE = dataclasses.replace(OFFLOADING, offload=Offload(2, 6, 6, duplex=False))
TIGHT = dataclasses.replace(OFFLOADING, memory=Memory(5, -3, -2, 9))
GONE = (-1, -1)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (copied({"L0.0": GONE}), "complete: O0.0 runs without L0.0"),
        (copied({"O0.1": GONE}), "complete: L0.1 runs without O0.1"),
        (copied({}, dataclasses.replace(OFFLOADING, offload=None)), "complete: O0.0 runs at a stage where"),
        (copied({"O0.0": (3, 9)}), "copy_dependency: O0.0 starts at 3, before F0.0 arrives at 4"),
        (copied({"L0.0": (9, 15)}), "copy_dependency: L0.0 starts at 9, before O0.0 arrives at 10"),
        (copied({"BW0.0": (15, 23)}), "copy_dependency: BW0.0 starts at 15, before L0.0 arrives at 16"),
        (copied({"O0.1": (9, 15)}), "copy_engines: O0.1 starts at 9, before O0.0 on the same device ends at"),
        (
            copied({}, ONE_ENGINE),
            "copy_engines: L0.0 starts at 10, before O0.1 on the same device ends at 16",
        ),
        (copied({"O0.1": (10, 15)}), "duration: O0.1 takes 5 ticks, must take 6"),
        (copied({}, TIGHT), "memory_limit: device 0 holds 10 at time 4, its limit is 9"),
    ],
)
def test_copies_that_break_a_rule(schedule: Schedule, message: str) -> None:
    assert str(validate(schedule.instance, schedule)[0]).startswith(message)


def test_copies_and_computation_run_beside_each_other() -> None:
    assert validate(OFFLOADING, copied({})) == []
    roomy = dataclasses.replace(OFFLOADING, memory=Memory(5, -3, -2, 10))
    assert validate(roomy, copied({})) == []
    twice = Schedule(OFFLOADING, Order.parse("F0.0 O0.0 O0.0"), [0, 4, 10], [4, 10, 16])  # type: ignore[arg-type]
    assert str(validate(OFFLOADING, twice)[0]) == "complete: O0.0 runs 2 times"


def test_a_copy_runs_on_the_device_of_its_stage() -> None:
    two = Instance.uniform(
        devices=2, microbatches=1, forward=4, backward=5, weight=3, placement="linear",
        memory=Memory(5, -3, -2), offload=Offload([2, 0], 1, 1),
    )  # fmt: skip
    order = Order.parse("F0.0 BW0.0\nF1.0 O0.0 L0.0 BW1.0")
    schedule = Schedule(two, order, [0, 16, 4, 4, 5, 8], [4, 24, 8, 5, 6, 16])  # type: ignore[arg-type]
    assert [str(violation) for violation in validate(two, schedule)] == [
        "placement: O0.0 runs on device 1, its stage is on device 0",
        "placement: L0.0 runs on device 1, its stage is on device 0",
    ]


def test_memory_is_freed_before_it_is_taken_at_the_same_time() -> None:
    instance = Instance.uniform(
        devices=1,
        microbatches=2,
        forward=1,
        backward=1,
        weight=1,
        placement="linear",
        memory=Memory(1, 0, -1, 1),
    )
    assert validate(instance, simulate(instance, serial_order(instance))) == []


def test_operations_outside_the_instance_are_reported() -> None:
    schedule = Schedule(INSTANCE, Order.parse("F9.0\nF1.7"), [0, 0], [4, 4])  # type: ignore[arg-type]
    found = [str(v) for v in validate(INSTANCE, schedule)]
    assert found == [
        "complete: F9.0 is no operation of the instance",
        "complete: F1.7 is no operation of the instance",
    ]


def test_the_schedule_is_held_against_the_given_instance() -> None:
    slower = Instance.uniform(devices=2, microbatches=2, forward=5, backward=5, weight=3, comm=1)
    assert "duration" in {v.rule for v in validate(slower, VALID)}


@pytest.mark.parametrize(
    "text", ["F0.0 B0.0+W0.0 F0.1 BW0.1", "F0.0 F0.1+F0.2 BW0.0", "F0.0 B0.0 F0.1+F0.2+BW0.0"]
)
def test_only_an_f_and_a_backward_run_together(text: str) -> None:
    with pytest.raises(InputError, match="run together"):
        Order.parse(text)


def test_a_pair_takes_the_overlapped_time_on_its_device() -> None:
    instance = Instance.uniform(
        devices=1, microbatches=2, forward=4, backward=5, weight=3, placement="linear", overlapped=10
    )
    schedule = simulate(instance, Order.parse("F0.0 F0.1+BW0.0 BW0.1"))
    assert schedule.end.tolist() == [4, 14, 14, 22]
    assert validate(instance, schedule) == []
    assert (cost(schedule), bubble(schedule), instance.work(0)) == (22, 2, 20)
    apart = Instance.uniform(devices=1, microbatches=2, forward=4, backward=5, weight=3, placement="linear")
    assert simulate(apart, schedule.order).end.tolist() == [4, 16, 16, 24]
    assert {v.rule for v in validate(apart, schedule)} == {"duration"}


def test_a_pair_takes_the_time_of_its_two_stages() -> None:
    costs = {"forward": 4, "backward": 5, "weight": 3, "placement": "loop"}
    instance = Instance.uniform(devices=1, microbatches=2, chunks=2, **costs, pairs=[[10, 9], [8, 11]])
    order = Order.parse("F0.0 F1.0 F0.1+BW1.0 F1.1+BW0.0 BW1.1 BW0.1")
    schedule = simulate(instance, order)
    assert schedule.end.tolist() == [4, 8, 17, 17, 25, 25, 33, 41]
    assert validate(instance, schedule) == []
    swapped = dataclasses.replace(
        instance, costs=dataclasses.replace(instance.costs, pairs=[[10, 8], [9, 11]])
    )
    assert {v.rule for v in validate(swapped, schedule)} == {"duration"}
    assert instance.work(0) == 2 * (24 - 4 - 3)  # F0 with BW1 saves 3, F1 with BW0 saves 4
    alike = dataclasses.replace(instance, costs=dataclasses.replace(instance.costs, pairs=[[10] * 2] * 2))
    same = dataclasses.replace(instance, costs=dataclasses.replace(instance.costs, pairs=None, overlapped=10))
    assert simulate(alike, order).end.tolist() == simulate(same, order).end.tolist()
    assert alike.pair_savings(0) == same.pair_savings(0) == [2] * 4


def test_a_fused_backward_takes_its_own_time_at_its_stage() -> None:
    instance = Instance.uniform(
        devices=2, microbatches=1, forward=4, backward=5, weight=3, placement="linear", fused=[7, 9]
    )
    schedule = simulate(instance, Order.parse("F0.0 BW0.0\nF1.0 BW1.0"))
    assert schedule.end.tolist() == [4, 24, 8, 17]
    assert validate(instance, schedule) == []
    apart = Instance.uniform(devices=2, microbatches=1, forward=4, backward=5, weight=3, placement="linear")
    assert {v.rule for v in validate(apart, schedule)} == {"duration"}
    assert [instance.work(device) for device in range(2)] == [11, 12]  # splitting is shorter at stage 1


def test_a_pair_that_waits_for_itself_is_a_deadlock() -> None:
    one = Instance.uniform(devices=1, microbatches=1, forward=4, backward=5, weight=3, placement="linear")
    with pytest.raises(DeadlockError, match=r"F0.0 waits for F0.0"):
        simulate(one, Order.parse("F0.0+BW0.0"))


def test_messages_queue_for_a_busy_link() -> None:
    busy = crowded_link()
    schedule = simulate(busy.instance, busy.order)
    assert validate(busy.instance, schedule) == []
    assert schedule.start.tolist() == [0, 4, 24, 32, 5, 11, 15, 23]
    assert busy.start.tolist() == [0, 4, 22, 30, 5, 9, 13, 21]


@given(instances(), st.integers(0, 99), st.integers(0, 20))
def test_links_delay_but_never_break_a_schedule(instance: Instance, seed: int, occupancy: int) -> None:
    order = random_order(instance, seed)
    busy = dataclasses.replace(instance, costs=dataclasses.replace(instance.costs, link_occupancy=occupancy))
    late, early = retime(busy, order), retime(instance, order)
    assert {v.rule for v in validate(busy, late)} <= {"memory_limit"}
    assert cost(late) >= cost(early)
    shortest = min(min(getattr(instance.costs, kind)) for kind in ("forward", "backward"))
    if occupancy <= shortest:
        assert late.start.tolist() == early.start.tolist()


def test_iterations_without_flush_may_mix() -> None:
    free = dataclasses.replace(TWO_ITERATIONS, flush=False)
    assert validate(free, simulate(free, mixed_iterations().order)) == []


def test_fused_and_split_backward_of_one_microbatch_exclude_each_other() -> None:
    order = Order.parse("F0.0 B0.0 W0.0 BW0.0")
    one = Instance.uniform(devices=1, microbatches=1, forward=1, backward=1, weight=1, placement="linear")
    schedule = Schedule(one, order, [0, 1, 2, 3], [1, 2, 3, 5])  # type: ignore[arg-type]
    assert {v.rule for v in validate(one, schedule)} == {"complete"}


def test_messages_name_operation_and_times() -> None:
    (found,) = validate(INSTANCE, BREAKS["forward_dependency"]())
    assert re.fullmatch(r"F1.0 starts at 4, before F0.0 arrives at 5", found.message)
