"""Each constraint family of the lattice model is needed: without it, the model takes what is no schedule."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from helpers.constraint_families import (
    ALONE,
    BUSY,
    FUSED,
    IN_PAIRS,
    POOLED,
    REDUCED,
    TWO,
    Case,
    Known,
    families_of,
    left_out,
    open_windows,
)
from ortools.sat.python import cp_model

from tightpipe import Instance, retime, validate
from tightpipe.model.metrics import cost
from tightpipe.solver.cpsat.lattice import Constraints, LatticeModel
from tightpipe.solver.queues import queues_of

CASES = {
    "sequence": Case(TWO),
    "precedence": Case(TWO),
    "busy_links": Case(BUSY),
    "order_in_time": Case(POOLED),
    "lattice": Case(IN_PAIRS, ("sequence", "idle_time")),
    "no_overlap": Case(TWO, ("order_in_time",)),
    "weight_after_backward": Case(POOLED),
    "memory": Case(ALONE),
    "spans": Case(TWO),
    "reductions": Case(REDUCED),
    "work": Case(FUSED, ("order_in_time", "no_overlap")),
    "idle_time": Case(POOLED, ("order_in_time", "no_overlap")),
}


def solved(instance: Instance, without: Iterable[str] = ()) -> tuple[LatticeModel, cp_model.CpSolver]:
    queues = queues_of(instance)
    with left_out(Constraints, without):
        model = LatticeModel(queues, open_windows(queues), 0)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model.model) == cp_model.OPTIMAL
    return model, solver


def least(instance: Instance, without: Iterable[str]) -> int:
    return round(solved(instance, without)[1].objective_value)


def test_every_family_has_a_case() -> None:
    assert set(CASES) == families_of(Constraints)


@pytest.mark.parametrize(
    "known", [TWO, BUSY, POOLED, IN_PAIRS, ALONE, FUSED, REDUCED], ids=lambda known: str(known.optimum)
)
def test_all_families_together_give_a_cheapest_schedule(known: Known) -> None:
    model, solver = solved(known.instance)
    schedule = retime(known.instance, model.order([solver.value(var) for var in model.decisions]))
    assert validate(known.instance, schedule) == []
    assert cost(schedule) == round(solver.objective_value) == known.optimum


@pytest.mark.parametrize("family", CASES)
def test_without_a_family_costs_seem_possible_that_are_not(family: str) -> None:
    case = CASES[family]
    with_it = least(case.known.instance, case.beside)
    assert least(case.known.instance, (*case.beside, family)) < with_it <= case.known.optimum
