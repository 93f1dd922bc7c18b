"""The chart of distributions: a row for each schedule, with its marks where its figures are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tightpipe.drawing.study_charts import _draw_distributions, draw_distributions

COSTS = np.random.default_rng(0).normal(1000, 20, 500)
POINTS = [
    {"name": "one", "planned": 960, "costs": COSTS},
    {"name": "other", "planned": 1000, "costs": np.full(5, 1040.0)},
]


def test_marks_stand_at_the_planned_cost_the_mean_and_the_percentile() -> None:
    (axes,) = _draw_distributions(POINTS).axes
    marks = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in axes.lines]
    first = [(960.0, 0.0), (COSTS.mean(), 0.0), (np.quantile(COSTS, 0.95), 0.0)]
    assert np.allclose(marks, [*first, (1000.0, 1.0), (1040.0, 1.0), (1040.0, 1.0)])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["one", "other"]


def test_a_single_cost_is_drawn(tmp_path: Path) -> None:
    draw_distributions([{"name": "one", "planned": 5, "costs": np.array([5.0])}], tmp_path / "d.svg")
    assert (tmp_path / "d.svg").read_text().startswith("<?xml")
