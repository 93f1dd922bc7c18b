"""What studies leave: the committed experiments can be planned, figures and tables say what the rows say."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tightpipe import InputError
from tightpipe.experiments.experiment import FigureKind
from tightpipe.experiments.experiment_file import load_experiment
from tightpipe.experiments.figure_data import (
    Point,
    anytime_points,
    comm_points,
    frontier_points,
    memory_points,
)
from tightpipe.experiments.grid import tasks_of
from tightpipe.experiments.study import read_rows, write_figure, write_rows
from tightpipe.experiments.summary import latex_table, page
from tightpipe.experiments.task import Row

STUDIES = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))
ROW = Row(
    key="a", problem="small", p=4, n=8, placement="v", chunks=2, objective="device_span", uneven="", comm="0.5f",
    comm_ticks=5, discount="0", offload="own", memory="2p", memory_limit=16, method="cpsat", name="cpsat", backwards="any", copies="any", costs="true", warm_start="best", time_limit=60.0, seed=0, threads=1,
    instance_hash="i", state="done", status="feasible", cost=100, work=80, bubble=20, bubble_rate=0.2, bound=90, gap=0.1,
    seconds=60.0, trace="[[0.5, 120, 80], [2.0, 100, 80], [9.0, 100, 90]]", finished_at="2026-01-02T00:00:00Z", cores=2,
)  # fmt: skip
GREEDY = replace(
    ROW,
    key="b",
    method="greedy-v",
    name="greedy-v",
    warm_start=None,
    time_limit=None,
    cost=110,
    bound=80,
    bubble_rate=3 / 11,
)


@pytest.mark.source_tree
@pytest.mark.parametrize("path", STUDIES, ids=[path.stem for path in STUDIES])
def test_every_study_can_be_planned_and_drawn(path: Path) -> None:
    experiment = load_experiment(path)
    assert tasks_of(experiment, path)
    assert experiment.figure is not None


def test_a_bound_holds_at_every_tighter_limit_and_at_no_looser_one() -> None:
    limits = [
        replace(ROW, memory=memory, bound=bound) for memory, bound in (("1p", 80), ("2p", 90), ("3p", 85))
    ]
    assert [p["bound_rate"] for p in memory_points(limits)] == pytest.approx([10 / 90, 10 / 90, 5 / 85])
    comms = [replace(ROW, comm=comm, bound=bound) for comm, bound in (("0f", 80), ("0.2f", 90), ("0.5f", 85))]
    assert [p["bound_rate"] for p in comm_points(comms)] == pytest.approx([0, 10 / 90, 10 / 90])
    assert [p["x"] for p in comm_points(comms)] == [0, 0.2, 0.5]


@pytest.mark.parametrize("points", [memory_points, frontier_points])
def test_no_bound_holds_at_a_smaller_communication_time(points: Callable[[list[Row]], list[Point]]) -> None:
    slow = replace(ROW, comm="1f", bound=99)
    found = points([ROW, slow])
    assert [p["bound_rate"] for p in found] == pytest.approx([10 / 90, 19 / 99])
    assert [p["panel"].rpartition(", ")[2] for p in found] == ["comm 0.5f", "comm 1f"]


def test_no_bound_of_less_memory_holds_at_a_communication_time() -> None:
    found = comm_points([ROW, replace(ROW, memory="1p", bound=99)])
    assert [p["bound_rate"] for p in found] == pytest.approx([10 / 90, 19 / 99])
    assert [p["panel"] for p in found] == ["small, memory 2p", "small, memory 1p"]


def test_a_schedule_is_proven_by_the_bound_of_any_method_and_limit_that_holds() -> None:
    closed = replace(GREEDY, cost=100, bubble_rate=0.2)
    proof = replace(ROW, memory="3p", method="best", name="best", cost=None, bubble_rate=None, bound=100)
    points = frontier_points([closed, replace(closed, cost=101, bubble_rate=21 / 101), proof])
    assert [p["optimal"] for p in points] == [True, False, False]
    assert {p["panel"] for p in points} == {"4 devices, 8 microbatches"}
    two = frontier_points([closed, replace(closed, problem="other")])
    assert [p["panel"] for p in two] == [
        "small, 4 devices, 8 microbatches",
        "other, 4 devices, 8 microbatches",
    ]


MAKESPAN = replace(ROW, key="c", objective="makespan", cost=104, bubble_rate=24 / 104, bound=104, gap=0.0)
OTHER_QUESTIONS = {
    "objective": MAKESPAN,
    "uneven": replace(ROW, uneven="last 1.5", bound=99),
    "comm": replace(ROW, comm="1f", bound=99),
    "discount": replace(ROW, discount="0.1", bound=99),
    "offload": replace(ROW, offload="k 1", bound=99),
    "memory": replace(ROW, memory="1p", memory_of_1f1b=0.5, bound=99),
}
SHOWN = {
    FigureKind.MEMORY: "memory",
    FigureKind.FRONTIER: "memory",
    FigureKind.EQUAL_MEMORY: "memory",
    FigureKind.DISCOUNT: "discount",
    FigureKind.COMM: "comm",
    FigureKind.UNEVEN: "uneven",
}
"""The axis that a kind of figure shows within a panel."""


def drawn(kind: FigureKind, rows: list[Row], folder: Path) -> list[dict[str, str]]:
    rows = [replace(row, engine="1.2.3+abcdef0", memory_of_1f1b=row.memory_of_1f1b or 1.0) for row in rows]
    write_figure(kind, rows, folder / kind, ("csv", "pdf", "png"))
    with (folder / f"{kind}.csv").open() as file:
        lines = list(csv.DictReader(file))
    return [{"panel": line["setting"], **line} if kind is FigureKind.AVOIDED else line for line in lines]


@pytest.mark.parametrize("axis", OTHER_QUESTIONS)
@pytest.mark.parametrize("kind", FigureKind)
def test_what_asks_another_question_has_a_panel_of_its_own(
    kind: FigureKind, axis: str, tmp_path: Path
) -> None:
    lines = drawn(kind, [ROW, OTHER_QUESTIONS[axis]], tmp_path)
    assert len({line["panel"] for line in lines}) == (1 if SHOWN.get(kind) == axis else 2)
    single = drawn(kind, [ROW], tmp_path)
    assert all(line["panel"] not in {"", None} for line in single) or kind is FigureKind.SETTINGS


@pytest.mark.parametrize("kind", FigureKind)
def test_the_data_of_every_figure_have_the_objective(kind: FigureKind, tmp_path: Path) -> None:
    lines = drawn(kind, [ROW, GREEDY, MAKESPAN], tmp_path)
    assert {line["objective"] for line in lines} == {"device_span", "makespan"}
    for line in lines:
        assert line["panel"].endswith(line["objective"])


@pytest.mark.parametrize("kind", [FigureKind.MEMORY, FigureKind.FRONTIER, FigureKind.COMM])
def test_no_bound_of_one_objective_holds_for_the_other(kind: FigureKind, tmp_path: Path) -> None:
    rates = [float(line["bound_rate"]) for line in drawn(kind, [ROW, MAKESPAN], tmp_path)]
    assert rates == pytest.approx([10 / 90, 24 / 104])


@pytest.mark.parametrize("kind", [FigureKind.MEMORY, FigureKind.FRONTIER, FigureKind.COMM])
def test_the_impossible_area_lies_below_the_schedules_of_every_placement(
    kind: FigureKind, tmp_path: Path
) -> None:
    linear = replace(
        GREEDY, method="1f1b", name="1f1b", placement="linear", cost=160, bubble_rate=0.5, bound=160
    )
    lines = drawn(kind, [ROW, linear], tmp_path)
    assert [float(line["bound_rate"]) for line in lines] == pytest.approx([10 / 90, 10 / 90])
    if kind is FigureKind.FRONTIER:
        assert [line["optimal"] for line in lines] == ["False", "True"]


def test_the_smallest_limit_is_one_microbatch_in_activations_of_a_stage() -> None:
    smallest = replace(ROW, memory="smallest")
    assert [p["x"] for p in memory_points([smallest])] == [2 / 4]
    assert [p["x"] for p in memory_points([replace(smallest, placement="linear", chunks=1)])] == [1 / 4]


@pytest.mark.parametrize("dear", [0.2, None])
def test_a_curve_shows_the_cheapest_schedule_also_where_nothing_idles(dear: float | None) -> None:
    rows = [
        replace(ROW, cost=80, bubble_rate=0.0),
        replace(ROW, seed=1, bubble_rate=dear, cost=dear and 100),
    ]
    for order in (rows, rows[::-1]):
        assert [point["bubble_rate"] for point in memory_points(order)] == [0.0]


def test_a_summary_says_why_there_is_no_schedule(tmp_path: Path) -> None:
    none = replace(
        ROW, memory="1p", status="unknown", cost=None, bubble_rate=None, gap=None, reason="too little"
    )
    text = page("study", [ROW, none])
    assert "- unknown: small 4 x 8, 1p, cpsat: too little" in text


def test_reasons_tell_solves_apart_that_differ_in_one_axis(tmp_path: Path) -> None:
    none = replace(ROW, status="unknown", cost=None, bubble_rate=None, gap=None, reason="too little")
    others = [replace(none, objective="makespan"), replace(none, comm="1f"), replace(none, uneven="last 2")]
    failed = replace(none, state="failed", error="killed", objective="makespan")
    rows = [none, *others, failed]
    text = page("study", rows)
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert len(set(lines)) == len(rows)
    assert all("objective device_span" in line or "objective makespan" in line for line in lines)
    assert lines[0] == ("- failed: small 4 x 8, 2p, objective makespan, uneven -, comm 0.5f, cpsat: killed")


def test_a_summary_says_what_the_best_bound_rests_on(tmp_path: Path) -> None:
    proven = [replace(ROW, proof="energetic"), replace(GREEDY, proof="formula")]
    text = page("small", proven)
    head, _, line = text.splitlines()[2:5]
    assert [cell.strip() for cell in head.split("|")[-4:-1]] == ["bound", "proof", "best gap"]
    assert line.split("|")[-3].strip() == "energetic"
    text = page("small", [ROW, GREEDY])
    assert "proof" not in text


def test_a_summary_shows_what_the_cheapest_schedule_costs_under_other_objectives() -> None:
    known = replace(ROW, device_span=100, makespan=125, step=160)
    dear = replace(GREEDY, device_span=110, makespan=112, step=112)
    text = page("small", [known, dear])
    head, _, line = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:5])
    assert head[-3:] == ["best gap", "best as makespan", "best as step"]
    assert line[-2:] == ["0.3600", "0.5000"]
    assert "Best as makespan, step: " in text
    assert latex_table("small", [known, dear]).head[-1] == "best gap"
    both = page("small", [known, replace(known, objective="makespan", cost=125)])
    assert "| best as device_span | best as makespan | best as step |" in both
    assert "best as" not in page("small", [ROW, GREEDY])


def test_a_gap_falls_over_time_and_stays_to_the_end() -> None:
    gaps = [(p["seconds"], p["gap"]) for p in anytime_points([ROW])]
    assert gaps == [(0.5, pytest.approx(1 / 3)), (2.0, 0.2), (9.0, 0.1), (60.0, 0.1)]
    assert {p["solve"] for p in anytime_points([ROW, replace(ROW, key="c", seed=1)])} == {"a", "c"}


@pytest.mark.parametrize("kind", FigureKind)
def test_every_figure_is_drawn_with_its_data_beside_it_and_both_name_the_engine(
    kind: FigureKind, tmp_path: Path
) -> None:
    unsolved = replace(
        GREEDY, memory="smallest", comm="0f", cost=None, bubble_rate=None, gap=None, trace=None
    )
    drawn(kind, [ROW, GREEDY, unsolved], tmp_path)
    assert (tmp_path / f"{kind}.pdf").read_bytes().startswith(b"%PDF")
    picture = (tmp_path / f"{kind}.png").read_bytes()
    assert len(picture) > 10_000
    assert b"tightpipe 1.2.3+abcdef0" in picture
    with (tmp_path / f"{kind}.csv").open() as file:
        data = list(csv.DictReader(file))
    assert {line["method"] for line in data if "method" in line} <= {"cpsat", "greedy-v"}
    assert {line["engine"] for line in data} == {"1.2.3+abcdef0"}


def test_tables_have_methods_side_by_side_over_the_axes_that_vary(tmp_path: Path) -> None:
    failed = replace(
        ROW, memory="3p", state="failed", cost=None, bound=None, bubble_rate=None, error="killed at 1 GiB"
    )
    text = page("study", [GREEDY, ROW, failed])
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    assert lines[0] == ["problem", "memory", "greedy-v", "cpsat", "bound", "best gap"]
    assert lines[2] == ["small", "2p", "0.2727", "0.2000", "0.1111", "10.00%"]
    assert lines[3] == ["small", "3p", "-", "failed", "-", "-"]
    assert "2 of 3 solves done, 2026-01-02" in text
    assert "- failed: small 4 x 8, 3p, cpsat: killed at 1 GiB" in text
    table = latex_table("study", [GREEDY, ROW, failed])
    assert [table.head, *table.body] == [lines[0], *lines[2:4]]
    assert "In all rows: objective device_span" in text
    assert table.caption.endswith("Objective: device_span.")
    assert "Objective" not in latex_table("study", [ROW, MAKESPAN]).caption  # a column has it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace(",4,", ",4.0,", 1), r"rows\.csv: line 2, p = '4\.0': must be of type int"),
        (lambda text: text[: text.rindex(",") - 40], r"rows\.csv: line \d, \w+ = None: must be of type "),
        (
            lambda text: text.replace("key,", "name,", 1),
            r"rows\.csv: has other columns than this version reads",
        ),
    ],
)
def test_rows_of_another_program_are_refused_in_one_line(
    change: Callable[[str], str], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    write_rows([ROW], path)
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=message):
        read_rows(path)
