"""The chart of plans: where the proven area, the band and the markers lie."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from tightpipe.drawing import draw_plans, palette

Draw = Callable[..., Figure]
LABELS = {"x_label": "memory", "y_label": "time"}


def point(place: str, value: float | None, bound: float | None, series: str = "plan") -> dict[str, Any]:
    return {"place": place, "series": series, "value": value, "bound": bound}


def areas(figure: Figure, colour: str) -> dict[int, tuple[float, float]]:
    """Return, by place, from where to where the bars of a colour go; those without height are left out."""
    bars = [bar for bar in figure.axes[0].patches if to_hex(bar.get_facecolor()).upper() == colour]
    return {
        round(bar.get_x() + bar.get_width() / 2): (bar.get_y(), bar.get_y() + bar.get_height())
        for bar in bars
        if bar.get_height() > 0
    }


def test_a_time_lies_above_its_bound(figure_of: Draw) -> None:
    figure = figure_of(draw_plans, [point("a", 12, 10), point("b", 9, 9)], **LABELS)
    assert areas(figure, palette.UNDECIDED) == {0: (10, 12)}
    assert areas(figure, palette.PROVEN) == {0: (0, 10), 1: (0, 9)}


def test_a_throughput_lies_below_its_bound(figure_of: Draw) -> None:
    figure = figure_of(draw_plans, [point("a", 10, 12), point("b", 20, 20)], **LABELS, higher=True)
    _, top = figure.axes[0].get_ylim()
    assert areas(figure, palette.UNDECIDED) == {0: (10, 12)}
    assert areas(figure, palette.PROVEN) == {0: pytest.approx((12, top)), 1: pytest.approx((20, top))}


@pytest.mark.parametrize(("higher", "bound"), [(False, inf), (True, 0.0)])
def test_where_nothing_fits_everything_is_impossible(higher: bool, bound: float, figure_of: Draw) -> None:
    figure = figure_of(draw_plans, [point("a", None, bound), point("b", 9, 9)], **LABELS, higher=higher)
    assert areas(figure, palette.PROVEN)[0] == pytest.approx(figure.axes[0].get_ylim())
    assert areas(figure, palette.UNDECIDED) == {}


def test_without_a_plan_the_optimum_may_be_anywhere_above_the_bound(figure_of: Draw) -> None:
    figure = figure_of(draw_plans, [point("a", None, 10), point("b", 30, None)], **LABELS)
    _, top = figure.axes[0].get_ylim()
    assert areas(figure, palette.UNDECIDED) == {0: pytest.approx((10, top))}
    assert 1 not in areas(figure, palette.PROVEN)


def test_each_plan_is_a_marker(figure_of: Draw) -> None:
    points = [point("a", 12, 10, "best"), point("a", 14, None, "uniform"), point("b", 13, 10, "best")]
    figure = figure_of(draw_plans, points, **LABELS)
    drawn = {tuple(xy) for line in figure.axes[0].get_lines() for xy in line.get_xydata().tolist()}
    assert drawn == {(0, 12), (0, 14), (1, 13)}
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["a", "b"]


@pytest.mark.parametrize("higher", [False, True])
def test_the_axis_of_bars_begins_at_zero_and_shows_all_numbers(higher: bool, figure_of: Draw) -> None:
    bounds = (1003, 1001) if higher else (1001, 1000)
    points = [point(place, 1002, bound) for place, bound in zip("ab", bounds, strict=True)]
    bottom, top = figure_of(draw_plans, points, **LABELS, higher=higher).axes[0].get_ylim()
    assert bottom == 0
    assert top > 1003


def test_markers_of_equal_plans_enclose_each_other(figure_of: Draw) -> None:
    points = [point("a", 12, None, "uniform split"), point("a", 12, 10, "best split")]
    first, second = figure_of(draw_plans, points, **LABELS).axes[0].get_lines()
    seen = [line.get_markersize() - line.get_markeredgewidth() for line in (first, second)]
    assert seen[0] >= 1.5 * seen[1]
