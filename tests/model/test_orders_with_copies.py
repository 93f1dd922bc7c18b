"""Offload: what an instance says of it, orders with copies, their times, memory, files and explanations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import instances, serial_order, sliced, uniform, wide_instances
from helpers.copies import offloading, order_with_copies, slow_peaks, slow_times
from helpers.instance_files import loaded, read_again, refusal
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import (
    DeadlockError,
    InputError,
    Instance,
    Memory,
    MicrobatchClass,
    MicrobatchSlice,
    Offload,
    Operation,
    OpKind,
    Order,
    Schedule,
    load_schedule,
    retime,
    save_schedule,
    simulate,
    validate,
)
from tightpipe.drawing import draw_gantt, draw_text
from tightpipe.explain import Reason, explain
from tightpipe.export import export_text
from tightpipe.model.costs import Step
from tightpipe.model.graph import graph_of
from tightpipe.model.instance_file import instance_to_dict
from tightpipe.model.metrics import bubble, busy_times, cost, peak_memory
from tightpipe.model.schedule_file import schedule_from_dict, schedule_to_dict
from tightpipe.model.simulate import memory_during, memory_trace
from tightpipe.program.lowering import lower

CONTRACT = """
devices = 2
placement = "v"
microbatches = 6
forward = 10
backward = 10
weight = 8
objective = "makespan"
memory = { forward = 2, backward = -1, weight = -1, limit = 4 }
offload = { memory = [1, 0, 1, 1], out = 3, back = [4, 4, 5, 6] }
"""
EVERY = st.one_of(instances(most_occupancy=8, overlapped=True, fused=True), wide_instances(most_occupancy=8))
SEEDS = st.integers(0, 9999)


def one_device(**entries: Any) -> Instance:
    """Two microbatches at one stage, of which one activation and a half fit."""
    given: dict[str, Any] = {
        "placement": "linear",
        "memory": Memory(2, -1, -1, 3),
        "offload": Offload(1, 3, 4),
        "objective": "makespan",
    }
    return uniform(1, 2, (10, 10, 8), **given | entries)


SWAPPED = "F0.0 O0.0 F0.1 BW0.1 L0.0 BW0.0"


def times(schedule: Schedule) -> dict[Operation, tuple[int, int]]:
    operations = [op for device in schedule.order.to_lists() for op in device]
    return dict(
        zip(operations, zip(schedule.start.tolist(), schedule.end.tolist(), strict=True), strict=True)
    )


def cut(instance: Instance, seed: int) -> Instance:
    """Slices on every third instance that allows them."""
    return instance if seed % 3 or instance.classes else sliced(instance, seed, most=2)


def with_limits(instance: Instance, limits: Any) -> Instance:
    assert instance.memory is not None
    return replace(instance, memory=replace(instance.memory, limit=limits))


def test_a_file_says_what_may_leave(tmp_path: Path) -> None:
    instance = loaded(tmp_path, CONTRACT)
    assert instance.offload == Offload((1, 0, 1, 1), (3, 0, 3, 3), (4, 0, 5, 6), True)
    assert [instance.offloads(stage) for stage in range(4)] == [True, False, True, True]
    assert [instance.duration(kind, 2) for kind in (OpKind.O, OpKind.L)] == [3, 5]
    assert [instance.memory_delta(kind, 2) for kind in (OpKind.O, OpKind.L)] == [-1, 1]
    assert [instance.duration(OpKind.L, 1), instance.memory_delta(OpKind.O, 1)] == [0, 0]
    copies = graph_of(instance).copies
    assert [(copy.stage, copy.device, copy.memory, copy.out, copy.back) for copy in copies] == [
        *((0, 0, 1, 3, 4), (2, 1, 1, 3, 5), (3, 0, 1, 3, 6)),
    ]
    nodes = graph_of(instance).nodes
    assert [nodes[copy.forward].kind for copy in copies] == [OpKind.F] * 3
    assert [nodes[copy.backward][:2] for copy in copies] == [(OpKind.B, 0), (OpKind.B, 2), (OpKind.B, 3)]


def test_a_number_is_that_of_every_stage_and_nothing_leaves_where_it_is_0() -> None:
    instance = uniform(2, 2, (4, 5, 3), memory=Memory(2, -1, -1), offload=Offload(1, 3, 4, duplex=False))
    assert instance.offload == Offload((1,) * 4, (3,) * 4, (4,) * 4, False)
    assert not graph_of(instance).duplex
    nothing = replace(instance, offload=Offload(0, 0, 0))
    assert nothing.offload is None
    assert nothing == replace(instance, offload=None)
    assert graph_of(nothing).copies == ()


@given(EVERY, SEEDS)
def test_a_file_holds_what_may_leave(instance: Instance, seed: int) -> None:
    instance = offloading(cut(instance, seed), seed)
    assert read_again(instance) == instance


BAD = [
    ({"memory": 3, "out": 1, "back": 1}, "offload.memory = 3: must be at most what an F adds at stage 0: 2"),
    ({"memory": [0, 3], "out": 1, "back": 1}, "offload.memory[1] = 3: must be at most what an F adds"),
    ({"memory": -1, "out": 1, "back": 1}, "offload.memory = -1: must be at least 0"),
    ({"memory": [1], "out": 1, "back": 1}, "offload.memory = [1]: has 1 entries, must have one per stage: 2"),
    ({"memory": 1, "out": 0, "back": 1}, "offload.out = 0: must be at least 1"),
    ({"memory": 1, "out": 1, "back": [1, 0]}, "offload.back[1] = 0: must be at least 1"),
    ({"memory": 1, "out": 1.5, "back": 1}, "offload.out = 1.5: must be an integer or one integer per stage"),
    ({"memory": 1, "out": 1, "back": 1, "duplex": 1}, "offload.duplex = 1: must be true or false"),
    ({"memory": 1, "out": 1}, "missing key 'back' in offload"),
    ({"memory": 1, "in": 1, "out": 1}, "in = 1: unknown key in offload"),
    (3, "offload = 3: must be a table of keys and values"),
]


@pytest.mark.parametrize(("table", "message"), BAD)
def test_one_line_says_what_is_wrong_with_an_offload(table: Any, message: str) -> None:
    data = instance_to_dict(uniform(2, 2, (4, 5, 3), placement="linear", memory=Memory(2, -1, -1)))
    assert refusal(data | {"offload": table}).startswith(message)


LEFT_OUT: list[tuple[dict[str, Any], str]] = [
    ({"memory": None}, "offload.memory = 1: must be left out: the instance has no memory"),
    ({"iterations": 2}, "iterations = 2: must be 1 where `offload` is given"),
    ({"backward": [0, 5], "weight": [0, 3]}, "offload.memory = 1: must be 0 at stage 0, where no backward"),
    (
        {"classes": [MicrobatchClass(1), MicrobatchClass(1, memory=Memory(0, 0, 0))]},
        "offload.memory = 1: must be at most what an F adds at stage 0: 0",
    ),
    (
        {"slices": [MicrobatchSlice(), MicrobatchSlice(memory=Memory(0, 0, 0))]},
        "offload.memory = 1: must be at most what an F adds at stage 0: 0",
    ),
]


@pytest.mark.parametrize(("entries", "message"), LEFT_OUT)
def test_what_may_leave_is_there_for_every_microbatch(entries: dict[str, Any], message: str) -> None:
    usual: dict[str, Any] = {"forward": 4, "backward": 5, "weight": 3, "placement": "linear"}
    usual["memory"] = Memory([2, 2], [0, -1], [0, -1]) if "backward" in entries else Memory(2, -1, -1)
    with pytest.raises(InputError) as caught:
        Instance.uniform(devices=2, microbatches=2, offload=Offload(1, 1, 1), **usual | entries)
    assert str(caught.value).startswith(message)


def test_an_activation_that_leaves_makes_room_for_another_one() -> None:
    instance = one_device()
    schedule = simulate(instance, Order.parse(SWAPPED))
    assert [f"{op} {start}-{end}" for op, (start, end) in times(schedule).items()] == [
        *("F0.0 0-10", "O0.0 10-13", "F0.1 13-23", "BW0.1 23-41", "L0.0 41-45", "BW0.0 45-63"),
    ]
    assert validate(instance, schedule) == []
    assert memory_trace(instance, schedule.order).tolist() == [2, 2, 3, 3, 2, 2]
    assert peak_memory(schedule).tolist() == [3]
    assert (cost(schedule), bubble(schedule), busy_times(schedule).tolist()) == (63, 7, [56])
    assert retime(replace(instance, objective="device_span"), schedule.order).end.tolist() == (
        schedule.end.tolist()
    )


def test_the_sequence_of_memory_says_whether_a_copy_back_waits_for_a_backward() -> None:
    early = Order.parse("F0.0 O0.0 F0.1 L0.0 BW0.1 BW0.0")
    roomy = one_device(memory=Memory(2, -1, -1, 4))
    schedule = simulate(roomy, early)
    assert times(schedule)[Operation(OpKind.L, 0, 0)] == (13, 17)
    assert validate(roomy, schedule) == []
    assert memory_trace(roomy, early).max() == 4
    tight = one_device()
    assert {fault.rule for fault in validate(tight, simulate(tight, early))} == {"memory_limit"}


def test_one_engine_for_both_directions_copies_one_after_the_other() -> None:
    instance = uniform(
        1, 3, (10, 10, 8), placement="linear", memory=Memory(2, -1, -1), offload=Offload(1, 30, 15)
    )
    single = replace(instance, offload=Offload(1, 30, 15, duplex=False))
    out, back = Operation(OpKind.O, 0, 1), Operation(OpKind.L, 0, 0)
    order = Order.parse("F0.0 O0.0 F0.1 L0.0 O0.1 BW0.0 F0.2 L0.1 BW0.1 BW0.2")
    both, one = times(simulate(instance, order)), times(simulate(single, order))
    assert (both[out], both[back]) == ((50, 80), (40, 55))
    assert (one[out], one[back]) == ((55, 85), (40, 55))
    behind = Order.parse("F0.0 O0.0 F0.1 O0.1 L0.0 BW0.0 F0.2 L0.1 BW0.1 BW0.2")
    assert times(simulate(instance, behind))[back] == (80, 95)  # for the memory that O0.1 gives


@given(EVERY, SEEDS)
def test_orders_with_copies_are_timed_as_by_a_slow_simulation(instance: Instance, seed: int) -> None:
    instance = offloading(cut(instance, seed), seed)
    order = order_with_copies(instance, seed)
    schedule = simulate(instance, order)
    assert times(schedule) == slow_times(instance, order)
    assert validate(instance, schedule) == []


@given(EVERY, SEEDS)
def test_what_devices_hold_follows_from_their_lines(instance: Instance, seed: int) -> None:
    instance = offloading(cut(instance, seed), seed)
    order = order_with_copies(instance, seed)
    schedule = retime(instance, order)
    peaks = slow_peaks(instance, order, times(schedule))
    assert peak_memory(schedule).tolist() == peaks
    trace = memory_trace(instance, order)
    allowed = [int(trace[order.rows(d)].max()) for d in range(order.devices)]
    assert all(peak <= most for peak, most in zip(peaks, allowed, strict=True))
    assert validate(with_limits(instance, allowed), schedule) == []
    assert validate(with_limits(instance, peaks), schedule) == []
    try:
        tight = with_limits(instance, [max(0, peak - 1) for peak in peaks])
    except InputError:  # below a single activation
        return
    if max(peaks):
        assert {fault.rule for fault in validate(tight, schedule)} == {"memory_limit"}


@given(EVERY, SEEDS)
def test_retiming_costs_no_more_than_any_begins_of_the_devices(instance: Instance, seed: int) -> None:
    instance = replace(offloading(cut(instance, seed), seed), objective="device_span")
    order = order_with_copies(instance, seed)
    best = retime(instance, order)
    assert validate(instance, best) == []
    random = np.random.default_rng(seed)
    for _ in range(5):
        release = random.integers(0, 80, instance.devices)
        assert cost(simulate(instance, order, release)) >= cost(best)
    begins = np.minimum.reduceat(best.start, order.offsets[:-1])
    assert simulate(instance, order, begins).start.tolist() == best.start.tolist()


@given(EVERY, SEEDS)
def test_an_order_without_copies_is_timed_as_if_nothing_could_leave(instance: Instance, seed: int) -> None:
    instance = offloading(cut(instance, seed), seed)
    order = order_with_copies(instance, seed)
    plain = order.without_copies()
    schedule = retime(instance, plain)
    resident = retime(replace(instance, offload=None), plain)
    assert schedule.start.tolist() == resident.start.tolist()
    assert peak_memory(schedule).tolist() == peak_memory(resident).tolist()
    kept = retime(instance, order).without_copies()
    assert kept.order == plain
    assert not kept.order.has_copies


@given(EVERY, SEEDS)
def test_a_schedule_file_holds_the_copies(instance: Instance, seed: int) -> None:
    instance = offloading(cut(instance, seed), seed)
    schedule = retime(instance, order_with_copies(instance, seed))
    data = json.loads(json.dumps(schedule_to_dict(schedule)))
    kinds = {entry[0][0] for key in ("devices",) for device in data[key] for entry in device}
    assert not kinds & {"O", "L"}
    read = schedule_from_dict(data).schedule
    assert times(read) == times(schedule)
    assert validate(instance, read) == []
    assert peak_memory(read).tolist() == peak_memory(schedule).tolist()


@given(EVERY, SEEDS)
def test_a_line_that_is_read_from_a_file_costs_no_more_and_holds_as_much(
    instance: Instance, seed: int
) -> None:
    instance = offloading(cut(instance, seed), seed)
    schedule = retime(instance, order_with_copies(instance, seed, pairs=False))
    classes = range(len(instance.class_counts))
    if any(instance.memory_while_running(s, c) for s in range(instance.stages) for c in classes):
        return  # a line cannot say that a copy back begins while such an F runs
    read = schedule_from_dict(schedule_to_dict(schedule)).schedule
    again = simulate(instance, read.order, np.minimum.reduceat(read.start, read.order.offsets[:-1]))
    assert (again.start <= read.start).all()
    trace = memory_trace(instance, read.order)
    assert [int(trace[rows].max()) for rows in map(read.order.rows, range(instance.devices))] == (
        peak_memory(read).tolist()
    )


@given(EVERY, SEEDS)
def test_the_text_of_an_order_holds_the_copies(instance: Instance, seed: int) -> None:
    instance = offloading(cut(instance, seed), seed)
    order = order_with_copies(instance, seed)
    slices = len(instance.slices)
    assert Order.parse(order.text(slices), slices) == order


def test_a_file_without_copies_has_none_and_others_are_refused() -> None:
    schedule = simulate(one_device(), Order.parse(SWAPPED))
    data = schedule_to_dict(schedule)
    assert data["devices"] == [[["F0.0", 0, 10], ["F0.1", 13, 23], ["BW0.1", 23, 41], ["BW0.0", 45, 63]]]
    assert data["copies"] == [[["O0.0", 10, 13], ["L0.0", 41, 45]]]
    assert not schedule_from_dict(data | {"copies": None}).schedule.order.has_copies
    resident = instance_to_dict(replace(one_device(), offload=None))
    for change, message in (
        ({"copies": 3}, "copies = 3: must be a list of 1 devices"),
        ({"copies": [3]}, "copies[0] = 3: must be a list of [copy, start, end]"),
        ({"copies": [[["F0.0", 0, 1]]]}, "copies[0][0] = 'F0.0': only O, L stand here"),
        ({"copies": [[["O0.0", 0]]]}, "copies[0][0] = ['O0.0', 0]: must be [\"<operation>\", start, end]"),
        ({"copies": [[["O0.9", 10, 13]]]}, "copies[0][0] = 'O0.9': the instance has stages 0..0"),
        ({"copies": [[["O0.0", 10, 13]]]}, "devices: O0.0 runs without L0.0"),
        ({"devices": [[["O0.0", 10, 13]]]}, "devices[0][0] = 'O0.0': only F, B, W, BW stand here"),
        ({"instance": resident}, "copies = [[['O0.0', 10, 13], ['L0.0', 41, 45]]]: must be left out"),
    ):
        with pytest.raises(InputError) as caught:
            schedule_from_dict(data | change)
        assert str(caught.value).startswith(message), str(caught.value)


def test_saving_checks_the_copies(tmp_path: Path) -> None:
    instance = one_device()
    schedule = simulate(instance, Order.parse(SWAPPED))
    save_schedule(schedule, tmp_path / "s.json")
    assert times(load_schedule(tmp_path / "s.json").schedule) == times(schedule)
    resident = Schedule(replace(instance, offload=None), schedule.order, schedule.start, schedule.end)
    with pytest.raises(ValueError, match=r"O0.0 runs at a stage where nothing may leave"):
        save_schedule(resident, tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()


def test_a_table_has_the_copies_and_the_memory_while_they_run() -> None:
    frame = simulate(one_device(), Order.parse(SWAPPED)).to_frame()
    assert frame["kind"].tolist() == ["F", "O", "F", "BW", "L", "BW"]
    assert frame["memory"].tolist() == [2, 2, 3, 3, 2, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("F0.0 F0.1 O0.0 BW0.0 L0.0 BW0.1", "BW0.0 waits for L0.0 waits for BW0.0"),
        ("O0.0 F0.0 L0.0 BW0.0 F0.1 BW0.1", "O0.0 waits for F0.0 waits for O0.0"),
        ("F0.0 L0.0 BW0.0 F0.1 BW0.1", "L0.0 waits for O0.0, which no device runs"),
    ],
)
def test_a_deadlock_names_the_copies(text: str, message: str) -> None:
    with pytest.raises(DeadlockError) as caught:
        simulate(one_device(), Order.parse(text))
    assert message in str(caught.value)


def test_copies_that_the_instance_does_not_have_are_refused() -> None:
    order = Order.parse(SWAPPED)
    with pytest.raises(InputError, match="the instance has no such operation"):
        simulate(replace(one_device(), offload=None), order)
    with pytest.raises(InputError, match="the instance has no such operation"):
        simulate(one_device(), Order.parse(SWAPPED.replace("0.0", "0.7")))
    with pytest.raises(InputError, match=r"'O0.0': the order has this operation twice"):
        simulate(one_device(), Order.parse("F0.0 O0.0 O0.0 F0.1 BW0.1 L0.0 BW0.0"))


def test_the_smallest_limit_counts_what_cannot_have_left() -> None:
    """At stage 0, 1 of 3 stays; when the F of stage 3 starts, the device holds this 1 and all of stage 3."""
    instance = uniform(
        2, 3, (4, 5, 3), memory=Memory([3, 1, 1, 2], [-1, 0, 0, -1], [-2, -1, -1, -1]), comm=1,
        offload=Offload([2, 0, 0, 1], 2, 2),
    )  # fmt: skip
    assert [instance.smallest_limit(device) for device in range(2)] == [3, 2]
    assert replace(instance, offload=None).smallest_limit(0) == 5
    below = with_limits(instance, [3, 1])
    assert below.infeasibility() == (
        "memory limit 1 of device 1 holds no microbatch: of its forward activations there, what cannot leave "
        "is held at once, which takes at least 2"
    )


def serial_with_copies(instance: Instance) -> Order:
    """Microbatch after microbatch; each activation leaves at once and comes back right before its backward."""
    slots = []
    for device in serial_order(instance).to_lists():
        line: list[Operation] = []
        for op in device:
            waits = op.kind is OpKind.B or (
                op.kind is OpKind.W and not instance.has(OpKind.B, op.stage, instance.mb_class(op.microbatch))
            )
            if waits and instance.offloads(op.stage):
                line.append(op._replace(kind=OpKind.L))
            line.append(op)
            if op.kind is OpKind.F and instance.offloads(op.stage):
                line.append(op._replace(kind=OpKind.O))
        slots.append(line)
    return Order.from_lists(slots)


@given(st.one_of(instances(), wide_instances()), SEEDS)
def test_the_smallest_limit_is_enough_for_whole_microbatches_one_after_another(
    instance: Instance, seed: int
) -> None:
    instance = offloading(instance, seed)
    least = with_limits(instance, [instance.smallest_limit(d) for d in range(instance.devices)])
    assert least.infeasibility() is None
    assert validate(least, retime(least, serial_with_copies(least))) == []


@given(EVERY, SEEDS)
def test_no_schedule_holds_less_than_the_smallest_limit(instance: Instance, seed: int) -> None:
    instance = offloading(cut(instance, seed), seed)
    schedule = retime(instance, order_with_copies(instance, seed))
    for device, peak in enumerate(peak_memory(schedule).tolist()):
        assert peak >= instance.smallest_limit(device)


def test_explanations_say_what_waits_for_copies() -> None:
    schedule = simulate(one_device(), Order.parse(SWAPPED))
    found = explain(schedule, relax=False)
    assert [(i.start, i.end, i.reason, str(i)) for i in found.idle] == [
        (10, 13, Reason.COPY, "F0.1 waits for the copy O0.0"),
        (41, 45, Reason.COPY, "BW0.0 waits for the copy L0.0"),
    ]
    assert [step.name for step in found.critical] == SWAPPED.split()
    assert sum(step.ticks for step in found.critical) == cost(schedule)


@given(EVERY, SEEDS)
def test_critical_paths_lead_over_copies(instance: Instance, seed: int) -> None:
    instance = offloading(instance, seed)
    schedule = retime(instance, order_with_copies(instance, seed))
    found = explain(schedule, relax=False)
    if instance.barrier is None:
        assert sum(step.ticks for step in found.critical) == cost(schedule)
    idle = sum(device.idle for device in found.devices)
    charged, busy = (sum(getattr(d, key) for d in found.devices) for key in ("charged", "busy"))
    assert charged == busy + idle
    if instance.whole and instance.barrier is None:
        assert Reason.LATE not in {interval.reason for interval in found.idle}


def test_what_knows_no_copies_refuses_them_by_name() -> None:
    schedule = simulate(one_device(), Order.parse(SWAPPED))
    for what in (
        lambda: lower(schedule),
        lambda: export_text(schedule, "csv"),
        lambda: export_text(schedule, "torch-csv"),
    ):
        with pytest.raises(InputError, match=r"copies = 2: must be left out: .* copies no activations"):
            what()
    trivial = simulate(one_device(memory=Memory(2, -1, -1)), Order.parse("F0.0 F0.1 BW0.0 BW0.1"))
    assert lower(trivial).devices
    assert export_text(trivial, "csv").startswith("device,operation")


def test_drawings_show_copies(tmp_path: Path) -> None:
    schedule = simulate(one_device(), Order.parse(SWAPPED))
    for suffix in ("svg", "png"):
        draw_gantt([("copies", schedule)], path=tmp_path / f"gantt.{suffix}", memory=True)
    svg = (tmp_path / "gantt.svg").read_text()
    assert all(f"<!-- {name} -->" in svg for name in ("F", "BW", "O", "L"))
    assert draw_text(schedule).endswith("2 copies of activations are not shown")


def test_memory_while_an_operation_runs_counts_copies_that_begin_meanwhile() -> None:
    instance = one_device(memory=Memory(2, -1, -1))
    order = Order.parse("F0.0 O0.0 L0.0 F0.1 BW0.0 BW0.1")
    schedule = simulate(instance, order)
    assert times(schedule)[Operation(OpKind.L, 0, 0)] == (13, 17)
    assert times(schedule)[Operation(OpKind.F, 0, 1)] == (13, 23)
    assert memory_during(schedule).tolist() == [2, 2, 4, 4, 4, 2]


def test_a_step_with_copies_waits_until_stages_are_ready() -> None:
    instance = one_device(objective="step", step=Step(ready=7, reduce=5, optimizer=2))
    schedule = retime(instance, Order.parse(SWAPPED))
    assert validate(instance, schedule) == []
    assert (int(schedule.start[0]), cost(schedule)) == (7, 7 + 63 + 5 + 2)
