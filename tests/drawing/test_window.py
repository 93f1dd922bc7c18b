"""Drawings of a stretch of time, and of any width."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.command_line import call

from tightpipe import InputError, Schedule, save_schedule
from tightpipe.drawing import draw_text, plot, style
from tightpipe.drawing.gantt import gantt_figure
from tightpipe.drawing.lanes import Window


def numbers_in(schedule: Schedule, window: Window) -> list[str]:
    """The texts in the bars of a figure."""
    return [text.get_text() for text in plot(schedule, window=window).axes[0].texts]


def test_only_the_window_is_drawn(small_v: Schedule) -> None:
    figure = plot(small_v, window=(10, 30), memory=True)
    assert [axes.get_xlim() for axes in figure.axes] == [(10, 30), (10, 30)]
    inside = [
        small_v.order.operation_at(row)
        for row in range(len(small_v.order))
        if small_v.start[row] >= 10 and small_v.end[row] <= 30
    ]
    texts = numbers_in(small_v, (10, 30))
    assert {f"{op.kind.name}{op.microbatch}" for op in inside} <= set(texts)
    assert len(inside) <= len(texts) < len(small_v.order)


def test_an_open_window_ends_with_the_schedule(small_v: Schedule) -> None:
    last = int(small_v.end.max())
    assert plot(small_v, window=(10, None)).axes[0].get_xlim() == (10, last)
    assert plot(small_v, window=(None, 10)).axes[0].get_xlim() == (0, 10)
    assert plot(small_v).axes[0].get_xlim() == (0, last)


def test_numbers_stand_within_the_window(small_v: Schedule) -> None:
    """A bar of which too little is left has no number; in one that is cut it moves into what is left."""
    axes = plot(small_v, window=(11, 30)).axes[0]
    for text in axes.texts:
        assert 11 < text.get_position()[0] < 30


def test_a_window_of_thousands_is_drawn_with_numbers(
    small_v: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(style, "DENSE_BARS", 12)
    assert numbers_in(small_v, (None, None)) == []
    assert numbers_in(small_v, (0, 12)) != []


def test_what_is_said_above_remains_that_of_the_whole(small_v: Schedule) -> None:
    whole, part = (plot(small_v, window=window).axes[0] for window in ((None, None), (10, 20)))
    assert part.get_title(loc="right") == whole.get_title(loc="right")


@pytest.mark.parametrize("window", [(5, 5), (6, 5), (10**6, None), (None, 0), (0, -5)])
def test_an_empty_window_is_refused(window: Window, small_v: Schedule) -> None:
    for draw in (plot, draw_text):
        with pytest.raises(InputError, match=r"window = '.* to .*': must be .* within the ticks 0 to \d+"):
            draw(small_v, window=window)


def test_text_is_cut_at_the_window(small_v: Schedule) -> None:
    whole = draw_text(small_v, scale=1).splitlines()
    part = draw_text(small_v, scale=1, window=(10, 30)).splitlines()
    assert part[0] == "1 character = 1 ticks, from tick 10 to 30"
    assert [line[2:] for line in part[1:3]] == [line[2 + 10 : 2 + 30] for line in whole[1:3]]
    assert part[3].startswith("  |10")


def test_text_of_a_window_has_the_characters_that_its_head_says(small_v: Schedule) -> None:
    """Characters begin at the window's first tick, whatever the scale."""
    fine = draw_text(small_v, scale=1, window=(10, 31)).splitlines()
    coarse = draw_text(small_v, scale=4, window=(10, 31)).splitlines()
    assert [len(line) for line in coarse[1:3]] == [2 + 5, 2 + 5]
    idle = [i for i in range(5) if set(fine[2][2 + 4 * i : 6 + 4 * i]) == {"."}]
    assert all(coarse[2][2 + i] == "." for i in idle)
    beyond = draw_text(small_v, scale=1, window=(-3, 10**2)).splitlines()
    assert beyond[1].startswith("0|...F0")
    assert len(beyond[1]) == 2 + 103


@pytest.mark.parametrize("width", [3.0, 3.4, 7.0, 12.5])
def test_everything_stands_within_the_width(width: float, greedy_v: Schedule, fused: Schedule) -> None:
    drawn = [("a label that is longer than its place", greedy_v), ("1F1B", fused)]
    figure = gantt_figure(drawn, memory=True, bounds=[230, None], width=width)
    assert figure.get_figwidth() == width
    figure.canvas.draw()
    right = width * figure.dpi
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    boxes = [legend.get_window_extent() for legend in legends]
    boxes += [axes.get_tightbbox() for axes in figure.axes]
    assert all(box.x0 >= 0 and box.x1 <= right + 8 for box in boxes)  # 8: half of the last time's label
    for axes in figure.axes:
        left, numbers = axes._left_title, axes._right_title  # type: ignore[attr-defined]
        apart = left.get_window_extent().x1 <= numbers.get_window_extent().x0
        assert apart or left.get_text().count("\n") > numbers.get_text().count("\n")


@pytest.mark.parametrize("width", [2.9, 101, float("nan")])
def test_a_width_out_of_range_is_refused(width: float, small_v: Schedule) -> None:
    with pytest.raises(InputError, match=r"width = .*: must be a number of inches, 3 to 100"):
        plot(small_v, width=width)


def test_plot_takes_window_and_width(small_v: Schedule, tmp_path: Path) -> None:
    save_schedule(small_v, tmp_path / "s.json")
    done = call("plot", "s.json", "-o", "s.svg", "--from", "10", "--to", "30", "--width", "4", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    svg = (tmp_path / "s.svg").read_text()
    assert 'width="288pt"' in svg
    times = [int(text) for text in re.findall(r"<!-- (\d+) -->", svg) if len(text) == 2]
    assert min(times) >= 10
    assert 20 < max(times) <= 30
    text = call("plot", "s.json", "--text", "--from", "10", "--to", "30", cwd=tmp_path).stdout
    assert "from tick 10 to 30" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("-o s.png --from 9 --to 3", "window = '9 to 3': must be a stretch of time"),
        ("-o s.png --width 1", "width = 1.0: must be a number of inches, 3 to 100"),
        ("--text --width 4", "width = 4.0: is that of a picture, which -o names"),
        ("-o s.png --from ten", "Invalid value for '--from'"),
    ],
)
def test_plot_refuses_what_shows_nothing(words: str, message: str, small_v: Schedule, tmp_path: Path) -> None:
    save_schedule(small_v, tmp_path / "s.json")
    done = call("plot", "s.json", *words.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "s.png").exists()
