"""V-Beat in the makespan: the packed ends of devices meet the bound, and keep within time and memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tightpipe.heuristics.v_beat import Times, v_beat_order
from tightpipe.heuristics.v_tails import Held, has_tails, least_makespan, packed_tails, styles
from tightpipe.heuristics.v_tails import _Packing as Packing
from tightpipe.model.costs import Objective
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.simulate import retime
from tightpipe.model.validate import validate
from tightpipe.params.budget import UNLIMITED
from tightpipe.settings import load_settings
from tightpipe.solver.bounds.formulas import splits_bound

SETTING = load_settings()["6.2B-8x24"]
TIMES = Times(SETTING.forward, SETTING.backward, SETTING.weight, SETTING.comm)
HELD = Held(10, 4, 160)


def makespan_of(instance: Instance) -> int:
    """The makespan of V-Beat, after a check that its schedule is valid."""
    schedule = retime(instance, v_beat_order(instance))
    assert validate(instance, schedule) == []
    return cost(schedule)


@pytest.mark.parametrize("name", ["6.2B-8x24", "6.2B-8x64", "6.2B-8x24-swapped", "14.6B-16x48"])
def test_published_settings_are_optimal_without_search(name: str) -> None:
    instance = load_settings()[name].instance(0, "makespan")
    setting = load_settings()[name]
    times = Times(setting.forward, setting.backward, setting.weight, setting.comm)
    least = least_makespan(instance.devices, instance.microbatches, times)
    assert makespan_of(instance) == splits_bound(instance).value == least


def test_device_spans_keep_the_order_of_the_theorem() -> None:
    spans = SETTING.instance(0)
    in_one_frame = replace(spans, objective=Objective.MAKESPAN)
    assert v_beat_order(spans) != v_beat_order(in_one_frame)
    assert v_beat_order(spans) == v_beat_order(in_one_frame, UNLIMITED.within(0))


def test_no_ends_are_found_below_the_bound() -> None:
    least = least_makespan(8, 24, TIMES)
    found = [
        Packing(8, 24, TIMES, HELD, least + more, style).ends(UNLIMITED)
        for more in (-1, 0)
        for _, style in zip(range(10), styles(0), strict=False)
    ]
    assert not any(found[:10])
    assert any(found[10:])


def test_more_microbatches_only_make_for_more_beats() -> None:
    few, many = (packed_tails(8, n, TIMES, HELD, UNLIMITED) for n in (24, 240))
    assert few is not None
    assert many == [end._replace(beats=end.beats + 2 * (240 - 24)) for end in few]


def test_less_memory_than_full_has_no_ends() -> None:
    assert packed_tails(8, 24, TIMES, HELD._replace(limit=150), UNLIMITED.within(2)) is None


@pytest.mark.parametrize(
    ("times", "worth"),
    [
        (TIMES, True),
        (Times(100, 100, 50, 5), False),  # W's cannot fill the end of the last device
        (Times(100, 60, 90, 10), False),  # F's take longer than a B and two messages
        (Times(100, 100, 100, 60), False),  # beats are too short for messages
    ],
)
def test_where_ends_are_packed(times: Times, worth: bool) -> None:
    assert has_tails(8, 24, times) == worth
    assert not has_tails(8, 15, times)
    assert not has_tails(1, 15, times)


def test_stages_that_differ_have_a_valid_order() -> None:
    instance = Instance.uniform(
        devices=2,
        microbatches=8,
        forward=[100, 104, 98, 102],
        backward=[100, 96, 103, 101],
        weight=90,
        comm=3,
        placement="v",
        memory=replace(SETTING.memory(0), limit=4 * SETTING.forward_memory),
        objective="makespan",
    )
    assert makespan_of(instance) <= cost(retime(instance, v_beat_order(instance, UNLIMITED.within(0))))
