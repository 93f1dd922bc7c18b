"""The study of the theorem: a setting of each class, draws that stay the same, and runs that go on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.documents import ROOT

from tightpipe.base.sources import engine_version

pytestmark = pytest.mark.source_tree
sys.path.append(str(ROOT / "benchmarks"))
import theorem  # noqa: E402  # in no package
from growing_table import append, fill, lines_of, open_table  # noqa: E402
from theorem import CLASSES, FORMULA, OPEN, OTHERWISE, REGIONS, classed, markdown, measure  # noqa: E402
from theorem_cases import Case, draw  # noqa: E402
from theorem_makespan import REGIONS as REGIONS_OF_MAKESPANS  # noqa: E402
from theorem_makespan import measure as measure_makespan  # noqa: E402
from theorem_makespan import region  # noqa: E402

from tightpipe.heuristics.v_beat import Times  # noqa: E402

COMMITTED = ROOT / "results/theorem"
SMALL = {8: 3, 6: 1}


@pytest.mark.parametrize(
    ("formula", "greedy", "least", "bound", "expected"),
    [
        (100, 100, 100, 100, FORMULA),
        (100, 104, 100, 100, OTHERWISE),  # a better schedule meets the formula
        (100, 104, 104, 104, OTHERWISE),  # a stronger bound meets the greedy
        (100, 104, 103, 101, OPEN),
        (100, None, 103, 103, OTHERWISE),  # the greedy has no schedule
    ],
)
def test_every_class(formula: int, greedy: int | None, least: int, bound: int, expected: str) -> None:
    assert classed(formula, greedy, least, bound) == expected


def given(monkeypatch: pytest.MonkeyPatch, case: Case) -> dict[str, object]:
    """The line of a setting that is not drawn."""
    monkeypatch.setattr(theorem, "draw", lambda *_: case)
    return measure(0.1, (case.quarters, 0))


def test_a_setting_that_the_greedy_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 devices, 4 microbatches: 4 * 2 * 26 ticks of work, and 16 without work by the formula."""
    line = given(monkeypatch, Case(2, 4, Times(10, 10, 6, 1), 60, 8))
    assert (line["class"], line["greedy"], line["formula"]) == (FORMULA, 8 * 26 + 26 - 18, 216)
    assert (line["promised"], line["observed"], line["gap"]) == (True, True, "0.000000")


def test_a_setting_that_only_v_beat_solves(monkeypatch: pytest.MonkeyPatch) -> None:
    line = given(monkeypatch, Case(9, 29, Times(20, 13, 13, 1), 97, 8))
    assert line["v_beat"] == line["formula"] == line["cost"] == line["bound"] < line["greedy"]
    assert line["class"] == OTHERWISE


def test_a_setting_that_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    line = given(monkeypatch, Case(8, 41, Times(1000, 1400, 731, 143), 61, 8))
    assert line["formula"] <= line["bound"] < line["cost"] <= line["greedy"]
    assert (line["class"], line["promised"]) == (OPEN, False)
    assert float(line["gap"]) == pytest.approx(1 - line["bound"] / line["cost"], abs=1e-6)


def test_a_search_with_the_same_effort_gives_the_same_line(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(4, 12, Times(185, 181, 93, 6), 35, 4)
    first, second = (given(monkeypatch, case) for _ in range(2))
    assert first == second
    assert first["class"] == OPEN


def test_draws_stay_the_same_and_keep_what_they_promise() -> None:
    cases = [draw(8, number) for number in range(50)]
    assert cases == [draw(8, number) for number in range(50)]
    assert len(set(cases)) == 50
    for case in cases:
        f, b, w, c = case.costs
        assert case.devices < case.microbatches <= 6 * case.devices
        assert w * 100 <= case.held * (b + w)
        assert case.formula > case.work
        assert 0 <= c <= f / 2
    assert all(draw(8, number, lambda case: case.observed).observed for number in range(50))


def test_a_small_observation_has_no_exception() -> None:
    line = theorem.try_observation(20, 0)
    assert (line["settings"], line["exceptions"]) == (20, 0)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a study of few settings, in which nothing has been measured."""
    monkeypatch.setattr(theorem, "RESULTS", tmp_path / "theorem")
    monkeypatch.setattr(theorem, "PICTURE", tmp_path / "map.png")
    return tmp_path / "theorem"


def test_a_run_goes_on_where_the_files_end_and_gives_the_same_files(study: Path) -> None:
    theorem.study(SMALL, 2, 5, 0.1, 1)
    whole = {path.name: path.read_bytes() for path in study.iterdir()}
    assert set(whole) == {"instances.csv", "observed.csv", "summary.md"}
    lines = (study / "instances.csv").read_text().splitlines(keepends=True)
    (study / "instances.csv").write_text("".join(lines[:3]) + lines[3][:20])  # killed within the third line
    (study / "observed.csv").unlink()
    theorem.study(SMALL, 2, 5, 0.1, 1, keep=True)
    assert {path.name: path.read_bytes() for path in study.iterdir()} == whole


def test_nothing_is_measured_twice(tmp_path: Path) -> None:
    path = tmp_path / "squares.csv"
    columns = ("number", "engine")
    open_table(path, columns)
    assert len(list(append(path, columns, [[{"number": 7, "engine": engine_version()}]]))) == 1
    rows = fill(path, columns, [7], lambda row: int(row["number"]), _refused, 1)
    assert rows == lines_of(path) == [{"number": "7", "engine": engine_version()}]


def _refused(number: int) -> dict[str, object]:
    raise AssertionError(f"{number} is there already")


def test_a_line_is_counted_in_every_region_and_limit_that_it_belongs_to() -> None:
    line = {key: str(value) for key, value in measure(0.1, (8, 1)).items()}
    other = line | {"quarters": "4", "v_beat": "", "class": OPEN, "gap": "0.125000"}
    page = markdown(
        [line, line, other], [{"settings": "9", "exceptions": "2"}, {"settings": "1", "exceptions": "0"}]
    )
    assert "| all | 2 | 2 | 2 | 2 | 0.00% |" in page
    assert "| b > f | 0 | 0 | 0 | 0 | 0.00% |" in page
    assert "| 1p | 1 | 1 | 0 | 0 | 12.50% |" in page
    assert page.endswith("Of 10 further settings in the observed region, the greedy misses the formula on 2.")


def test_the_committed_lines_are_those_that_the_theorem_and_the_classes_allow() -> None:
    rows = lines_of(COMMITTED / "instances.csv")
    assert [(int(row["quarters"]), int(row["number"])) for row in rows] == theorem.places(theorem.COUNTS)
    for row in rows:
        formula, least, bound = (int(row[key]) for key in ("formula", "cost", "bound"))
        greedy = int(row["greedy"]) if row["greedy"] else None
        assert int(row["work"]) <= formula <= bound <= least <= (greedy or least)
        assert row["class"] == classed(formula, greedy, least, bound)
        assert row["class"] in CLASSES
        assert row["promised"] == "False" or row["v_beat"] == row["formula"]


def test_the_committed_page_is_that_of_the_lines_and_docs_show_it() -> None:
    page = markdown(lines_of(COMMITTED / "instances.csv"), lines_of(COMMITTED / "observed.csv"))
    shown = (COMMITTED / "summary.md").read_text()
    assert shown.startswith(page)
    assert '--8<-- "results/theorem/summary.md"' in (ROOT / "docs/theorem.md").read_text()
    assert len(lines_of(COMMITTED / "observed.csv")) == theorem.BLOCKS
    assert set(REGIONS) <= {line.split(" | ")[0].removeprefix("| ") for line in shown.splitlines()}


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (Times(20, 20, 4, 3), 0),
        (Times(10, 10, 10, 1), 1),
        (Times(20, 20, 14, 1), 2),
        (Times(20, 21, 14, 1), 3),
        (Times(20, 20, 14, 4), 4),
        (Times(20, 18, 11, 2), 5),
        (Times(20, 21, 9, 1), 6),
    ],
)
def test_every_region_of_makespans(times: Times, expected: int) -> None:
    assert region(Case(4, 8, times, 60, 8)) == REGIONS_OF_MAKESPANS[expected]


def test_no_makespan_is_below_the_bound_of_theorem_five() -> None:
    for number in range(3):
        line = measure_makespan(3, 0.1, number)
        assert line.least <= line.bound <= line.cost <= line.beat
