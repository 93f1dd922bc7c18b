"""How the targets of a destructive bound go up."""

from __future__ import annotations

import pytest
from helpers.cases import uniform

from tightpipe import Proof
from tightpipe.model.result import Bound, ignore
from tightpipe.params.budget import UNLIMITED
from tightpipe.solver.bounds.destructive import Steps, destructive_bound
from tightpipe.solver.bounds.formulas import best_bound

INSTANCE = uniform(2, 3, (3, 4, 2), comm=1, placement="linear")
FORMULA = best_bound(INSTANCE).value
UPPER = FORMULA + 80
BISECTION = Steps(first=1 / 2, last=0, share=0.5)
CAREFUL = Steps(first=1 / 8, last=1 / 16, share=0.5)


def search(truth: int, steps: Steps, lower: int = 0, seconds: float = 60) -> tuple[Bound, list[int]]:
    """Refute what is below the truth; the bound, and the targets that were asked."""
    asked: list[int] = []

    def refute(target: int, _: object) -> Proof | None:
        asked.append(target)
        return Proof.SHAVING if target < truth else None

    budget = UNLIMITED.within(seconds)
    return destructive_bound(
        "test", "not {target}", refute, steps, INSTANCE, UPPER, budget, lower, ignore
    ), asked


@pytest.mark.parametrize("above", [1, 2, 37, 79, 80])
def test_bisection_finds_the_truth(above: int) -> None:
    truth = FORMULA + above
    bound, asked = search(truth, BISECTION)
    assert (bound.value, bound.argument, bound.proof) == (truth, f"not {truth - 1}", Proof.SHAVING)
    assert all(FORMULA <= target < UPPER for target in asked)
    assert len(asked) == len(set(asked)) <= 8


def test_steps_double_while_targets_fall() -> None:
    _, asked = search(UPPER, CAREFUL)
    steps = [b - a for a, b in zip([FORMULA, *(target + 1 for target in asked)], asked, strict=False)]
    assert steps[:3] == [10, 20, 24]  # the first is an eighth of 80, the third half of what is left


def test_an_open_target_is_not_passed() -> None:
    bound, asked = search(FORMULA + 5, CAREFUL)
    assert asked[:2] == [FORMULA + 10, FORMULA + 5]
    assert bound.value <= FORMULA + 5


def test_targets_begin_at_what_is_proven() -> None:
    _, asked = search(UPPER, BISECTION, lower=FORMULA + 60)
    assert min(asked) >= FORMULA + 60


@pytest.mark.parametrize(("truth", "seconds"), [(FORMULA, 60), (UPPER, 0)])
def test_where_nothing_is_refuted_the_formula_stands(truth: int, seconds: float) -> None:
    bound, asked = search(truth, BISECTION, seconds=seconds)
    assert (bound.value, bound.name) == (FORMULA, best_bound(INSTANCE).name)
    assert bool(asked) == (seconds > 0)
