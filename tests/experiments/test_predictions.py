"""The benchmark of predictions: what it recommends, and its table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tightpipe.model.metrics import cost, peak_memory
from tightpipe.runtime import Profile

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import predictions  # a script, in no package


def as_measured(placement: str) -> Profile:
    """A transformer of hidden size 512 on two devices, with times as PyTorch took them on two quiet cores."""
    stages = 2 if placement == "linear" else 4
    layers, later = 4 // stages, stages - 1
    held, by_w = 4_200_448, -1_835_008
    memory = [held] * stages, [0] + [-held - by_w] * later, [-held] + [by_w] * later
    return Profile(
        forward=(10_700 * layers,) * stages,
        backward=(0, *[11_800 * layers] * later),
        weight=(21_500 * layers, *[13_400 * layers] * later),
        comm=600,
        memory=tuple(tuple(layers * value for value in column) for column in memory),  # type: ignore[arg-type]
        fused=(22_100 * layers,) * stages,
    )


def test_the_recommended_schedule_is_predicted_ahead_of_a_published_one_in_its_memory() -> None:
    profiles = {placement: as_measured(placement) for placement in predictions.PLACEMENTS}
    for name in predictions.LIMITED_BY:
        like = predictions.published(profiles, name, 8)
        found = predictions.recommended(profiles, like, 2)
        assert cost(found) < cost(like)
        assert peak_memory(found).max() <= peak_memory(like).max()
        assert 0 < predictions.fused_share(found) <= 1


def test_the_table_of_predictions_has_medians_and_the_lead_of_what_is_recommended() -> None:
    profile = {"linear": as_measured("linear")}
    schedule = predictions.published(profile, "1F1B", 8)
    names = ["1F1B", "tightpipe, memory of 1F1B"]
    times = [(100.0, 110.0), (90.0, 100.0)], [(100.0, 100.0), (91.0, 90.0)], [(105.0, 104.0), (91.0, 95.0)]
    rounds = [
        {
            name: predictions.Ran(schedule, predicted, measured, measured - 1)
            for name, (predicted, measured) in zip(names, of_round, strict=True)
        }
        for of_round in times
    ]
    rows = predictions.rows_of(rounds, 2.04)
    published, ours = rows
    assert (published["predicted_ms"], published["measured_ms"], published["fastest_ms"]) == (100, 104, 103)
    assert (ours["measured_ms"], ours["rounds"], ours["load"], ours["fused"]) == (95, 3, 2.0, 1.0)
    assert ours["error"] == pytest.approx(91 / 95 - 1, abs=1e-4)
    assert predictions.lead(rows, "measured_ms") == pytest.approx(104 / 95 - 1)
