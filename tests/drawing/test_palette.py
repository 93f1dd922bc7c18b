"""The palette in grey, on paper, and as people with each kind of colour blindness see it.

Lightness is CIE L*, from 0 to 100; distances are CIEDE2000, of which a trained eye sees 1 side by side
and anybody sees 5 across a figure. Colour blindness is simulated after Machado, Oliveira and Fernandes,
"A Physiologically-based Model for Simulation of Color Vision Deficiency", IEEE TVCG 15(6), 2009.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import combinations, pairwise, product
from pathlib import Path

import pytest
from coloraide import Color

import tightpipe
from tightpipe import OpKind
from tightpipe.drawing import palette
from tightpipe.explain import Reason
from tightpipe.model.operation import COMPUTES

VISIONS = ("any", "protan", "deutan", "tritan")
ASSETS = Path(tightpipe.__file__).parent / "report" / "assets"
RESULTS = Path(__file__).parents[2] / "results"
LANES = 2
BARS = {(kind, lane): palette.shade(kind, lane, LANES) for kind, lane in product(COMPUTES, range(LANES))}


def seen(colour: str, vision: str) -> Color:
    return Color(colour) if vision == "any" else Color(colour).filter(vision, method="machado")


def lightness(colour: str) -> float:
    return float(Color(colour).convert("lab-d65")[0])


def closest(colours: list[str], vision: str) -> float:
    pairs = combinations([seen(colour, vision) for colour in colours], 2)
    return min(float(a.delta_e(b, method="2000")) for a, b in pairs)


def test_kinds_and_idle_time_are_steps_of_lightness() -> None:
    first = [palette.shade(kind, 0, 1) for kind in (OpKind.F, OpKind.W, OpKind.B)]
    steps = [lightness(colour) for colour in (*first, palette.IDLE)]
    assert all(later - earlier >= 20 for earlier, later in pairwise(steps))


def test_kinds_differ_in_lightness_whatever_their_lanes_and_bw_is_hatched() -> None:
    plain = [(kind, colour) for (kind, _), colour in BARS.items() if kind not in palette.HATCHED]
    for (kind, colour), (other, another) in combinations([*plain, (None, palette.IDLE)], 2):
        if kind is not other:
            assert abs(lightness(colour) - lightness(another)) >= 10, (kind, other)
    assert set(palette.HATCHED) == {OpKind.BW}


@pytest.mark.parametrize("kind", COMPUTES)
def test_later_lanes_are_lighter(kind: OpKind) -> None:
    steps = [lightness(palette.shade(kind, lane, 4)) for lane in range(4)]
    assert all(later - earlier >= 3 for earlier, later in pairwise(steps))
    assert lightness(BARS[kind, 1]) - lightness(BARS[kind, 0]) >= 10


@pytest.mark.parametrize("vision", VISIONS)
def test_everybody_tells_bars_apart(vision: str) -> None:
    for (kind, lane), (other, another) in combinations(BARS, 2):
        pair = [BARS[kind, lane], BARS[other, another]]
        assert closest(pair, vision) >= (8 if kind is other else 10), (kind, lane, other, another)
    for colour in BARS.values():
        assert closest([colour, palette.IDLE], vision) >= 10, colour


@pytest.mark.parametrize("vision", VISIONS)
def test_everybody_tells_idle_reasons_apart_and_from_operations(vision: str) -> None:
    assert set(palette.REASONS) == set(Reason)
    reasons = list(palette.REASONS.values())
    assert closest(reasons, vision) >= 10
    for reason, bar in product(reasons, BARS.values()):
        assert closest([reason, bar], vision) >= 6, (reason, bar)


@pytest.mark.parametrize("vision", VISIONS)
def test_everybody_tells_the_colours_of_series_apart(vision: str) -> None:
    assert closest([look.colour for look in palette.SERIES], vision) >= 15
    assert closest([palette.PROVEN, palette.UNDECIDED, palette.PAPER], vision) >= 10


def methods_of(table: Path) -> list[str]:
    """Return the methods and the schedules that a table names."""
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return list(dict.fromkeys(row[key] for row in rows for key in ("method", "schedule") if key in row))


@pytest.mark.source_tree
@pytest.mark.parametrize("vision", VISIONS)
def test_everybody_tells_the_methods_of_every_committed_figure_apart(vision: str) -> None:
    tables = [path for path in RESULTS.rglob("*.csv") if path.with_suffix(".png").exists()]
    shown = {path: methods for path in tables if len(methods := methods_of(path)) > 1}
    assert RESULTS / "frontier/frontier.csv" in shown
    for path, methods in shown.items():
        looks = palette.series(methods)
        plain = [look.colour for look in looks.values() if not look.hollow]  # hollow ones are variants
        assert closest(plain, vision) >= 15, path


def test_series_differ_without_their_colours() -> None:
    assert len({look.marker for look in palette.SERIES}) == len(palette.SERIES)
    assert len({look.dashes for look in palette.SERIES[:7]}) == 7


def test_series_stand_out_from_paper() -> None:
    for look in palette.SERIES:
        assert Color(look.colour).contrast(palette.PAPER) >= 3, look  # WCAG 2.1, 1.4.11


@pytest.mark.parametrize("lanes", range(1, 9))
def test_text_on_bars_can_be_read(lanes: int) -> None:
    for kind, lane in product(COMPUTES, range(lanes)):
        colour = palette.shade(kind, lane, lanes)
        assert Color(colour).contrast(palette.text_colour(colour)) >= 4.5  # WCAG 2.1, 1.4.3
    for ground in (palette.PAPER, palette.GROUND, palette.CHOSEN):
        for ink in (palette.INK, palette.SOFT, palette.ACCENT):
            assert Color(ground).contrast(ink) >= 4.5, (ground, ink)


def test_a_method_looks_the_same_in_every_figure() -> None:
    alone, together = palette.series(["best"]), palette.series(["other", "cpsat", "best", "greedy-v"])
    assert alone["best"] == together["best"]
    assert len({look.colour for look in together.values()}) == 4
    pair = palette.series(["greedy-v", "greedy-v, median costs"])
    assert pair["greedy-v"].colour == pair["greedy-v, median costs"].colour
    assert [look.hollow for look in pair.values()] == [False, True]


def test_ten_series_of_any_name_differ_and_more_repeat() -> None:
    names = ["v-half", *(f"series {k}" for k in range(13))]
    looks = list(palette.series(names).values())
    assert len(looks) == 14
    assert len(set(looks[:10])) == 10


def colours_in(paths: Iterator[Path]) -> list[tuple[str, str]]:
    pattern = re.compile(r"#[0-9a-fA-F]{3,8}\b|rgb\(\d|thread_state_\w+|\btab:\w+|color: [0-9A-F]{6}")
    return [(path.name, found) for path in paths for found in pattern.findall(path.read_text())]


def test_nothing_else_names_a_colour() -> None:
    source = ASSETS.parents[1]
    drawing = [
        *source.rglob("*.py"),
        *source.rglob("*.mplstyle"),
        *ASSETS.glob("*.css"),
        *ASSETS.glob("*.js"),
    ]
    assert colours_in(path for path in drawing if path.name != "palette.py") == []
