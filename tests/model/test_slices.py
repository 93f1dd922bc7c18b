"""Slices of microbatches: what an instance says of them, names of their operations, schedules by every rule."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from helpers.cases import instances, mixed_order, sliced, wide_instances
from helpers.independent_model import optimal_schedule
from helpers.instance_files import loaded, read_again, refusal
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import (
    DeadlockError,
    InputError,
    Instance,
    Memory,
    MicrobatchSlice,
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
from tightpipe.model.graph import graph_of
from tightpipe.model.instance_file import instance_to_dict
from tightpipe.model.operation import COMPUTES
from tightpipe.model.schedule import parse_slot
from tightpipe.solver.engine.run import in_queue_order, one_by_one

CONTRACT = """
devices = 2
placement = "v"
microbatches = 3
forward = 100
backward = 110
weight = 90
fused = 172
memory = { forward = 2, backward = -1, weight = -1, limit = 16 }
[[slices]]
[[slices]]
forward = 40
backward = [50, 51, 52, 53]
memory = { forward = 4, backward = -2, weight = -2 }
"""


def free(instance: Instance) -> Instance:
    return replace(instance, memory=instance.memory and replace(instance.memory, limit=None))


def test_a_file_says_what_a_slice_does_not_take_from_the_instance(tmp_path: Path) -> None:
    instance = loaded(tmp_path, CONTRACT)
    assert (instance.microbatches, instance.slice_count, instance.units) == (3, 2, 6)
    assert instance.class_counts == (3, 3)
    first, second = instance.mb_class(0), instance.mb_class(5)
    assert [instance.duration(kind, 1, first) for kind in COMPUTES] == [100, 110, 90, 172]
    assert [instance.duration(kind, 1, second) for kind in COMPUTES] == [40, 51, 90, 172]
    assert [instance.memory_delta(kind, 0, second) for kind in COMPUTES] == [4, -2, -2, -4]
    assert instance.work(0) == 3 * 2 * (100 + 172) + 3 * ((40 + 50 + 90) + (40 + 53 + 90))
    assert instance.smallest_limit(0) == 2 * (2 + 4)


def test_slices_that_cost_the_same_are_not_one_class() -> None:
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=3, backward=4, weight=5, slices=[MicrobatchSlice()] * 3
    )
    assert not instance.alike
    assert instance.class_counts == (2, 2, 2)


def test_a_single_slice_is_a_whole_microbatch() -> None:
    whole = Instance.uniform(devices=2, microbatches=2, forward=3, backward=4, weight=5)
    one = replace(whole, slices=[MicrobatchSlice()])
    assert one.alike
    assert graph_of(one) == graph_of(whole)


@given(st.one_of(instances(max_microbatches=3), wide_instances(max_microbatches=3)), st.integers(0, 9999))
def test_orders_of_slices_are_timed_by_every_rule(instance: Instance, seed: int) -> None:
    instance = free(sliced(instance, seed))
    assert validate(instance, retime(instance, mixed_order(instance, seed))) == []


@given(st.one_of(instances(max_microbatches=3), wide_instances(max_microbatches=3)), st.integers(0, 9999))
def test_one_microbatch_after_another_fits_the_smallest_limit(instance: Instance, seed: int) -> None:
    instance = sliced(instance, seed)
    if instance.memory is not None:
        least = [instance.smallest_limit(d) for d in range(instance.devices)]
        instance = replace(instance, memory=replace(instance.memory, limit=least))
    assert validate(instance, retime(instance, one_by_one(instance))) == []


@given(st.one_of(instances(max_microbatches=3), wide_instances(max_microbatches=3)), st.integers(0, 9999))
def test_first_in_first_out_costs_no_more_than_any_other_order_of_slices(
    instance: Instance, seed: int
) -> None:
    instance = free(sliced(instance, seed))
    schedule = retime(instance, mixed_order(instance, seed))
    queued = in_queue_order(schedule)
    assert validate(instance, queued) == []
    assert max(queued.end) <= max(schedule.end) or not instance.whole


@given(st.one_of(instances(max_microbatches=3), wide_instances(max_microbatches=3)), st.integers(0, 9999))
def test_a_file_holds_the_slices(instance: Instance, seed: int) -> None:
    instance = sliced(instance, seed)
    assert read_again(instance) == instance


def test_every_order_against_a_rule_of_slices_is_invalid() -> None:
    """One device, one microbatch in two slices: of all orders of F's and BW's, one alone obeys the rules."""
    instance = Instance.uniform(
        devices=1,
        microbatches=1,
        forward=3,
        backward=4,
        weight=5,
        placement="linear",
        slices=[MicrobatchSlice()] * 2,
    )
    right = Order.parse("F0.0.0 F0.0.1 BW0.0.1 BW0.0.0", 2)
    assert validate(instance, simulate(instance, right)) == []
    ends = [3, 6, 15, 24]
    operations = right.to_lists()[0]
    valid = []
    for order in product(operations, repeat=4):
        if len(set(order)) < 4:
            continue
        took = [instance.duration_of(op) for op in order]
        end = [sum(took[: i + 1]) for i in range(4)]
        start = [a - b for a, b in zip(end, took, strict=True)]
        schedule = Schedule(instance, Order.from_lists([order]), start, end)
        if validate(instance, schedule) == []:
            valid.append((list(order), end))
        else:
            with pytest.raises(DeadlockError, match=r"0\.0\.[01] waits for"):
                simulate(instance, schedule.order)
    assert valid == [(operations, ends)]


def test_operations_of_slices_have_a_third_number_in_texts() -> None:
    instance = Instance.uniform(
        devices=2, microbatches=3, forward=3, backward=4, weight=5, slices=[MicrobatchSlice()] * 2
    )
    assert instance.name(Operation(OpKind.F, 3, 5)) == "F3.2.1"
    assert Operation.parse("F3.2.1", 2) == Operation(OpKind.F, 3, 5)
    order = one_by_one(instance)
    assert order.text(2).split()[:3] == ["F0.0.0", "F0.0.1", "F3.0.0"]
    assert Order.parse(order.text(2), 2) == order
    assert parse_slot("F0.1.0+BW3.0.1", 2) == (Operation(OpKind.F, 0, 2), Operation(OpKind.BW, 3, 1))
    for text, said in (("F3.2", "<microbatch>.<slice>, e.g. B7.3.0"), ("F3.2.2", "slices 0..1")):
        with pytest.raises(InputError, match=said):
            Operation.parse(text, 2)
    with pytest.raises(InputError, match=r"<microbatch>, e\.g\. B7\.3"):
        Operation.parse("F3.2.1")


def test_a_schedule_file_names_slices(tmp_path: Path) -> None:
    instance = loaded(tmp_path, CONTRACT)
    schedule = retime(instance, one_by_one(instance))
    path = tmp_path / "schedule.json"
    save_schedule(schedule, path)
    assert json.loads(path.read_text())["devices"][0][1][0] == "F0.0.1"
    assert load_schedule(path).schedule == schedule
    frame = schedule.to_frame()
    assert frame[["microbatch", "slice"]].drop_duplicates().values.tolist() == [
        [m, j] for m in range(3) for j in range(2)
    ]
    path.write_text(path.read_text().replace("F0.0.1", "F0.0.2"))
    with pytest.raises(InputError, match=r"F0\.0\.2.*slices 0\.\.1"):
        load_schedule(path)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"classes": [{"count": 3}]}, "slices = 2: must be left out where `classes` are given"),
        ({"iterations": 3}, "iterations = 3: must be 1 where `slices` are given"),
        ({"slices": []}, "slices = []: must be a list of tables, one for each slice"),
        ({"slices": 4}, "slices = 4: must be a list of tables, one for each slice"),
        ({"slices": [{"count": 3}]}, "count = 3: unknown key in slices[0]"),
        ({"slices": [{"forward": 0}]}, "slices[0].forward = 0: must be at least 1"),
        ({"slices": [{}, {"fused": 0}]}, "slices[1].fused = 0: must be at least 1"),
        ({"slices": [{}, {"forward": [1, 2]}]}, "slices[1].forward = [1, 2]: has 2 entries"),
        (
            {"slices": [{}, {"weight": 0, "memory": {"forward": 1, "backward": -1, "weight": 0}}]},
            "slices[1].weight = (0, 0, 0, 0): must be 0 at the same stages as in slices[0]",
        ),
        (
            {"slices": [{"memory": {"forward": 2, "backward": -1, "weight": -1, "limit": 3}}]},
            "limit = 3: unknown key in slices[0].memory",
        ),
        ({"memory": None}, "slices[1].memory = 4: must be left out: the instance has no memory"),
        ({"slices": [{}] * 40000}, "at most 1000000 operations (3 x 4 stages x 40000 slices x microbatches)"),
    ],
)
def test_bad_slices_are_refused_in_one_line(tmp_path: Path, entries: dict[str, Any], said: str) -> None:
    assert said in refusal(instance_to_dict(loaded(tmp_path, CONTRACT)) | entries)


def test_slices_can_take_less_time_than_whole_microbatches() -> None:
    """Two stages, one microbatch: with two slices the second device begins after half a forward."""
    whole = Instance.uniform(
        devices=2,
        microbatches=1,
        forward=4,
        backward=4,
        weight=2,
        placement="linear",
        objective="makespan",
        memory=Memory(2, -1, -1),
    )
    half = MicrobatchSlice(forward=2, backward=2, weight=1, memory=Memory(1, -1, 0))
    costs = [max(optimal_schedule(one).end) for one in (whole, replace(whole, slices=[half] * 2))]
    assert costs == [4 + 4 + 4 + 4 + 2, 2 + 4 + 4 + 2 + 2]
