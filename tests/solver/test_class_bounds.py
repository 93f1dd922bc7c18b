"""Bounds where microbatches differ: never above an optimum, and what one long microbatch costs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.cases import classed, instances
from helpers.clock import calls_of
from helpers.independent_model import optimal_schedule
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import Instance, Memory, MicrobatchClass
from tightpipe.model.metrics import cost
from tightpipe.solver.bounds.formulas import all_bounds, away_bound, best_bound, work_bound
from tightpipe.solver.bounds.formulas.paths import paths_of, shortest, until_first_backward
from tightpipe.solver.bounds.relaxed import split_backwards


def of_lengths(lengths: Sequence[int], devices: int, held: int | None = None, **entries: Any) -> Instance:
    """A microbatch of each length: F, B and W take as many ticks, and memory is for the `held` longest."""
    limit = 2 * sum(sorted(lengths)[-(held or devices) :])
    classes = [
        MicrobatchClass(1, forward=x, backward=x, weight=x, memory=Memory(2 * x, -x, -x)) for x in lengths
    ]
    given = {"placement": "linear", "memory": Memory(0, 0, 0, limit), **entries}
    return Instance.uniform(devices=devices, forward=1, backward=1, weight=1, classes=classes, **given)


def log_normal(sigma: float, count: int) -> list[int]:
    lengths = np.random.default_rng(48).lognormal(0, sigma, count)
    return [round(100 * x) for x in lengths.tolist()]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(24))
def test_no_bound_is_above_the_optimum_where_one_microbatch_is_long(seed: int) -> None:
    check_bounds(with_a_long_one(seed))


def check_bounds(instance: Instance) -> None:
    least = cost(optimal_schedule(instance))
    for bound in all_bounds(instance):
        assert bound.value <= least, bound


def with_a_long_one(seed: int) -> Instance:
    """Two to three devices and stages of all placements; one microbatch is several times as long as others."""
    rng = random.Random(seed)
    placement, devices = rng.choice((("linear", 2), ("linear", 3), ("v", 2), ("bidirectional", 2)))
    count = 3 if (placement, devices) == ("linear", 2) else 2
    lengths = [rng.randint(2, 6) for _ in range(count)]
    lengths[rng.randrange(count)] *= rng.randint(3, 6)
    instance = of_lengths(
        lengths,
        devices,
        placement=placement,
        comm=rng.randint(0, 2),
        objective=rng.choice(("device_span", "makespan")),
    )
    assert instance.memory is not None
    extra = rng.choice((0, 4, 9, 20))
    least = [instance.smallest_limit(device) + extra for device in range(devices)]
    return replace(instance, memory=replace(instance.memory, limit=least))


def test_a_long_microbatch_decides_the_bound_of_some_of_the_cases() -> None:
    raised = 0
    for seed in range(24):
        found = {bound.name: bound.value for bound in all_bounds(with_a_long_one(seed))}
        raised += found.pop("away") > max(found.values())
    assert raised >= 12


@given(instances(max_microbatches=6, fused=True), st.integers(0, 9999))
def test_each_class_has_its_own_fused_backwards_cut(instance: Instance, seed: int) -> None:
    instance = classed(instance, seed)
    for without in split_backwards(instance):
        assert not without.fusing_saves
        # Classes that differ only in their fused backwards are one class without them.
        assert len(without.class_counts) <= len(instance.class_counts)
        for m in range(instance.microbatches):
            for stage in range(instance.stages):
                cut, least = (one.least_backward(stage, one.mb_class(m)) for one in (without, instance))
                assert cut == least


def test_a_device_idles_while_a_long_microbatch_is_away() -> None:
    """Device 0 of two has F, then 200 ticks, then B and W of 100 ticks each, and 30 ticks of another one.

    Without memory for the other one meanwhile, all 200 are idle. With it, B and W of the other one, whose F
    came before, fill 20 of them.
    """
    tight = of_lengths([100, 10], devices=2, held=1)
    assert away_bound(tight).value == 330 + 200
    assert away_bound(tight).argument.startswith("device 0 works 330 ticks")
    assert away_bound(of_lengths([100, 10], devices=2)).value == 330 + 200 - 20


def test_who_passes_a_long_microbatch_makes_it_wait() -> None:
    """Device 0 of three waits 160 ticks for a microbatch of 40, and holds 26 of the others' 60 beside it.

    Microbatches of 26 begin before, and leave 2 x 26 for the wait. The rest may pass: 34 of at most 10 ticks
    each bring 3 x 34 ticks of work, and take 34 and once 10. That leaves 160 + 34 + 10 - 52 - 102 idle ticks.
    """
    lengths = [40, 8, 9, 10, 12, 14, 7]
    assert away_bound(of_lengths(lengths, devices=3)).value == 3 * sum(lengths) + 50


@pytest.mark.parametrize(("sigma", "work", "bound"), [(0.8, 14595, 15944), (0.4, 11178, 11178)])
def test_bounds_of_thirty_two_lengths_on_eight_devices(sigma: float, work: int, bound: int) -> None:
    instance = of_lengths(log_normal(sigma, 32), devices=8)
    assert work_bound(instance).value == work
    assert best_bound(instance).value == bound


@pytest.mark.parametrize("placement", ["linear", "v"])
def test_formulas_of_sixty_four_classes_on_sixteen_devices_take_no_noticeable_time(placement: str) -> None:
    """About 0.1 seconds of processor time, as a training step waits for it: so many calls of functions."""
    instance = of_lengths(log_normal(0.8, 64), devices=16, placement=placement)
    values = list[int]()
    assert calls_of(lambda: values.append(best_bound(instance).value)) < 10**6
    assert values[0] >= instance.work(0)


def test_the_shortest_path_is_that_of_all_classes_however_many_there_are() -> None:
    """So many that they are looked at in parts; the shortest one comes last."""
    instance = of_lengths([10 + i for i in reversed(range(70))], devices=128)
    found = shortest(instance, until_first_backward)
    assert found.tolist() == until_first_backward(instance, paths_of(instance))[-1].tolist()
    assert found[0, 0] == 255 * 10
