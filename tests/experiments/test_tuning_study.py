"""The study of parameters: its instances are the same everywhere, and its table says what the solves say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import tune  # noqa: E402  # in no package
from growing_table import lines_of  # noqa: E402
from tune import TABLE, Trial, measured, sign_test, study_instance, trials, worth  # noqa: E402

from tightpipe import Objective  # noqa: E402
from tightpipe.model.instance_file import instance_from_dict, instance_to_dict  # noqa: E402
from tightpipe.params.solve_params import params_from_dict  # noqa: E402

NUMBERS = range(24)


def line(parameter: str, value: str, instance: int, cost: int | None, bound: int = 90) -> dict[str, str]:
    return {
        **{"method": "best" if parameter.startswith("best") else "list", "instance": str(instance)},
        **{"parameter": parameter, "value": value, "seed": "0"},
        **{"cost": "" if cost is None else str(cost), "bound": str(bound)},
    }


@pytest.mark.parametrize("number", NUMBERS)
def test_an_instance_of_the_study_is_the_same_in_every_run(number: int) -> None:
    instance = study_instance(number)
    study_instance.cache_clear()
    assert study_instance(number) == instance == instance_from_dict(instance_to_dict(instance))
    assert instance.infeasibility() is None


def test_the_instances_are_spread_over_what_searches_meet() -> None:
    instances = [study_instance(number) for number in NUMBERS]
    assert len(set(instances)) == len(instances)
    assert {instance.objective for instance in instances} == {Objective.DEVICE_SPAN, Objective.MAKESPAN}
    assert {4, 16} <= {instance.devices for instance in instances} <= set(range(4, 17))
    limits = [instance.memory_limit(0) for instance in instances]
    assert {limit / i.devices for limit, i in zip(limits, instances, strict=True) if limit} == {10, 20}
    assert all(len(set(instance.costs.forward)) > 1 for instance in instances)  # type: ignore[arg-type]


def test_every_change_of_the_study_changes_a_parameter_that_there_is() -> None:
    asked = trials()
    assert len(set(asked)) == len(asked)
    for trial in asked:
        assert list(params_from_dict(trial.params()).changed()) == [trial.parameter][: len(trial.parameter)]


def test_a_method_is_tried_where_it_schedules_the_placement() -> None:
    assert {trial.method for trial in trials()} - {trial.method for trial in trials((), "loop")} == {
        "v-adaptive"
    }


def test_only_some_parameters_are_studied_with_the_defaults_beside_them() -> None:
    asked = trials(("fold.", "best.hope"))
    assert [trial.parameter for trial in asked] == ["", "fold.share", "", "best.hope", "best.hope"]
    assert {trial.method for trial in asked} == {"improve", "best"}


def test_a_line_tells_the_solve_and_its_conditions_and_does_not_depend_on_the_run() -> None:
    trial = Trial("improve", "anneal.far", "0.3")
    one, again = (measured(0.1, 11, trial, 3) for _ in range(2))
    assert one.keys() == set(tune.COLUMNS)
    assert (one["instance"], one["parameter"], one["value"], one["seed"]) == (11, "anneal.far", "0.3", 3)
    assert one["effort"] == 0.1
    assert (one["cost"], one["bound"]) == (again["cost"], again["bound"])


def test_the_table_compares_each_change_with_the_defaults_of_the_same_instance() -> None:
    lines = [line("", "", k, 100) for k in range(4)]
    lines += [line("list.retimed", "1", k, cost) for k, cost in enumerate((102, 98, 101, 100, 7))]
    (found,) = worth(lines)  # the default has no fifth instance
    assert (found["parameter"], found["value"], found["solves"]) == ("list.retimed", "1", 4)
    assert found["mean"] == pytest.approx(0.25)
    assert (found["best"], found["worst"]) == (pytest.approx(-2), pytest.approx(2))
    assert (found["better"], found["worse"], found["p"]) == (1, 2, 1.0)
    assert found["error"] == pytest.approx(1.96 * (8.75 / 3 / 4) ** 0.5)


def test_the_method_best_is_compared_by_its_gaps_and_a_solve_without_a_schedule_does_not_count() -> None:
    usual = [{**line("best", "", k, cost), "parameter": ""} for k, cost in enumerate((100, 100, 100))]
    changed = [
        line("best.hope", "0.25", 0, 100, 95),
        line("best.hope", "0.25", 1, 100, 90),
        line("best.hope", "0.25", 2, None),
    ]
    (found,) = worth([*usual, *changed])
    assert found["mean"] == pytest.approx(-2.5)  # gaps of 5 and 10 % in place of 10 and 10 %
    assert (found["solves"], found["better"], found["worse"]) == (2, 1, 0)


@pytest.mark.parametrize(
    ("better", "worse", "expected"), [(0, 0, 1), (1, 0, 1), (5, 0, 2 / 32), (0, 6, 2 / 64), (4, 1, 12 / 32)]
)
def test_the_sign_test_is_the_exact_one_with_two_sides(better: int, worse: int, expected: float) -> None:
    assert sign_test(better, worse) == pytest.approx(expected)


def test_the_committed_table_has_a_solve_with_the_defaults_beside_each_other_one() -> None:
    lines = lines_of(TABLE)
    usual = {(each["method"], each["instance"], each["seed"]) for each in lines if not each["parameter"]}
    assert {(each["method"], each["instance"], each["seed"]) for each in lines} == usual
    assert list(worth(lines))


def test_the_page_shows_the_table_of_the_committed_solves() -> None:
    assert TABLE.with_suffix(".md").read_text() == f"{tune.page(lines_of(TABLE))}\n"
    assert '--8<-- "results/tuning.md"' in (ROOT / "docs/parameters.md").read_text()


def test_solves_in_two_processes_give_the_lines_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for processes in ("1", "2"):
        path = tmp_path / f"in_{processes}.csv"
        words = (
            "--instances",
            "2",
            "--only",
            "list.,v_blocks.kept",
            "--processes",
            processes,
            "-o",
            str(path),
        )
        monkeypatch.setattr(sys, "argv", ["tune.py", *words])
        tune.main()
        found.append([{**each, "seconds": ""} for each in lines_of(path)])
    assert found[0] == found[1]
    assert [each["method"] for each in found[0]] == [
        "list",
        "list",
        "list",
        "list",
        "v-adaptive",
        "v-adaptive",
    ]
