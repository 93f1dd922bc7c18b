"""Classes of microbatches that differ: what an instance says of them, and schedules by every rule."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.cases import classed, entries_of_its_own, instances, mixed_order, wide_instances, with_room
from helpers.instance_files import loaded, read_again, refusal
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Memory, MicrobatchClass, retime, validate
from tightpipe.model.instance_file import instance_to_dict
from tightpipe.model.operation import COMPUTES

CONTRACT = """
devices = 2
placement = "v"
forward = 100
backward = 110
weight = 90
fused = 172
memory = { forward = 2, backward = -1, weight = -1, limit = 16 }
[[classes]]
count = 3
[[classes]]
count = 2
forward = 200
backward = [220, 221, 222, 223]
weight = 180
memory = { forward = 4, backward = -2, weight = -2 }
"""


def test_a_file_says_what_a_class_does_not_take_from_the_instance(tmp_path: Path) -> None:
    instance = loaded(tmp_path, CONTRACT)
    assert instance.microbatches == 5
    assert instance.class_counts == (3, 2)
    first, second = instance.mb_class(0), instance.mb_class(4)
    assert [instance.duration(kind, 1, first) for kind in COMPUTES] == [100, 110, 90, 172]
    assert [instance.duration(kind, 1, second) for kind in COMPUTES] == [200, 221, 180, 172]
    assert [instance.memory_delta(kind, 0, second) for kind in COMPUTES] == [4, -2, -2, -4]
    assert instance.work(0) == 3 * 2 * (100 + 172) + 2 * 2 * (200 + 172)
    assert instance.smallest_limit(0) == 8


def test_classes_that_cost_the_same_are_one() -> None:
    short, other = MicrobatchClass(2), MicrobatchClass(3, forward=10)
    split = Instance.uniform(devices=3, forward=10, backward=10, weight=8, classes=[short, other])
    assert split == Instance.uniform(devices=3, microbatches=5, forward=10, backward=10, weight=8)
    longer = MicrobatchClass(1, forward=20)
    apart = replace(split, microbatches=6, classes=[short, longer, other])
    assert apart.class_counts == (5, 1)
    assert [apart.mb_class(m) for m in range(6)] == [0, 0, 1, 0, 0, 0]


@given(st.one_of(instances(max_microbatches=6), wide_instances(max_microbatches=6)), st.integers(0, 9999))
def test_an_instance_takes_what_all_its_classes_cost(instance: Instance, seed: int) -> None:
    instance = replace(instance, costs=replace(instance.costs, overlapped=None, pairs=None), iterations=1)
    n, own = instance.microbatches, entries_of_its_own(instance, random.Random(seed))
    one = with_room(instance, classes=[MicrobatchClass(n, **own)])
    assert one.classes == ()
    assert with_room(instance, classes=[MicrobatchClass(1, **own)] * n) == one
    if n > 1:
        other = MicrobatchClass(n - 1, forward=99)
        apart = with_room(instance, classes=[MicrobatchClass(1, **own), other])
        assert apart.class_costs[0] == one.class_costs[0]


def test_each_direction_of_a_bidirectional_placement_has_classes_of_its_own() -> None:
    """Microbatches 0 and 1 take the first route; the class of the last three is on both."""
    classes = [MicrobatchClass(1), MicrobatchClass(3, forward=20)]
    instance = Instance.uniform(
        devices=2, forward=10, backward=10, weight=8, placement="bidirectional", classes=classes
    )
    assert [instance.mb_class(m) for m in range(4)] == [0, 1, 2, 2]
    assert instance.class_routes == ((0, 1), (0, 1), (1, 0))


@given(st.one_of(instances(max_microbatches=6), wide_instances(max_microbatches=6)), st.integers(0, 9999))
def test_orders_of_microbatches_that_differ_are_timed_by_every_rule(instance: Instance, seed: int) -> None:
    instance = classed(instance, seed)
    free = replace(instance, memory=instance.memory and replace(instance.memory, limit=None))
    schedule = retime(free, mixed_order(free, seed))
    assert validate(free, schedule) == []


@given(st.one_of(instances(max_microbatches=6), wide_instances(max_microbatches=6)), st.integers(0, 9999))
def test_a_file_holds_the_classes(instance: Instance, seed: int) -> None:
    instance = classed(instance, seed)
    assert read_again(instance) == instance


def test_a_schedule_with_the_times_of_another_class_is_invalid() -> None:
    classes = [MicrobatchClass(1), MicrobatchClass(1, forward=20, memory=Memory(4, -2, -2))]
    instance = Instance.uniform(
        devices=1,
        forward=10,
        backward=10,
        weight=8,
        placement="linear",
        memory=Memory(2, -1, -1, 6),
        classes=classes,
    )
    order = mixed_order(instance, 0)
    alike = replace(instance, classes=(), microbatches=2)
    broken = {violation.rule for violation in validate(instance, retime(alike, order))}
    assert "duration" in broken
    tight = replace(instance, memory=Memory(2, -1, -1, 5))
    both_first = order.from_lists([[(k, 0, m) for k in range(3) for m in range(2)]])
    assert {v.rule for v in validate(tight, retime(tight, both_first))} == {"memory_limit"}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"microbatches": 6}, "microbatches = 6: must be the sum of the counts of the classes, 5"),
        ({"classes": []}, "classes = []: must be a list of tables, one for each class"),
        ({"classes": [{}]}, "missing key 'count' in classes[0]"),
        ({"classes": [{"count": 0}]}, "classes[0].count = 0: must be at least 1"),
        ({"classes": [{"count": 5, "weight": 0}]}, "classes[0].memory.weight = -1: must be 0 at stage 0"),
        ({"classes": [{"count": 5, "forward": 0}]}, "classes[0].forward = 0: must be at least 1"),
        ({"classes": [{"count": 5, "fused": 0}]}, "classes[0].fused = 0: must be at least 1"),
        ({"classes": [{"count": 5, "limit": 3}]}, "limit = 3: unknown key in classes[0]"),
        (
            {"classes": [{"count": 5, "memory": {"forward": 2, "backward": -1, "weight": -2}}]},
            "classes[0].memory = (2, -1, -2): forward, backward and weight sum to -1 at stage 0, must sum to 0",
        ),
        ({"overlapped": 150}, "overlapped = 150: must be left out where `classes` are given"),
        ({"pairs": [[150] * 4] * 4}, "must be left out where `classes` are given"),
        ({"iterations": 5}, "iterations = 5: must be 1 where `classes` are given"),
        ({"memory": None}, "classes[1].memory = 4: must be left out: the instance has no memory"),
    ],
)
def test_bad_classes_are_refused_in_one_line(tmp_path: Path, entries: dict[str, Any], said: str) -> None:
    assert said in refusal(instance_to_dict(loaded(tmp_path, CONTRACT)) | entries)


def test_a_file_without_classes_needs_the_number_of_microbatches(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing key 'microbatches'"):
        loaded(tmp_path, CONTRACT.split("[[classes]]")[0])
