"""The benchmark of predictions: what it recommends, and its table."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import comb, sqrt
from pathlib import Path

import pytest

from tightpipe.model.metrics import cost, peak_memory
from tightpipe.model.operation import COMPUTES
from tightpipe.runtime import Profile

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import predictions  # a script, in no package


def as_measured() -> Profile:
    """Layers of hidden size 512 on two devices, with times as PyTorch took them on two quiet cores."""
    held, by_w = 4_200_448, -1_835_008
    return Profile(
        forward=(10_700,) * 4,
        backward=(0, *[11_800] * 3),
        weight=(21_500, *[13_400] * 3),
        comm=600,
        memory=((held,) * 4, (0, *[-held - by_w] * 3), (-held, *[by_w] * 3)),
        fused=(21_500, *[22_100] * 3),
        variation=((0.2,) * 4,) * 3,
    )


def test_a_stage_of_two_layers_takes_as_long_as_both() -> None:
    """Nobody waits for a B of the first stage, so the backward of its second layer is fused."""
    instance = predictions.instance_of(as_measured(), "linear", 8)
    times = [[instance.duration(kind, stage) for kind in COMPUTES] for stage in range(2)]
    assert times == [[21_400, 0, 43_600, 43_600], [21_400, 23_600, 26_800, 44_200]]
    single = predictions.instance_of(as_measured(), "v", 8)
    assert instance.work(0) == single.work(0)


def test_an_operation_of_two_layers_begins_once() -> None:
    instance = predictions.instance_of(replace(as_measured(), start=500), "linear", 8)
    times = [[instance.duration(kind, stage) for kind in COMPUTES] for stage in range(2)]
    assert times == [[20_900, 0, 43_100, 43_100], [20_900, 23_100, 26_300, 43_700]]


def test_the_recommended_schedule_is_predicted_ahead_of_a_published_one_in_its_memory() -> None:
    profile = as_measured()
    for name in predictions.LIMITED_BY:
        like = predictions.published(profile, name, 8)
        found = predictions.recommended(profile, like, 2)
        assert cost(found) < cost(like)
        assert predictions.predicted(profile, found) < predictions.predicted(profile, like)
        assert peak_memory(found).max() <= peak_memory(like).max()
        assert 0 < predictions.fused_share(found) <= 1


def test_a_step_is_predicted_to_take_longer_than_planned_where_times_vary() -> None:
    schedule = predictions.published(as_measured(), "interleaved 1F1B", 8)
    still = replace(as_measured(), variation=((0.0,) * 4,) * 3)
    assert predictions.predicted(still, schedule) == pytest.approx(cost(schedule))
    assert predictions.predicted(as_measured(), schedule) > 1.005 * cost(schedule)


def test_two_layers_in_a_stage_vary_less_than_one() -> None:
    joined = predictions.joined(as_measured())
    assert joined.variation is not None
    forward, backward, weight = joined.variation
    assert forward == pytest.approx([0.2 / sqrt(2)] * 2)
    assert backward[1] == pytest.approx(0.2 / sqrt(2))
    assert weight[1] == pytest.approx(0.2 / sqrt(2))
    assert weight[0] == pytest.approx(0.2 / sqrt(2), abs=0.001)  # two fused backwards of about equal length


def test_published_schedules_split_and_fuse_as_they_were_published() -> None:
    shares = [
        predictions.fused_share(predictions.published(as_measured(), name, 8))
        for name in ("1F1B", "ZB-H1", "interleaved 1F1B", "V-ZB")
    ]
    assert shares == [1, 0, 1, 0]
    assert 0 < predictions.fused_share(predictions.published(as_measured(), "V-ZB, mixed", 8)) < 1


def test_the_table_of_predictions_has_medians_and_the_lead_of_what_is_recommended() -> None:
    schedule = predictions.published(as_measured(), "1F1B", 8)
    names = ["1F1B", predictions.RECOMMENDED]
    turns = ((100.0, 110.0), (90.0, 100.0)), ((100.0, 98.0), (91.0, 90.0)), ((105.0, 104.0), (91.0, 95.0))
    rounds = [
        {
            name: predictions.Ran(schedule, 90.0, predicted, (measured - 1, measured, measured + 2))
            for name, (predicted, measured) in zip(names, of_round, strict=True)
        }
        for of_round in turns
    ]
    rows = predictions.rows_of(rounds, 2.04)
    published, ours = rows
    assert (published["predicted_ms"], published["measured_ms"], published["fastest_ms"]) == (100, 104, 103)
    assert (ours["measured_ms"], ours["rounds"], ours["load"], ours["fused"]) == (95, 3, 2.0, 1.0)
    assert ours["error"] == pytest.approx(91 / 95 - 1, abs=1e-4)
    assert (published["behind"], ours["behind"]) == (round(104 / 95 - 1, 4), 0)
    # three rounds are too few for an interval, so it is that of all of them
    assert published["behind_from"] == round(98 / 90 - 1, 4)
    assert published["behind_to"] == 0.1
    assert (published["turns"], published["planned_ms"]) == (9, 90.0)
    assert predictions.lead(rows) == published["behind"]


@pytest.mark.parametrize(("count", "rank"), [(1, 0), (5, 0), (6, 0), (9, 1), (20, 5)])
def test_the_true_median_is_between_two_of_the_values_with_the_confidence_that_is_said(
    count: int, rank: int
) -> None:
    assert predictions.likely_rank(count) == rank
    # each value is below the true median like a coin: between these two places unless nearly all are alike
    outside = sum(comb(count, heads) for heads in range(rank + 1)) / 2**count * 2
    assert count < 6 or outside <= 0.05
