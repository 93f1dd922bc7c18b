"""Devices of different speed: the times of stages, the bounds, and the cuts that suit them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Any

import pytest
from helpers.random_models import cases, configuration, taken
from helpers.schedules import by_heuristics
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Placement
from tightpipe.base.errors import InputError
from tightpipe.model.metrics import cost
from tightpipe.planning import Batch, Candidate, Cluster, Layer, Model, PlanningProblem, Recomputation
from tightpipe.planning.candidate import instance_of, numbers_of
from tightpipe.planning.cluster import Speed
from tightpipe.planning.partitions import partitions_of
from tightpipe.planning.problem_file import problem_from_dict, problem_to_dict

KIND = Recomputation("full", 5, 0)
BLOCK = Layer("block", 4, 6, 3, activation=8, weight_activation=2, recompute=(KIND,), fused=7)
SLOW: Speed = (Fraction(1, 2), Fraction(3, 4), Fraction(1, 3))
FULL: Speed = (Fraction(1),) * 3  # type: ignore[assignment]
SPEEDS = st.tuples(*(st.builds(Fraction, st.integers(1, 4), st.just(4)) for _ in range(3)))


def asked(*speeds: Speed, layers: int = 6) -> PlanningProblem:
    return PlanningProblem(Model((BLOCK,) * layers), Cluster((len(speeds),), speeds=speeds), Batch(8))


def file(speeds: Any, devices: Any = 2) -> dict[str, Any]:
    layer = {"forward": 1, "backward": 1, "weight": 1, "count": 4}
    return {
        "layers": [layer],
        "cluster": {"devices": devices, "speeds": speeds},
        "batch": {"microbatches": 4},
        "search": {"placements": ["linear"]},
    }


def test_a_stage_takes_as_long_as_its_device_needs() -> None:
    candidate = Candidate(Placement("linear", 2), (0, 3, 6), (((0, "full"),), ((3, "full"),)))
    fast, slow = numbers_of(asked(FULL, SLOW), candidate)
    assert (fast.forward, fast.backward, fast.weight, fast.fused) == (12, 23, 9, 26)
    assert (slow.forward, slow.backward, slow.weight) == (24, 31, 27)  # 23 / (3 / 4), rounded up
    assert slow.fused == 40  # W is as short as one operation makes it: 23 / (3 / 4) + 3 / (1 / 3)
    assert (slow.held, slow.freed_by_weight) == (fast.held, fast.freed_by_weight)


def test_a_device_with_half_the_speed_gets_half_as_many_layers() -> None:
    half: Speed = (Fraction(1, 2),) * 3  # type: ignore[assignment]
    problem = asked(FULL, half)
    for name, sizes in (("linear", [4, 2]), ("v", [4, 2]), ("loop", [4, 2])):
        placement = Placement(name, 2)
        found = partitions_of(configuration(problem, placement)).take()
        assert found is not None
        held = [
            sum(end - first for first, end in (found.stages[s] for s in placement.stages_on(device)))
            for device in range(2)
        ]
        assert held == sizes


@given(cases(), st.lists(SPEEDS, min_size=3, max_size=3))
@settings(max_examples=25)
def test_no_bound_is_above_a_schedule_on_slower_devices(
    case: tuple[PlanningProblem, Placement], speeds: list[Speed]
) -> None:
    problem, placement = case
    cluster = replace(problem.cluster, speeds=tuple(speeds[: placement.devices]))
    problem = replace(problem, cluster=cluster)
    for bound, candidate in islice(taken(problem, placement), 3):
        instance = instance_of(problem, candidate)
        for schedule in by_heuristics(instance):
            assert bound <= cost(schedule)


def test_speeds_are_read_as_they_are_written() -> None:
    problem = problem_from_dict(file([1, {"forward": 0.5, "backward": 0.25}]))
    assert problem.cluster.speeds == (FULL, (Fraction(1, 2), Fraction(1, 4), Fraction(1)))
    assert problem_from_dict(problem_to_dict(problem)) == problem


@pytest.mark.parametrize(
    ("speeds", "devices", "message"),
    [
        ([1, 0], 2, r"cluster.speeds\[1\] = 0: must be above 0"),
        ([1, 2], 2, r"cluster.speeds\[1\] = 2: must be at most 1"),
        ([1, {"weight": 0}], 2, r"cluster.speeds\[1\].weight = 0: must be above 0"),
        ([1, {"speed": 1}], 2, r"unknown key in cluster.speeds\[1\]"),
        ([1], 2, r"cluster.speeds = \[1\]: must be a list of 2 numbers or tables"),
        (0.5, 2, r"cluster.speeds = 0.5: must be a list of 2 numbers or tables"),
        ([1, 1], [2, 4], r"cluster.speeds = \[1, 1\]: .*one number of devices"),
    ],
)
def test_a_wrong_speed_is_refused_in_one_line(speeds: Any, devices: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        problem_from_dict(file(speeds, devices))


def test_speeds_are_refused_beside_laws() -> None:
    data = file([1, 0.5])
    data["layers"][0]["forward"] = {"tokens": 1}
    data["batch"] |= {"microbatch_size": 1, "sequence_length": 8}
    with pytest.raises(InputError, match=r"cluster.speeds: must be left out where layers have laws"):
        problem_from_dict(data)
