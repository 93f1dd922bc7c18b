"""The plans of two hundred small problems cost what brute force over all candidates found, as the file says."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.small_models import KnownPlan, digest, known_plans, random_problem
from planning.test_planner import SAMPLE, check_is_best

KNOWN = known_plans()


def test_the_generator_has_not_changed() -> None:
    changed = [line.seed for line in KNOWN if digest(random_problem(line.seed)) != line.digest]
    assert not changed, "run benchmarks/small_plans.py on an empty file"


def test_there_are_two_hundred_and_some_of_them_fit_nowhere() -> None:
    assert len(KNOWN) == 200
    assert 10 <= sum(line.cost is None for line in KNOWN) <= 50


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "line", [line for line in KNOWN if line.seed not in SAMPLE], ids=lambda line: line.seed
)
def test_a_plan_is_the_best_of_all(line: KnownPlan, tmp_path: Path) -> None:
    check_is_best(line.seed, line.cost, tmp_path)
