"""``plan --alternatives``, ``plan --memory`` and ``explain`` of a plan, from the command line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.command_line import Done, call, write
from helpers.handmade_plans import CLUSTER, LAYERS, no_plan, plan, problem

from tightpipe import SolveParams, Status, load_plan, save_plan
from tightpipe.cli import explaining
from tightpipe.planning import Batch, Plan, PlanningProblem, SearchSpace, alternatives, plan_table, what_if
from tightpipe.planning.problem_file import problem_to_dict
from tightpipe.planning.what_if import WhatIf

SPACE = SearchSpace(("v", "linear"), None, recompute=("full",))
ASKED = problem(LAYERS, replace(CLUSTER, devices=(2,)), Batch(4, 1024, 2), SPACE)
QUICK = ("--time-limit", "0.2", "--workers", "1")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path, problem_to_dict(ASKED), "model.json")


def compare(model: Path, folder: Path, *more: str) -> Done:
    return call("plan", model, "--alternatives", "-o", folder, *QUICK, *more)


def test_alternatives_are_shown_and_kept(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    done = compare(model, folder)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].split()[:3] == ["family", "split", "placement"]
    assert len(lines) == 1 + 2 * (9 + 2)
    with (folder / "alternatives.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        kept = load_plan(folder / f"{row['name'].replace(' ', '-')}.json")
        assert str(kept.cost) == row["step_time"]
    for suffix in ("md", "tex", "png", "pdf"):
        assert (folder / f"alternatives.{suffix}").stat().st_size > 0


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[PlanningProblem]:
    """Let every search answer with the same plan, and the third one be ended by Ctrl-C."""
    asked: list[PlanningProblem] = []

    def search(problem: PlanningProblem, **_: object) -> Plan:
        asked.append(problem)
        made = replace(plan(problem), bound=1, status=Status.FEASIBLE)
        return replace(made, reason="interrupted") if len(asked) == 3 else made

    monkeypatch.setattr(plan_table, "find_plan", search)
    monkeypatch.setattr(alternatives, "find_plan", search)
    return asked


def test_an_interrupted_frontier_goes_on(
    model: Path, tmp_path: Path, searched: list[PlanningProblem]
) -> None:
    words = ("plan", model, "--memory", "6kB,4kB,5kB", "-o", tmp_path / "out", "--json")
    first = call(*words)
    assert first.returncode == 130
    assert "the same command continues" in first.stderr
    assert [row["memory"] for row in json.loads(first.stdout)["rows"]] == ["4kB", "5kB"]
    second = call(*words)
    assert second.returncode == 0
    assert [row["memory"] for row in json.loads(second.stdout)["rows"]] == ["4kB", "5kB", "6kB"]
    assert [asked.cluster.memory for asked in searched] == [4000, 5000, 6000, 6000]
    assert load_plan(tmp_path / "out" / "plan-6kB.json").problem == searched[-1]


def test_searches_of_tables_and_of_changes_get_the_parameters_and_the_answer_names_them(
    model: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params, seen = write(tmp_path, {"plan.middles": 3}, "params.json"), list[SolveParams]()

    def search(problem: PlanningProblem, params: SolveParams, **_: object) -> Plan:
        seen.append(params)
        return replace(plan(problem), bound=1, status=Status.FEASIBLE)

    for module in (plan_table, alternatives, what_if):
        monkeypatch.setattr(module, "find_plan", search)
    for words in (
        ("plan", model, "--memory", "6kB", "-o", tmp_path / "out"),
        ("plan", model, "--alternatives", "--time-limit", "1"),
        ("explain", saved, "--time-limit", "1"),
    ):
        done = call(*words, "--params", params, "--json")
        assert json.loads(done.stdout)["params"] == {"plan.middles": 3}, done.stderr
        assert {each.plan.middles for each in seen} == {3}
        seen.clear()


def test_a_frontier_over_devices_is_one_of_throughput(
    model: Path, tmp_path: Path, searched: list[PlanningProblem]
) -> None:
    done = call("plan", model, "--devices", "2", "-o", tmp_path / "out")
    assert done.returncode == 0
    with (tmp_path / "out" / "frontier.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["devices"], row["pipelines"]) == ("2", "2")
    found = load_plan(tmp_path / "out" / "plan-2.json")
    assert float(row["tokens_per_second"]) == found.tokens_per_second


def test_where_no_point_fits_the_answer_is_no(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_table, "find_plan", lambda asked, **_: no_plan(asked))
    done = call("plan", model, "--memory", "4kB", "-o", tmp_path / "out")
    assert done.returncode == 1
    assert "no plan: 4kB: device 0 lacks 12 bytes\n" in done.stdout
    assert done.stderr.endswith("tightpipe: no row has a plan\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("plan", "MODEL", "--memory", "1kB"), "a frontier needs -o, the folder where plans and reports go"),
        (("plan", "MODEL", "--memory", "1kB", "--alternatives"), "goes without --memory and --devices"),
        (
            ("plan", "MODEL", "--memory", "1kB", "--devices", "2", "-o", "out"),
            "give either --memory",
        ),
        (("plan", "MODEL", "--devices", "3", "-o", "out"), "devices = 3: must divide the number of"),
        (("plan", "MODEL", "--memory", "4 XB", "-o", "out"), "unknown unit"),
        (("plan", "none.toml", "--memory", "4kB", "-o", "out"), "none.toml: no such file"),
        (("plan", "MODEL", "--alternatives", "--time-limit", "-1", "-o", "out"), "time_limit = -1.0"),
        (("plan", "none.toml", "--alternatives", "-o", "out"), "none.toml: no such file"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    words: tuple[str, ...], message: str, model: Path, tmp_path: Path
) -> None:
    done = call(*(str(model) if word == "MODEL" else word for word in words), cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_of_other_conditions_is_refused(
    model: Path, tmp_path: Path, searched: list[PlanningProblem]
) -> None:
    words = ("plan", model, "--memory", "4kB", "-o", tmp_path / "out")
    assert call(*words).returncode == 0
    done = call(*words, "--seed", "3")
    assert done.returncode == 2
    assert "conditions.json: seed = 3: the plans of this folder were found with 0" in done.stderr


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    asked = replace(ASKED, cluster=replace(ASKED.cluster, comm=2))
    save_plan(plan(asked), tmp_path / "plan.json")
    return tmp_path / "plan.json"


def test_a_plan_is_explained(saved: Path) -> None:
    done = call("explain", saved, *QUICK)
    assert done.returncode == 0
    for heading in ("Idle time by device and phase", "What limits the plan", "What a change would give"):
        assert f"\n{heading}" in done.stdout
    assert "\nWhat weaker constraints would give" not in done.stdout
    assert len(done.stdout.split("What a change would give")[1].strip().splitlines()) == 2 + 5


def test_the_explanation_of_a_plan_as_json(saved: Path) -> None:
    done = call("explain", saved, "--no-relax", "--json")
    said = json.loads(done.stdout)
    assert {limit["name"] for limit in said["limits"]} >= {"computation", "memory"}
    assert said["changes"] == []
    assert said["cost"] == load_plan(saved).cost


def test_options_of_plans_are_refused_with_a_schedule(saved: Path) -> None:
    schedule = write(saved.parent, json.loads(saved.read_text())["schedule"], "schedule.json")
    assert call("explain", schedule, "--no-relax").returncode == 0
    done = call("explain", schedule, "--time-limit", "1")
    assert done.returncode == 2
    assert "time_limit = 1.0: goes with a plan file, not with a schedule file" in done.stderr


def test_what_was_answered_before_a_signal_is_shown(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> Iterator[WhatIf]:
        yield WhatIf("as it is", 5, 7, 0)
        raise KeyboardInterrupt

    monkeypatch.setattr(explaining, "what_ifs", stopped)
    done = call("explain", saved, *QUICK)
    assert done.returncode == 130
    assert done.stdout.splitlines()[-1].split() == ["as", "it", "is", "5", "7", "0"]
    assert "continues" not in done.stderr  # there is nothing that would be kept


def test_without_a_folder_what_was_found_before_a_signal_is_shown(
    model: Path, searched: list[PlanningProblem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alternatives, "uniform_plan", lambda family, _: no_plan(family.problem))
    done = call("plan", model, "--alternatives", *QUICK)
    assert done.returncode == 130
    assert [line.split()[0] for line in done.stdout.splitlines()[1:6]] == [
        *("1f1b", "1f1b", "zb-h1", "zb-h1", "interleaved-1f1b"),
    ]
    assert "continues" not in done.stderr
