"""Folders of plans: what is there is not searched for again, and only under the same conditions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.handmade_plans import CLUSTER, no_plan, plan, problem

from tightpipe import InputError, load_plan
from tightpipe.base.sources import planner_version
from tightpipe.params.budget import Allowance
from tightpipe.planning import Plan
from tightpipe.planning.plan_file import PlanFolder, kept_plan

ALLOWANCE = Allowance(5.0, 1, 7)


def never() -> Plan:
    raise AssertionError("the plan is there, so nothing is to be searched for")


def test_a_plan_is_searched_for_once(tmp_path: Path) -> None:
    folder = PlanFolder(tmp_path / "new", ALLOWANCE)
    found = kept_plan(folder, "one", problem(), plan)
    assert load_plan(tmp_path / "new" / "one.json") == found
    again = PlanFolder(tmp_path / "new", ALLOWANCE)
    assert kept_plan(again, "one", problem(), never) == found


def test_a_plan_of_another_problem_does_not_count(tmp_path: Path) -> None:
    folder = PlanFolder(tmp_path, ALLOWANCE)
    kept_plan(folder, "one", problem(), plan)
    other = problem(cluster=replace(CLUSTER, memory=5000))
    assert kept_plan(folder, "one", other, lambda: plan(other)).problem == other
    assert load_plan(tmp_path / "one.json").problem == other


@pytest.mark.parametrize(
    ("other", "key"),
    [(Allowance(6.0, 1, 7), "time_limit"), (Allowance(5.0, 2, 7), "workers"), (Allowance(5.0, 1, 8), "seed")],
)
def test_other_conditions_are_refused(other: Allowance, key: str, tmp_path: Path) -> None:
    PlanFolder(tmp_path, ALLOWANCE)
    with pytest.raises(InputError, match=rf"conditions.json: {key} = .*give another folder"):
        PlanFolder(tmp_path, other)


def test_plans_of_another_engine_are_refused(tmp_path: Path) -> None:
    PlanFolder(tmp_path, ALLOWANCE)
    conditions = json.loads((tmp_path / "conditions.json").read_text())
    assert conditions["engine"] == planner_version()
    (tmp_path / "conditions.json").write_text(json.dumps({**conditions, "engine": "0.0"}))
    with pytest.raises(InputError, match=r"engine = .*found with '0\.0'"):
        PlanFolder(tmp_path, ALLOWANCE)


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: cannot be made"):
        PlanFolder(tmp_path / "file", ALLOWANCE)


def test_standard_output_is_no_folder() -> None:
    with pytest.raises(InputError, match="output = '-': must be a folder"):
        PlanFolder("-", ALLOWANCE)


def test_an_answer_without_a_plan_is_asked_again(tmp_path: Path) -> None:
    folder = PlanFolder(tmp_path, ALLOWANCE)
    assert kept_plan(folder, "none", problem(), no_plan) == no_plan()
    assert not folder.file("none").exists()
    assert kept_plan(folder, "none", problem(), plan).schedule is not None


def test_what_a_signal_ended_is_not_kept(tmp_path: Path) -> None:
    folder = PlanFolder(tmp_path, ALLOWANCE)
    with pytest.raises(KeyboardInterrupt):
        kept_plan(folder, "one", problem(), lambda: plan(reason="interrupted"))
    assert not folder.file("one").exists()


def refuse() -> Plan:
    raise InputError("must be at least 12", key="layers", value=10)


@pytest.mark.parametrize("make", [lambda path: PlanFolder(path, ALLOWANCE), lambda _: None])
def test_a_problem_without_any_plan_is_an_answer(
    make: Callable[[Path], PlanFolder | None], tmp_path: Path
) -> None:
    found = kept_plan(make(tmp_path), "one", problem(), refuse)
    assert (found.schedule, str(found.status)) == (None, "unknown")
    assert found.reason == "layers = 10: must be at least 12"
