from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.cases import serial_order
from matplotlib.figure import Figure
from matplotlib.testing.compare import compare_images

from tightpipe import InputError, Instance, OpKind, Schedule, retime, simulate
from tightpipe.drawing import draw_gantt, draw_text, palette, style
from tightpipe.drawing.bars import draw_memory, envelope, memory_steps
from tightpipe.drawing.gantt import side_by_side_figure
from tightpipe.drawing.lanes import WHOLE, shown_ticks
from tightpipe.model import metrics
from tightpipe.model.costs import Step
from tightpipe.model.operation import COMPUTES

BASELINE = Path(__file__).parent / "baseline"
TOLERANCE = 4.0  # root mean square of 0..255, for text that another version renders otherwise


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the baselines small."""
    monkeypatch.setattr(style, "DPI", 100)


def svg_of(schedules: list[tuple[str, Schedule]], tmp_path: Path, **options: object) -> str:
    """Draw as SVG with the texts as texts."""
    target = tmp_path / "figure.svg"
    draw_gantt(schedules, path=target, **options)  # type: ignore[arg-type]
    return target.read_text()


def texts(svg: str) -> list[str]:
    """Return the texts of an SVG, which names each above its outlines."""
    return [text.strip() for text in re.findall(r"<!--(.*?)-->", svg)]


def test_baseline(greedy_v: Schedule, tmp_path: Path) -> None:
    target = tmp_path / "gantt.png"
    draw_gantt([("greedy V-schedule", greedy_v)], path=target, memory=True, bounds=[230])
    assert compare_images(str(BASELINE / "gantt.png"), str(target), TOLERANCE) is None


def test_baseline_of_two(small_v: Schedule, fused: Schedule, tmp_path: Path) -> None:
    target = tmp_path / "stacked.png"
    draw_gantt([("V", small_v), ("1F1B", fused)], path=target)
    assert compare_images(str(BASELINE / "stacked.png"), str(target), TOLERANCE) is None


def test_baseline_tells_another_order(greedy_v: Schedule, tmp_path: Path) -> None:
    late = replace(greedy_v, start=greedy_v.start + 3 * (greedy_v.start > 100))
    draw_gantt([("greedy V-schedule", late)], path=tmp_path / "gantt.png", memory=True, bounds=[230])
    assert compare_images(str(BASELINE / "gantt.png"), str(tmp_path / "gantt.png"), TOLERANCE) is not None


def test_says_label_cost_bubble_rate_and_bound(greedy_v: Schedule, tmp_path: Path) -> None:
    shown = texts(svg_of([("my $label", greedy_v)], tmp_path, bounds=[122]))
    cost = metrics.cost(greedy_v)
    assert "my $label" in shown
    gap = f"bound 122 (gap {(cost - 122) / cost:.2%})"
    assert f"cost {cost}   bubble rate {metrics.bubble_rate(greedy_v):.2%}   {gap}" in shown


def test_numbers_each_operation_while_they_fit(small_v: Schedule, tmp_path: Path) -> None:
    shown = texts(svg_of([("v", small_v)], tmp_path))
    assert [shown.count(f"{kind}1") for kind in "FBW"] == [4, 4, 4]
    assert shown.count("1") == 1  # a device
    assert len(re.findall(r"[FBW][01]", " ".join(shown))) == 24


def test_numbers_stand_alone_where_letters_do_not_fit(greedy_v: Schedule, tmp_path: Path) -> None:
    shown = texts(svg_of([("v", greedy_v)], tmp_path))
    assert "F1" not in shown
    assert shown.count("1") == 24 + 1  # and one device


def test_fused_backwards_are_hatched(fused: Schedule, small_v: Schedule, tmp_path: Path) -> None:
    svg = svg_of([("1f1b", fused)], tmp_path)
    assert "<pattern" in svg
    assert "BW2" in texts(svg)
    assert "<pattern" not in svg_of([("v", small_v)], tmp_path)


def test_numbers_fade_out(large_v: Schedule, tmp_path: Path) -> None:
    shown = texts(svg_of([("v", large_v)], tmp_path))
    assert "255" not in shown
    assert "idle" in shown


def test_legend_names_what_is_there(small_v: Schedule, fused: Schedule, tmp_path: Path) -> None:
    shown = texts(svg_of([("a", small_v), ("b", fused)], tmp_path))
    legend = ["F chunk 0", "F chunk 1", "B chunk 0", "B chunk 1", "W chunk 0", "W chunk 1", "BW chunk 0"]
    assert [text for text in shown if "chunk" in text] == legend
    assert "BW" in texts(svg_of([("b", fused)], tmp_path))


@pytest.mark.parametrize("placement", ["linear", "v", "loop", "wave", "bidirectional"])
def test_every_placement(placement: str, tmp_path: Path) -> None:
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=3, backward=3, weight=2, placement=placement
    )
    shown = texts(svg_of([(placement, simulate(instance, serial_order(instance)))], tmp_path))
    assert ("F direction 1" in shown) == (placement == "bidirectional")


def test_long_labels_are_cut_in_the_middle(small_v: Schedule, tmp_path: Path) -> None:
    shown = texts(svg_of([("a" * 60 + "\n" + "b" * 60, small_v)], tmp_path))
    assert "a" * 22 + "…" + "b" * 22 in shown


def test_without_schedules(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no schedule"):
        draw_gantt([], path=tmp_path / "figure.png")


def test_memory_of_an_instance_without(fused: Schedule, small_v: Schedule, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no memory deltas"):
        draw_gantt([("1F1B", fused)], path=tmp_path / "figure.png", memory=True)
    shown = texts(svg_of([("1F1B", fused), ("V", small_v)], tmp_path, memory=True))
    assert shown.count("memory") == 1


def test_memory_limits(small_v: Schedule, paired: Schedule, tmp_path: Path) -> None:
    assert "limit 8" in texts(svg_of([("v", small_v)], tmp_path, memory=True))
    memory = replace(paired.instance.memory, limit=(8, 6))  # type: ignore[type-var]
    uneven = replace(paired, instance=replace(paired.instance, memory=memory))
    assert "limits" in texts(svg_of([("v", uneven)], tmp_path, memory=True))


def test_operations_that_run_together_share_a_row(paired: Schedule, tmp_path: Path) -> None:
    shown = texts(svg_of([("DualPipe", paired)], tmp_path))
    assert sum(text in ("F3", "B3", "W3") for text in shown) == 6  # each microbatch has 6 operations here
    for times, _ in memory_steps(paired):
        assert (np.diff(times) >= 0).all()


def test_iteration_border(small_v: Schedule, tmp_path: Path) -> None:
    assert "next iteration" not in texts(svg_of([("v", small_v)], tmp_path))
    two = replace(small_v, instance=replace(small_v.instance, iterations=2, flush=False))
    assert "next iteration" in texts(svg_of([("v", two)], tmp_path))


def test_memory_steps(small_v: Schedule) -> None:
    times, levels = next(memory_steps(small_v))
    assert levels.max() == metrics.peak_memory(small_v)[0]
    assert levels[0] == levels[-1] == 0
    assert (np.diff(times) >= 0).all()
    # F0.0, F0.1, F3.0 are held when B3.0 ends and frees 1
    assert levels[times == 24].tolist() == [5, 7]


def test_envelope_misses_no_peak(large_v: Schedule) -> None:
    for times, levels in memory_steps(large_v):
        _, largest = envelope(times, levels, 50)
        assert largest.max() == levels.max()
        assert largest[-1] == 0


def test_envelope_holds_what_lasts_through_a_part() -> None:
    times, levels = envelope(np.array([0, 0, 90, 100]), np.array([0, 7, 1, 0]), 10)
    assert times.tolist() == list(range(0, 101, 10))
    assert levels.tolist() == [7] * 9 + [1, 0]


@pytest.mark.parametrize(("suffix", "limit"), [(".pdf", 500_000), (".svg", 1_000_000), (".png", 1_500_000)])
def test_large(large_v: Schedule, tmp_path: Path, suffix: str, limit: int) -> None:
    target = tmp_path / f"large{suffix}"
    draw_gantt([("large", large_v)], path=target, memory=True)
    assert target.stat().st_size < limit


def test_text_stands_out_from_every_colour() -> None:
    for kind in COMPUTES:
        for lane in range(4):
            colour = palette.shade(kind, lane, 4)
            assert palette.text_colour(colour) in ("black", "white")
    assert palette.text_colour(palette.shade(OpKind.F, 0, 2)) == "white"
    assert palette.text_colour(palette.shade(OpKind.B, 1, 2)) == "black"


def test_memory_is_drawn_as_steps_at_the_times_of_its_changes(greedy_v: Schedule) -> None:
    axes = Figure().add_subplot()
    draw_memory(axes, greedy_v)
    lines = axes.get_lines()[: greedy_v.order.devices]
    for line, (times, levels) in zip(lines, memory_steps(greedy_v), strict=True):
        assert line.get_drawstyle() == "steps-post"
        assert line.get_xdata().tolist() == times.tolist()
        assert line.get_ydata().tolist() == levels.tolist()


def test_reductions_and_optimizers_end_a_step(small_v: Schedule, tmp_path: Path) -> None:
    late = replace(small_v.instance, objective="step", step=Step(reduce=3, optimizer=5))
    schedule = retime(late, small_v.order)
    assert {"reduction", "optimizer"} <= set(texts(svg_of([("step", schedule)], tmp_path)))
    assert not {"reduction", "optimizer"} & set(texts(svg_of([("span", small_v)], tmp_path)))
    assert shown_ticks([schedule], WHOLE) == (0, metrics.cost(schedule))


def test_empty_stages_neither_have_numbers_nor_take_letters_from_others(tmp_path: Path) -> None:
    """The second chunk of each device has empty stages alone."""
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=[10, 10, 0, 0], backward=[12, 12, 0, 0], weight=[8, 8, 0, 0],
        placement="loop", chunks=2, objective="makespan",
    )  # fmt: skip
    drawn = texts(svg_of([("empty", simulate(instance, serial_order(instance)))], tmp_path))
    for name in ("F0", "F1", "B0", "B1", "W0", "W1"):
        assert drawn.count(name) == 2
    assert {text for text in drawn if "chunk" in text} == {"F chunk 0", "B chunk 0", "W chunk 0"}


@pytest.mark.parametrize("factor", [1, 1000])
def test_a_plan_above_its_run_is_drawn_to_the_end_of_its_optimizers(small_v: Schedule, factor: int) -> None:
    step = Step(ready=100, reduce=30, optimizer=50)
    plan = retime(replace(small_v.instance, objective="step", step=step), small_v.order)
    measured = replace(plan, start=plan.start * factor, end=plan.end * factor)
    axes = side_by_side_figure(plan, measured).axes[0]
    assert axes.get_xlim() == (0, factor * metrics.cost(plan))
    boxes = [box.vertices[:, 0] for bars in axes.collections for box in bars.get_paths()]
    last = (factor * (metrics.cost(plan) - 50), factor * metrics.cost(plan))
    assert last in [(x.min(), x.max()) for x in boxes]


def test_a_step_is_shown_from_tick_0(small_v: Schedule) -> None:
    late = replace(small_v.instance, objective="step", step=Step(ready=500))
    schedule = retime(late, small_v.order)
    assert schedule.start.min() == 500
    assert shown_ticks([schedule], WHOLE) == (0, metrics.cost(schedule))
    assert draw_text(schedule, scale=4).splitlines()[1].startswith("0|" + 125 * "." + "FF")
