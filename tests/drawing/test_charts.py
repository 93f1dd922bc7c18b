"""What the charts of studies draw: steps where a function is one, and everything that there is to show."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tightpipe.drawing import (
    draw_bubble_rates,
    draw_frontier,
    draw_gap_over_time,
    draw_shares,
    palette,
)

Draw = Callable[..., Figure]


def rate(x: float, method: str, bubble_rate: float | None, panel: str = "a") -> dict[str, Any]:
    return {"panel": panel, "x": x, "method": method, "bubble_rate": bubble_rate, "bound_rate": 0.1 / x}


def share(setting: str, method: str, value: float | None, why: str = "") -> dict[str, Any]:
    return {"setting": setting, "method": method, "share": value, "why": why}


def series(axes: Axes, method: str) -> list[Line2D]:
    marker = palette.series([method])[method].marker
    return [line for line in axes.get_lines() if line.get_marker() == marker]


def words(figure: Figure) -> dict[str, tuple[float, float]]:
    """Return the texts within the axes with their places in data."""
    return {text.get_text(): text.get_position() for text in figure.axes[0].texts if text.get_text()}


@pytest.mark.parametrize(("looser", "holds"), [(True, "steps-post"), (False, "steps-pre")])
def test_a_frontier_is_level_as_long_as_a_schedule_holds(looser: bool, holds: str, figure_of: Draw) -> None:
    points = [rate(x, "cpsat", y) for x, y in ((1, 0.5), (2, 0.3), (3, 0.2))]
    figure = figure_of(draw_frontier, points, x_label="memory", looser=looser)
    (line,) = series(figure.axes[0], "cpsat")
    assert line.get_drawstyle() == holds
    assert line.get_xydata().tolist() == [[1, 0.5], [2, 0.3], [3, 0.2]]


def test_a_frontier_shows_all_points_of_all_panels(figure_of: Draw) -> None:
    points = [
        rate(1, "cpsat", 0.5), rate(9, "cpsat", 0.2), rate(5, "cpsat", 0.3, "b"), rate(6, "list", None, "b")
    ]  # fmt: skip
    figure = figure_of(draw_frontier, points, x_label="memory", looser=True)
    for axes in figure.axes:
        first, last = axes.get_xlim()
        assert first < 1
        assert last > 9
    assert series(figure.axes[1], "list") == []


def test_series_that_coincide_all_show(figure_of: Draw) -> None:
    points = [rate(x, method, 0.3) for method in ("greedy-v", "v-zb", "cpsat") for x in (1, 2)]
    figure = figure_of(draw_frontier, points, x_label="memory", looser=True)
    lines = [series(figure.axes[0], method)[0] for method in ("greedy-v", "v-zb", "cpsat")]
    sizes = [line.get_markersize() for line in lines]
    assert all(outer - inner > 0.5 for outer, inner in pairwise(sizes))
    assert len({line.get_linestyle() + str(line._dash_pattern) for line in lines}) == 3


def test_a_method_without_a_point_takes_no_room(figure_of: Draw, tmp_path: Path) -> None:
    gap = {"solve": "a", "method": "milp", "start": "best", "seconds": 1.0, "gap": 0.1}
    setting = {"setting": "a", "method": "best", "bubble_rate": 0.1, "work": 80, "bound": 85}
    figures = [
        figure_of(draw_gap_over_time, [{**gap, "panel": "a"}, {**gap, "panel": "b", "method": "best"}]),
        figure_of(draw_frontier, [rate(1, "cpsat", 0.5), rate(1, "list", None)], x_label="x", looser=True),
        figure_of(draw_bubble_rates, [setting, {**setting, "method": "cpsat", "bubble_rate": None}]),
    ]
    for number, figure in enumerate(figures):
        figure.savefig(tmp_path / f"{number}.png")  # what arranges it
        places = [axes.get_position() for axes in figure.axes]
        assert sum(place.width for place in places) > 0.7
        assert min(place.y0 for place in places) < 0.3


def test_a_proven_schedule_has_a_ring_and_a_limit_without_a_schedule_is_a_gap(figure_of: Draw) -> None:
    rates = {"v-zb": (0.5, None, 0.3), "v-half": (None, None, None), "best": (0.4, 0.3, 0.2)}
    points = [
        {**rate(x, method, y), "optimal": y == 0.3 and method == "best"}
        for method, found in rates.items()
        for x, y in zip((1, 2, 3), found, strict=True)
    ]
    (panel,) = figure_of(draw_frontier, points, x_label="memory", looser=None).axes
    (published,) = series(panel, "v-zb")
    assert [str(y) for y in published.get_ydata()] == ["0.5", "nan", "0.3"]
    assert series(panel, "v-half") == []
    rings = [line for line in panel.get_lines() if line.get_markerfacecolor() == "none"]
    assert [line.get_xydata().tolist() for line in rings] == [[[2, 0.3]]]


def test_the_band_lies_between_the_bound_and_the_cheapest_schedule(figure_of: Draw) -> None:
    points = [rate(x, method, y) for method, y in (("list", 0.5), ("best", 0.4)) for x in (1, 2)]
    (panel,) = figure_of(draw_frontier, points, x_label="memory", looser=None).axes
    band, impossible = (area.get_paths()[0].get_extents() for area in panel.collections)
    assert (band.x0, band.x1, band.y1) == (1, 2, 0.4)
    assert (impossible.y0, impossible.y1) == (0, 0.1)


def test_a_warm_start_has_its_line_in_every_figure(figure_of: Draw) -> None:
    def dashes(*starts: str) -> list[object]:
        points = [
            {"panel": "a", "solve": start, "method": "milp", "start": start, "seconds": 1.0, "gap": 0.1}
            for start in starts
        ]
        figure = figure_of(draw_gap_over_time, points)
        return [line._dash_pattern[1] for line in series(figure.axes[0], "milp")]

    solid, dashed = dashes("best", "none")
    assert solid is None
    assert dashed is not None
    assert dashes("none", "best") == [dashed, solid]


def test_solves_that_differ_in_their_seed_alone_have_a_line_each(figure_of: Draw) -> None:
    points = [
        {"panel": "a", "solve": solve, "method": "best", "start": "best", "seconds": seconds, "gap": 0.1}
        for solve in ("first", "second")
        for seconds in (1.0, 2.0)
    ]
    lines = series(figure_of(draw_gap_over_time, points).axes[0], "best")
    assert [list(line.get_xdata()) for line in lines] == [[1.0, 2.0]] * 2


def test_a_wide_legend_leaves_room_for_the_panels(figure_of: Draw, tmp_path: Path) -> None:
    points = [
        {
            "panel": "a",
            "solve": f"{k}{start}",
            "method": f"a rather long name {k}",
            "start": start,
            "seconds": 1.0,
            "gap": 0.1,
        }
        for k in range(9)
        for start in ("best", "none")
    ]
    figure = figure_of(draw_gap_over_time, points)
    figure.savefig(tmp_path / "figure.png")  # what arranges it
    assert figure.axes[0].get_position().width > 0.8
    for legend in figure.legends:
        box = legend.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


def test_a_share_beyond_the_axis_is_an_arrow_with_its_value(figure_of: Draw) -> None:
    points = [share("a", "cpsat", -2.588), share("a", "best", 0.4), share("b", "best", -0.2)]
    figure = figure_of(draw_shares, points, x_label="share")
    edge = figure.axes[0].get_xlim()[0]
    (x, y) = words(figure)["−259%"]
    assert edge < x < edge + 0.1
    assert -0.5 < y < 0.5
    drawn = [
        line.get_xydata()[0].tolist() for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 1
    ]
    assert [x for x, _ in drawn] == [edge, 0.4, -0.2]
    assert edge <= -0.2


def test_equal_shares_do_not_hide_each_other(figure_of: Draw) -> None:
    points = [share("a", method, 1.0) for method in ("cpsat", "improve", "best")]
    figure = figure_of(draw_shares, points, x_label="share")
    places = {series(figure.axes[0], m)[0].get_ydata()[0] for m in ("cpsat", "improve", "best")}
    assert len(places) == 3


def test_a_missing_share_says_why(figure_of: Draw) -> None:
    why = "greedy-v is proven optimal: nothing to avoid"
    points = [
        *(share("closed", method, None, why) for method in ("cpsat", "best")),
        share("half", "cpsat", None, "no schedule of cpsat"),
        share("half", "best", 0.9),
    ]
    figure = figure_of(draw_shares, points, x_label="share")
    said = words(figure)
    assert said[why][1] == 0
    assert 0 <= said[why][0] < 0.1
    assert said["no schedule of cpsat"][1] == 1
    assert said["no schedule of cpsat"][0] > 1  # beside the marks, not over them
