"""Each constraint family of the plain model is needed: without it, the model takes what is no schedule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from unittest import mock

import pytest
from helpers.cases import uniform
from helpers.constraint_families import ALONE, BUSY, TWO, Case, Known, families_of, horizon_of, left_out
from ortools.sat.python import cp_model

from tightpipe import Instance, Objective, Operation, OpKind, retime, validate
from tightpipe.model.costs import MicrobatchSlice, Offload, Step
from tightpipe.model.metrics import cost
from tightpipe.solver.cpsat import plain as plain_model
from tightpipe.solver.cpsat.plain import Constraints, PlainModel
from tightpipe.solver.cpsat.plain_variables import Joint, ends_stage, gradient_at, operations_of

SLICED = Known(
    uniform(
        *(2, 2, (3, 4, 2)),
        comm=1,
        placement="linear",
        slices=[MicrobatchSlice(forward=1, backward=8), MicrobatchSlice(forward=8, backward=1)],
    ),
    56,
)
PAIRED = Known(uniform(2, 2, (3, 4, 2), comm=1, placement="linear", overlapped=4), 24)
BUSY_PAIRS = Known(uniform(2, 3, (5, 5, 5), comm=1, overlapped=2, link_occupancy=1, objective="makespan"), 73)
"""Device 0 sends a message of each operation of a pair over one link."""
CASES = {
    "forward_dependency": Case(TWO),
    "backward_dependency": Case(TWO),
    "weight_dependency": Case(TWO),
    "busy_links": Case(BUSY),
    "no_overlap": Case(TWO),
    "memory": Case(ALONE),
    "ready": Case(Known(replace(TWO.instance, objective=Objective.STEP, step=Step(ready=[9, 0])), 34)),
    "pairs": Case(PAIRED),
    "slices": Case(SLICED),
    "flushes": Case(Known(replace(TWO.instance, iterations=2), 36)),
    "copies": Case(Known(replace(ALONE.instance, offload=Offload(2, 2, 2)), 39)),
}
BREAKS_TIES = {"first_in_first_out", "names"}  # what they leave out is no cheaper, but for copies


def built(instance: Instance, without: Iterable[str] = ()) -> PlainModel:
    with left_out(Constraints, without):
        return PlainModel(instance, horizon_of(instance), 0, fifo=True)


def solved(model: PlainModel) -> cp_model.CpSolver | None:
    """The solver with a cheapest solution; None where the model has none."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model.model)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return solver if status == cp_model.OPTIMAL else None


def least(instance: Instance, without: Iterable[str] = ()) -> int:
    return round(solved(built(instance, without)).objective_value)


def test_every_family_has_a_case() -> None:
    assert set(CASES) | BREAKS_TIES == families_of(Constraints)


@pytest.mark.parametrize(
    "known",
    [
        TWO,
        BUSY,
        BUSY_PAIRS,
        ALONE,
        *(CASES[f].known for f in ("ready", "pairs", "slices", "flushes", "copies")),
    ],
    ids=lambda known: str(known.optimum),
)
def test_all_families_together_give_a_cheapest_schedule(known: Known) -> None:
    model = built(known.instance)
    solver = solved(model)
    schedule = retime(known.instance, model.order([solver.value(var) for var in model.decisions]))
    assert validate(known.instance, schedule) == []
    assert cost(schedule) == round(solver.objective_value) == known.optimum


@pytest.mark.parametrize("family", CASES)
def test_without_a_family_costs_seem_possible_that_are_not(family: str) -> None:
    known = CASES[family].known
    assert least(known.instance, [family]) < known.optimum


@pytest.mark.parametrize("objective", ["device_span", "makespan"])
def test_without_spans_the_cost_is_that_of_nothing(objective: str) -> None:
    instance = replace(TWO.instance, objective=Objective(objective))
    assert least(instance) == TWO.optimum  # which starts and ends on the first device
    with mock.patch.object(plain_model, "bound_spans"):
        assert least(instance) == 0


@pytest.mark.parametrize(("without", "cheapest"), [([], None), (["first_in_first_out"], TWO.optimum)])
def test_microbatches_overtake_only_without_their_sequence(without: list[str], cheapest: int | None) -> None:
    model = built(TWO.instance, without)
    first, second = (model.variables.start[Operation(OpKind.F, 0, m)] for m in range(2))
    model.model.add(second < first)
    solver = solved(model)
    assert (solver and round(solver.objective_value)) == cheapest


def test_only_what_a_stage_has_is_an_operation() -> None:
    frozen = uniform(1, 1, (3, 0, 0), placement="linear", chunks=3)
    costs = replace(frozen.costs, backward=(0, 0, 4), weight=(0, 5, 0))
    instance = replace(frozen, costs=costs)
    assert [str(op) for op in operations_of(instance)] == ["F0.0", "F1.0", "F2.0", "B2.0", "W1.0"]
    assert [str(op) for op in operations_of(instance) if ends_stage(instance, op)] == ["F0.0", "B2.0", "W1.0"]
    assert [str(gradient_at(instance, stage, 0)) for stage in range(3)] == ["None", "W1.0", "B2.0"]


@pytest.mark.parametrize(("fused", "together", "least_fused", "pairs"), [(5, None, 2, 0), (6, 9, 0, 2)])
def test_operations_run_jointly_where_that_may_save(
    fused: int, together: int | None, least_fused: int, pairs: int
) -> None:
    instance = uniform(1, 2, (3, 4, 2), placement="linear", fused=fused, overlapped=together)
    joint = Joint(cp_model.CpModel(), instance)
    assert instance.fusing_saves_at(0) == (least_fused > 0)
    assert (len(joint.fused), len(joint.pairs)) == (least_fused, pairs)
    assert all(f.microbatch != b.microbatch for f, b in joint.pairs)
