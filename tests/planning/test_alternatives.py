"""The table of schedule families at equal memory: who is in it, and what stands in its cells."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from helpers.clock import counted_time
from helpers.handmade_plans import CLUSTER, LAYERS, SPACE, no_plan, plan, problem

from tightpipe import Placement, methods
from tightpipe.base.tables import csv_text, latex
from tightpipe.model.metrics import costs
from tightpipe.params.budget import Allowance
from tightpipe.planning import PlanningProblem
from tightpipe.planning.alternatives import (
    Alternative,
    Split,
    alternatives,
    alternatives_rows,
    families_of,
    questions,
)
from tightpipe.planning.plan_table import failures, latex_table, markdown, shown

PLACEMENTS = ("v", "linear")
ASKED = problem(
    LAYERS, replace(CLUSTER, devices=(2,)), space=replace(SPACE, placements=PLACEMENTS, chunks=(2,))
)


def test_each_family_has_its_placement_and_its_methods_alone() -> None:
    found = list(families_of(ASKED))
    assert {f.method for f in found} <= set(methods())
    assert [(f.method, f.placement) for f in found if f.method == "best"] == [
        ("best", "v"),
        ("best", "linear"),
    ]
    for family in found:
        space = family.problem.space
        assert space.placements == (family.placement,)
        assert space.methods == (None if family.method == "best" else (family.method,))
        assert replace(family.problem, space=ASKED.space) == ASKED


def test_chunks_are_those_that_a_placement_takes() -> None:
    asked = replace(ASKED, space=replace(ASKED.space, chunks=(2, 3)))
    chunks = {f.placement: f.problem.space.chunks for f in families_of(asked)}
    assert chunks == {"linear": None, "loop": (2, 3), "wave": (2,), "v": (2,)}
    assert {
        f.problem.space.chunks for f in families_of(replace(asked, space=SPACE)) if f.placement == "v"
    } == {(2,)}


@pytest.fixture(scope="module")
def found() -> list[Alternative]:
    """All rows for 10 layers on 2 devices, where only the best splits differ between the families."""
    with counted_time(per_look=0.0005):
        return list(alternatives(questions(ASKED), Allowance(0.3, 1), None, lambda _: lambda entry: None))


def test_the_best_split_is_never_slower_than_the_uniform_one(found: list[Alternative]) -> None:
    costs = {question.name: plan.cost for question, plan in found}
    compared = 0
    for name, uniform in costs.items():
        best = costs[name.replace(" uniform", " best")]
        if name.endswith("uniform") and uniform is not None:
            assert best is not None
            assert best <= uniform, name
            compared += best < uniform
    assert compared > 0  # embedding and head are uneven


def test_no_row_is_below_the_bound_of_its_placement(found: list[Alternative]) -> None:
    bounds = {q.family.placement: p.bound for q, p in found if q.family.method == "best" and p.bound}
    assert set(bounds) == set(PLACEMENTS)
    for question, made in found:
        if made.cost is not None and question.family.placement in bounds:
            assert made.cost >= bounds[question.family.placement], question.name


def test_the_fastest_row_is_the_measure(found: list[Alternative]) -> None:
    rows = alternatives_rows(found)
    shares = [row["of_the_fastest"] for row in rows if row["step_time"] is not None]
    assert max(shares) == 1
    for row in rows:
        if row["step_time"] is not None:
            fastest = min(plan.cost for _, plan in found if plan.cost is not None)
            assert row["of_the_fastest"] == fastest / row["step_time"]


def test_where_nothing_fits_rows_say_so() -> None:
    small = replace(ASKED, cluster=replace(ASKED.cluster, memory=900))
    asked = [q for q in questions(small) if q.family.method in ("1f1b", "v-half")]
    rows = alternatives_rows(list(alternatives(asked, Allowance(0.3, 1), None, lambda _: lambda entry: None)))
    said = failures(rows)
    assert len(said) == len(rows) == 4
    assert all("bytes to hold one microbatch" in line for line in (said[0], *said[2:]))
    assert "bytes to hold what is in flight" in said[1]  # the order of 1F1B is known
    assert said[0].startswith("1f1b linear uniform: device ")


def test_too_few_layers_for_a_family_are_a_row() -> None:
    few = replace(problem(LAYERS[:4]), cluster=replace(CLUSTER, devices=(2,)))
    asked = [q for q in questions(few) if q.family.placement == "wave" and q.family.method == "list"]
    chunks = replace(asked[0].family.problem.space, chunks=(4,))
    wave = replace(asked[0].family, problem=replace(asked[0].family.problem, space=chunks))
    asked = [replace(question, family=wave) for question in asked]
    made = list(alternatives(asked, Allowance(0.3, 1), None, lambda _: lambda entry: None))
    assert [plan.schedule for _, plan in made] == [None, None]
    assert "layers = 4: " in made[1][1].reason
    assert "blocks, fewer than the 8 stages" in made[0][1].reason


def two(asked: PlanningProblem) -> list[Alternative]:
    """A row with a plan, and one without."""
    uniform, best = (
        next(q for q in questions(asked) if q.name == name) for name in ("v-half v uniform", "list wave best")
    )
    assert (uniform.split, best.split) == (Split.UNIFORM, Split.BEST)
    return [(uniform, plan(asked, Placement("v", 2))), (best, no_plan(asked))]


def test_a_csv_has_all_figures() -> None:
    rows = alternatives_rows(two(problem()))
    first, second = csv.DictReader(io.StringIO(csv_text(rows[0], [row.values() for row in rows])))
    made = plan()
    assert int(first["step_time"]) == made.cost
    assert int(first["bound"]) == made.bound
    assert made.peak_memory is not None
    assert float(first["memory_share"]) == pytest.approx(max(made.peak_memory) / 4000)
    assert (first["layers"], first["recomputed"]) == ("3 2 2 3", "2 0 1 0")
    assert made.schedule is not None
    under = {f"as_{name}": str(ticks) for name, ticks in costs(made.schedule).items()}
    assert under.pop(f"as_{first['objective']}") == first["step_time"]
    assert {name: first[name] for name in first if name.startswith("as_")} == under
    assert (first["family"], first["split"], first["placement"]) == ("v-half", "uniform", "v")
    assert (second["placement"], second["step_time"], second["status"]) == ("wave", "", "infeasible")
    assert second["reason"] == "device 0 lacks 12 bytes"


def test_people_see_percentages_and_dashes() -> None:
    head, (first, second) = shown(alternatives_rows(two(problem())))
    shown_cells = dict(zip(head, first, strict=True))
    made = plan()
    assert shown_cells["step us"] == f"{made.cost:,}"
    assert shown_cells["of the fastest"] == "100.0%"
    assert shown_cells["tokens/s"] == f"{made.tokens_per_second:,.0f}"
    assert "microbatches/s" not in head
    assert "reason" not in head
    assert set(second[3:]) == {"-"}


def test_the_page_and_the_latex_table_have_the_same_cells() -> None:
    rows = alternatives_rows(two(problem()))
    page, source = markdown(rows, "What it means."), latex(latex_table(rows, "Caption."), "tab:a")
    for cell in shown(rows)[1][0]:
        assert cell in page
        assert cell.replace("%", r"\%") in source
    assert "\n\nWhat it means.\n" in page
    assert page.endswith("- list wave best: device 0 lacks 12 bytes\n")
