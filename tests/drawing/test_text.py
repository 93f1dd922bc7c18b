from __future__ import annotations

import pytest
from helpers.cases import instances, random_order, serial_order
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Schedule, simulate
from tightpipe.drawing import draw_text
from tightpipe.model.costs import MicrobatchSlice

GOLDEN = """\
1 character = 1 ticks, from tick 0 to 65
0|F0-FF1-F......f0-fB0---Bf1-fB1---BW0W.b0---bW1W......b1---bw0ww1w
1|.....F0-Ff0-fF1-Ff1-f....B0---Bb0---bB1---BW0Wb1---bW1Ww0ww1w....
  |0                  |20                 |40                 |60
F f: forward, B b: gradient of the input, W w: gradient of the weights
capital letter: the stage that a microbatch reaches first on the device"""


def device_lines(drawing: str) -> list[str]:
    lines = [line.partition("|") for line in drawing.splitlines()]
    return [cells for margin, bar, cells in lines if bar and margin.strip().isdigit()]


def test_golden(small_v: Schedule) -> None:
    assert draw_text(small_v, scale=1) == GOLDEN


def test_coarse_golden(small_v: Schedule) -> None:
    assert device_lines(draw_text(small_v, scale=2)) == [
        "FFFF...ffB0BffB1BW.b0bW...b1bwww",
        "..FFffFFff..B0Bb0bB1BWWb1bWwww..",
    ]


def test_fused_one_chunk(fused: Schedule) -> None:
    drawing = draw_text(fused, scale=1)
    assert device_lines(drawing) == ["F0FF1F.....Q0--QF2FQ1--Q...Q2--Q", "...F0FQ0--QF1FQ1--QF2FQ2--Q....."]
    assert drawing.splitlines()[-1] == "F: forward, Q: both gradients"


def test_more_than_two_chunks() -> None:
    instance = Instance.uniform(
        devices=1, microbatches=1, forward=3, backward=2, weight=1, placement="loop", chunks=3
    )
    drawing = draw_text(simulate(instance, serial_order(instance)), scale=1)
    assert device_lines(drawing) == ["F0Ff0fG0GBBWbbwCCX"]
    assert "F f G: forward, B b C: gradient of the input, W w X: gradient of the weights" in drawing


def test_letters_repeat_from_the_ninth_chunk() -> None:
    instance = Instance.uniform(
        devices=1, microbatches=1, forward=1, backward=1, weight=1, placement="loop", chunks=9
    )
    assert device_lines(draw_text(simulate(instance, serial_order(instance)), scale=1)) == [
        "FfGgHhJjFBWbwCXcxDYdyEZezBW"
    ]


def test_bidirectional_letters_are_directions() -> None:
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=1, backward=1, weight=1, placement="bidirectional"
    )
    drawing = draw_text(simulate(instance, serial_order(instance)), scale=1)
    first, second = device_lines(drawing)
    assert first.replace(".", "") == "FBWfbw" == second.replace(".", "")
    assert "from device 0 to the last" in drawing


def test_operations_that_run_together(paired: Schedule) -> None:
    assert device_lines(draw_text(paired, scale=1)) == [
        "F0Ff2fF1+b2bf3+B0Bb3bB1Bw2wW0Ww3wW1W",
        "f2fF0Ff3+B0BF1+b2bB1Bb3bW0Ww2wW1Ww3w",
    ]
    assert device_lines(draw_text(paired, scale=4)) == ["fFbBbBWwW", "FfBbBbwWw"]


def test_slices_are_numbered_behind_their_microbatches() -> None:
    instance = Instance.uniform(
        devices=1, microbatches=2, forward=6, backward=6, weight=6, placement="linear",
        objective="makespan", slices=[MicrobatchSlice(), MicrobatchSlice()],
    )  # fmt: skip
    [line] = device_lines(draw_text(simulate(instance, serial_order(instance)), scale=1))
    assert line[:12] == "F0.0-FF0.1-F"
    assert "F1.1-FB1.1-BW1.1-WB1.0-BW1.0-W" in line


def test_a_number_that_does_not_fit_is_left_out() -> None:
    instance = Instance.uniform(
        devices=1, microbatches=11, forward=3, backward=4, weight=4, placement="linear"
    )
    line = device_lines(draw_text(simulate(instance, serial_order(instance)), scale=1))[0]
    assert line.endswith("F9FB9-BW9-WF-FB10BW10W")


@given(instances(), st.integers(0, 99))
def test_every_character_is_what_the_grammar_says(instance: Instance, seed: int) -> None:
    """At one tick per character each operation shows from its start to its end, and nothing else."""
    schedule = simulate(instance, random_order(instance, seed))
    lines = device_lines(draw_text(schedule, scale=1))
    assert len(lines) == instance.devices
    for device, line in enumerate(lines):
        rows = schedule.order.rows(device)
        busy = 0
        for start, end in zip(schedule.start[rows], schedule.end[rows], strict=True):
            shown = line[start:end]
            assert shown[0] == shown[-1]
            assert shown[0].upper() in "FBWGCX"
            assert "." not in shown
            busy += len(shown)
        assert line.count(".") == len(line) - busy
        assert len(line) == schedule.end.max()


@given(instances(), st.integers(40, 120))
def test_fits_the_width(instance: Instance, width: int) -> None:
    drawing = draw_text(simulate(instance, serial_order(instance)), width=width)
    ruler = next(i for i, line in enumerate(drawing.splitlines()) if line.startswith(" "))
    assert max(len(line) for line in drawing.splitlines()[1 : ruler + 1]) <= width


def test_times_before_zero_are_drawn_from_the_first_start(small_v: Schedule) -> None:
    moved = Schedule(small_v.instance, small_v.order, small_v.start - 100, small_v.end - 100)
    drawing = draw_text(moved, scale=1)
    assert device_lines(drawing) == device_lines(draw_text(small_v, scale=1))
    assert "|-100" in drawing


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"scale": 0}, "scale = 0: must be at least 1"),
        ({"width": 12}, "width = 12: must be at least 40"),
    ],
)
def test_bad_arguments(small_v: Schedule, arguments: dict[str, int], text: str) -> None:
    with pytest.raises(InputError, match=text):
        draw_text(small_v, **arguments)


def test_lines_beyond_a_million_characters_are_refused(large_v: Schedule) -> None:
    with pytest.raises(InputError, match="characters long"):
        draw_text(large_v, scale=1)


def test_large(large_v: Schedule) -> None:
    lines = device_lines(draw_text(large_v))
    assert len(lines) == 32
    assert max(map(len, lines)) <= 160
