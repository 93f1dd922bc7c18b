from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.testing.compare import compare_images

from tightpipe.drawing import draw_bubble_rates, palette, style
from tightpipe.drawing.bubble_charts import bound_rate

BASELINE = Path(__file__).parent / "baseline"
TOLERANCE = 4.0


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the baseline small."""
    monkeypatch.setattr(style, "DPI", 100)


def row(setting: str, method: str, cost: int | None, bound: int | None, work: int = 1000) -> dict[str, Any]:
    rate = None if cost is None else (cost - work) / cost
    return {
        "setting": setting,
        "method": method,
        "bubble_rate": rate,
        "work": work,
        "bound": bound,
        "cost": cost,
    }


ROWS = [
    row("16x48", "greedy-v", 1070, None),
    row("16x48", "cpsat", 1060, 1030),
    row("16x64", "greedy-v", 1050, None),
    row("16x64", "cpsat", 1030, 1030),
    row("24x72", "greedy-v", None, None),
    row("24x72", "cpsat", 1040, None),
]


def test_baseline(tmp_path: Path) -> None:
    target = tmp_path / "bubble_rates.png"
    draw_bubble_rates(ROWS, target)
    assert compare_images(str(BASELINE / "bubble_rates.png"), str(target), TOLERANCE) is None


def test_bound_rate_is_the_bubble_rate_of_a_cost_at_the_bound() -> None:
    assert bound_rate(80, 100) == pytest.approx(0.2)
    assert bound_rate(80, 80) == 0
    assert bound_rate(80, 60) == 0


def test_names_settings_methods_and_what_is_proven(tmp_path: Path) -> None:
    draw_bubble_rates(ROWS, tmp_path / "figure.svg")
    shown = {text.strip() for text in re.findall(r"<!--(.*?)-->", (tmp_path / "figure.svg").read_text())}
    assert {"16x48", "16x64", "24x72", "greedy-v", "cpsat", "the optimum lies here"} <= shown


def walls(axes: Axes) -> list[float]:
    """Return up to which rate each setting of a panel is marked as proven impossible."""
    bars = [bar for bar in axes.patches if to_hex(bar.get_facecolor()).upper() == palette.PROVEN]
    return [bar.get_y() + bar.get_height() for bar in bars]


def test_each_panel_has_its_own_settings_and_bounds(figure_of: Callable[..., Figure]) -> None:
    rows = [
        {**row("a", "best", 1100, 1000), "panel": "device_span"},
        {**row("a", "best", 1300, 1250), "panel": "makespan"},
        {**row("b", "best", 1300, 1250), "panel": "makespan"},
    ]
    first, second = figure_of(draw_bubble_rates, rows).axes
    assert [axes.get_title() for axes in (first, second)] == ["device_span", "makespan"]
    assert [text.get_text() for text in second.get_xticklabels()] == ["a", "b"]
    assert walls(first) == [0]
    assert walls(second) == pytest.approx([0.2, 0.2])


def test_a_bound_of_one_placement_says_nothing_of_another(figure_of: Callable[..., Figure]) -> None:
    linear = {**row("a", "1f1b", 1300, 1300), "placement": "linear"}
    wide = {**row("a", "greedy-v", 1100, 1050), "placement": "v"}
    (axes,) = figure_of(draw_bubble_rates, [linear, wide]).axes
    assert walls(axes) == pytest.approx([50 / 1050])
    (axes,) = figure_of(draw_bubble_rates, [linear, {**wide, "bound": None}]).axes
    assert walls(axes) == [0]


def test_a_method_with_several_rows_is_shown_at_its_cheapest_schedule(
    figure_of: Callable[..., Figure],
) -> None:
    rows = [row("a", "best", cost, 1000) for cost in (1100, 1000, 1250, None)]
    (axes,) = figure_of(draw_bubble_rates, rows).axes
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.0]]


def test_a_band_that_no_setting_has_is_not_in_the_legend(tmp_path: Path) -> None:
    draw_bubble_rates([row("16x48", "best", 1010, 1010)], tmp_path / "figure.svg")
    shown = (tmp_path / "figure.svg").read_text()
    assert "proven bound" in shown
    assert "the optimum lies here" not in shown


@pytest.mark.parametrize(
    "rows",
    [
        [row("a", "m", None, None)],
        [row("a", "m", None, 1010)],
        [row("a", "m", 1000, 1000)],
        [row("a rather long name", f"method {i}", 1100 + i, 1000 + i) for i in range(12)],
        [row(f"setting number {i}", "m", 1100 + i, 1000 + i) for i in range(30)],
    ],
    ids=["nothing known", "bound only", "no bubble", "many methods", "many settings"],
)
def test_odd_rows_are_drawn(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    draw_bubble_rates(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 0
