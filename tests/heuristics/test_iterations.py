"""Several iterations, with and without a flush."""

from __future__ import annotations

import dataclasses

import pytest
from helpers.cases import instances, uniform
from hypothesis import given

from tightpipe import Instance, NoScheduleError, retime, validate
from tightpipe.base.errors import InfeasibleError
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost


def linear(devices: int, microbatches: int, iterations: int, *, flush: bool) -> Instance:
    entries = {"placement": "linear", "objective": "makespan", "iterations": iterations, "flush": flush}
    return uniform(devices, microbatches, (1, 1, 1), **entries)


@given(instances())
def test_every_family_repeats_itself_with_a_flush(instance: Instance) -> None:
    twice = dataclasses.replace(instance, microbatches=2 * instance.microbatches, iterations=2)
    for heuristic in HEURISTICS.values():
        if instance.placement.name not in heuristic.placements:
            continue
        try:
            once = heuristic.order(instance)
        except (NoScheduleError, InfeasibleError):
            continue
        schedule = retime(twice, heuristic.order(twice))
        assert validate(twice, schedule) == []
        assert len(schedule.order) == 2 * len(once)


@pytest.mark.parametrize("family", ["1f1b", "eager-1f1b"])
def test_without_a_flush_the_bubble_is_paid_once(family: str) -> None:
    """Consecutive 1F1B: (p - 1)(F + BW) for all iterations together, not for each."""
    make = HEURISTICS[family].order
    free, flushed = (linear(4, 24, 3, flush=flush) for flush in (False, True))
    schedule = retime(free, make(free))
    assert validate(free, schedule) == []
    assert cost(schedule) == 24 * 3 + 3 * 3
    # the devices flush on their own, so the next iteration's warm-up hides part of the cool-down
    assert cost(retime(flushed, make(flushed))) > cost(schedule)
    one = linear(4, 8, 1, flush=True)
    assert cost(retime(flushed, make(flushed))) <= 3 * cost(retime(one, make(one)))


def test_each_microbatch_knows_its_iteration() -> None:
    instance = linear(2, 6, 3, flush=False)
    assert [instance.iteration(m) for m in range(6)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("family", "enough"), [("1f1b", 4), ("eager-1f1b", 5)])
def test_depth_is_held_against_the_microbatches(family: str, enough: int) -> None:
    make = HEURISTICS[family].order
    with pytest.raises(NoScheduleError, match=f"at least {enough} microbatches per iteration on 4 devices"):
        make(linear(4, 2 * (enough - 1), 2, flush=False))
    assert make(linear(4, 2 * enough, 2, flush=False))


def test_other_families_need_a_flush() -> None:
    with pytest.raises(NoScheduleError, match="gpipe has no form without a flush"):
        HEURISTICS["gpipe"].order(linear(4, 8, 2, flush=False))
