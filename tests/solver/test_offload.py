"""Instances with offload: CP-SAT finds the optimum, no bound is above it, and no method claims too much."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from helpers.cases import uniform
from helpers.constraint_families import left_out
from helpers.copied_cases import Ticks, copied_case
from helpers.copying import copying_v
from helpers.independent_model import optimal_schedule
from ortools.sat.python import cp_model

from tightpipe import (
    InputError,
    Instance,
    Memory,
    Operation,
    OpKind,
    Placement,
    Schedule,
    Status,
    retime,
    solve,
    validate,
)
from tightpipe.explain.two_times_proof import prove_by_two_times
from tightpipe.model.costs import MicrobatchClass, MicrobatchSlice, Offload, Step
from tightpipe.model.metrics import cost
from tightpipe.model.result import ignore
from tightpipe.params.budget import Allowance
from tightpipe.registry.methods import METHODS
from tightpipe.registry.solve import bounds_within
from tightpipe.solver.best import raise_bounds
from tightpipe.solver.bounds.formulas import all_bounds, best_bound, copies_bound
from tightpipe.solver.bounds.relaxed import relaxed, without_copies
from tightpipe.solver.cpsat.cpsat_method import solve_cpsat
from tightpipe.solver.cpsat.plain import Constraints, PlainModel
from tightpipe.solver.engine.run import one_by_one
from tightpipe.solver.queues import Rule, is_modelled, refuse_unmodelled

V = Instance.uniform(
    devices=2,
    microbatches=4,
    placement="v",
    forward=10,
    backward=10,
    weight=8,
    memory=Memory(2, -1, -1, 4),
    objective="makespan",
    offload=Offload(1, 3, 3),
)
TIGHT = replace(V, memory=Memory(2, -1, -1, 3))  # two activations do not fit at once


def optimal(instance: Instance, seconds: float = 30) -> Schedule:
    result = solve_cpsat(instance, Allowance(seconds, workers=1).begin())
    assert result.status is Status.OPTIMAL, result.reason
    assert validate(instance, result.schedule) == []
    return result.schedule


def copies_of(schedule: Schedule) -> int:
    return int((schedule.order.operations[:, 0] > OpKind.BW).sum())


@pytest.mark.parametrize("seed", range(12))
def test_cpsat_proves_the_optimum_that_trying_everything_finds(seed: int) -> None:
    instance = replace(copied_case(seed), objective="makespan")
    assert cost(optimal(instance)) == Ticks(instance).least_makespan()


@pytest.mark.parametrize("seed", range(40, 46))
def test_the_independent_model_finds_the_optimum_that_trying_everything_finds(seed: int) -> None:
    instance = replace(copied_case(seed), objective="makespan")
    assert cost(optimal_schedule(instance)) == Ticks(instance).least_makespan()


@pytest.mark.parametrize("seed", range(200, 215))
def test_the_names_of_units_leave_out_no_cheapest_schedule(seed: int) -> None:
    instance = widened(copied_case(seed), seed)
    horizon = cost(retime(instance, one_by_one(instance)))
    with left_out(Constraints, ["names"]):
        free = PlainModel(instance, horizon, 0, fifo=False)
    named = PlainModel(instance, horizon, 0, fifo=False)
    assert least(named) == least(free)


@pytest.mark.parametrize(
    ("copied", "possible"), [((0, 0), False), ((0, 1), False), ((1, 1), False), ((1, 0), True)]
)
def test_two_units_run_in_sequence_unless_they_are_entangled(copied: tuple[int, int], possible: bool) -> None:
    instance = uniform(1, 2, (3, 4, 2), placement="linear", memory=Memory(2, -1, -1, 4))
    model = PlainModel(replace(instance, offload=Offload(1, 2, 2)), 100, 0, fifo=False)
    f, b = ([Operation(kind, 0, m) for m in range(2)] for kind in (OpKind.F, OpKind.B))
    v, solver = model.variables, cp_model.CpSolver()
    for one, made in zip(f, copied, strict=True):
        model.model.add(v.copies.made[one] == made)
    model.model.add(v.start[b[1]] < v.start[b[0]])
    assert (solver.solve(model.model) == cp_model.OPTIMAL) == possible
    if possible:
        out, back = (f[0]._replace(kind=kind) for kind in (OpKind.O, OpKind.L))
        assert solver.value(v.copies.start[out]) < solver.value(v.end[f[1]])
        assert solver.value(v.copies.end[back]) > solver.value(v.start[b[1]])


ENTANGLED = replace(
    uniform(2, 4, ((2, 2), (2, 1), 0), comm=3, placement="linear", memory=Memory(1, -1, 0, [3, 2])),
    objective="makespan",
    offload=Offload([1, 0], 4, 6),
)
"""A microbatch stays away from device 0 for so long that another one overtakes it."""


def test_first_in_first_out_costs_more_where_units_are_entangled() -> None:
    instance = ENTANGLED
    horizon = cost(retime(instance, one_by_one(instance)))
    assert least(PlainModel(instance, horizon, 0, fifo=True)) == 24
    assert cost(optimal(instance)) == cost(optimal_schedule(instance)) == 23


def test_copies_of_units_in_sequence_run_in_sequence() -> None:
    instance = uniform(1, 2, (3, 4, 2), placement="linear", memory=Memory(2, -1, -1, 4))
    model = PlainModel(replace(instance, offload=Offload(1, 2, 2)), 100, 0, fifo=False)
    copies, (first, second) = model.variables.copies, (Operation(OpKind.F, 0, m) for m in range(2))
    for f in (first, second):
        model.model.add(copies.made[f] == 1)
    out = (copies.start[f._replace(kind=OpKind.O)] for f in (second, first))
    assert solves(model)
    model.model.add(next(out) < next(out))
    assert not solves(model)


def solves(model: PlainModel) -> bool:
    return cp_model.CpSolver().solve(model.model) == cp_model.OPTIMAL


def least(model: PlainModel) -> int:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 30
    assert solver.solve(model.model) == cp_model.OPTIMAL
    return round(solver.objective_value)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(100, 145))
def test_no_bound_of_an_instance_with_offload_is_above_the_optimum(seed: int) -> None:
    instance = widened(copied_case(seed), seed)
    best = optimal(instance)
    found = all_bounds(instance)
    raise_bounds(best, Allowance(0.5, workers=1).begin(), found, ignore)
    for bound in found:
        assert bound.value <= cost(best), bound


def widened(instance: Instance, seed: int) -> Instance:
    """Fused backwards, two classes, slices, a step around, pairs, or nothing else; and messages."""
    costs = replace(instance.costs, comm=seed % 4)
    if seed % 6 == 0:
        both = zip(costs.backward, costs.weight, strict=True)
        costs = replace(costs, fused=[max(1, b + w - 1) for b, w in both])
    instance = replace(instance, costs=costs)
    if seed % 6 == 1 and instance.microbatches > 1:
        others = MicrobatchClass(1, forward=[2 * f for f in costs.forward])
        return replace(instance, classes=[others, MicrobatchClass(instance.microbatches - 1)])
    if seed % 6 == 2:
        memory = replace(instance.memory, limit=[2 * limit for limit in instance.memory.limit])
        slices = [MicrobatchSlice(), MicrobatchSlice(backward=1)]
        return replace(instance, microbatches=1, slices=slices, memory=memory)
    if seed % 6 == 3:
        return replace(instance, objective="step", step=Step(ready=1, reduce=2, optimizer=1))
    if seed % 6 == 4:
        return replace(instance, costs=replace(costs, overlapped=5))
    return instance


def test_without_regard_to_copies_bounds_would_be_above_the_optimum() -> None:
    best = optimal(replace(V, microbatches=2, memory=Memory(2, -1, -1, 4)))
    instance = best.instance
    assert best_bound(instance).value <= cost(best)
    assert best_bound(replace(instance, offload=None)).value > cost(best)


@pytest.mark.parametrize("seed", range(100, 130))
def test_without_copies_and_what_may_leave_a_schedule_stays_valid(seed: int) -> None:
    """The proof of the docstring, step by step."""
    instance = widened(copied_case(seed), seed)
    schedule = retime(instance, one_by_one(instance))
    resident = without_copies(instance)
    kept = schedule.order.computes
    alone = Schedule(resident, schedule.order.without_copies(), schedule.start[kept], schedule.end[kept])
    assert validate(resident, alone) == []
    assert all(not one.instance.offload for one in relaxed(instance))


def test_what_may_leave_is_freed_by_b_as_long_as_there_is_some() -> None:
    wide = replace(V, memory=Memory(3, -1, -2), offload=Offload([0, 1, 2, 3], 1, 1))
    memory = without_copies(wide).memory
    assert memory.forward == (3, 2, 1, 0)
    assert memory.backward == (-1, 0, 0, 0)
    assert memory.weight == (-2, -2, -1, 0)


FAR = Instance(
    Placement("linear", 2),
    6,
    replace(uniform(2, 6, (2, 2, 2), placement="linear").costs, comm=20),
    Memory(2, -2, 0, 2),
    "device_span",
)
"""Stage 0 holds a microbatch for 2 ticks of F, 44 until the gradient is there, and 2 of B."""


@pytest.mark.parametrize(
    ("offload", "least"),
    [
        (None, 6 * 48),  # one microbatch after another
        (Offload([2, 0], 30, 30), 6 * 48),  # too slow to save anything
        (Offload([2, 0], 2, 2), 70),  # all F's take 12 of the 46 ticks before the first B, and 24 come after
        (Offload([2, 0], 20, 20), 264),  # each saves 4 of 48, and 6 x 20 ticks of copies fit
    ],
)
def test_copies_save_what_the_engines_can_carry(offload: Offload | None, least: int) -> None:
    instance = replace(FAR, offload=offload)
    assert copies_bound(instance).value == least


def test_engines_limit_how_many_activations_leave() -> None:
    wide = replace(FAR, microbatches=40, memory=Memory(2, -2, 0, 6))
    copies = Offload([2, 0], 1, 1), Offload([2, 0], 15, 15), Offload([2, 0], 15, 15, duplex=False)
    quick, two_engines, one_engine = (copies_bound(replace(wide, offload=one)).value for one in copies)
    assert quick < two_engines < one_engine


def test_copies_make_room_for_few_forwards_before_the_first_backward() -> None:
    """Device 7 begins at 70; until 230, it holds 8 F's, and 7 more in the place of 14 halves that have left."""
    instance = copying_v(8, 24, 16, 10)
    assert copies_bound(instance).value == 70 + 160 - 150 + 24 * 56
    faster = replace(instance, offload=Offload(1, 5, 5))
    assert copies_bound(faster).value < copies_bound(instance).value


@pytest.mark.parametrize(("objective", "limit", "ends"), [("device_span", 8, 0), ("step", 4, 4 + 6 + 3)])
def test_what_leaves_makes_no_room_for_ws_after_the_last_b(objective: str, limit: int, ends: int) -> None:
    """Device 3 begins 33 ticks late, and its last B ends 41 ticks early, beside which W's of others fit."""
    instance = uniform(4, 12, (10, 10, 8), placement="v", comm=1, memory=Memory(2, -1, -1, limit))
    step = Step(ready=4, reduce=6, optimizer=3) if objective == "step" else None
    instance = replace(instance, objective=objective, step=step, offload=Offload(2, 1, 1))
    others = limit - 2
    assert best_bound(instance).name == "splits"
    assert best_bound(instance).value == 33 + 24 * 28 - (others + 1) * 8 + 41 + ends


def test_the_w_of_the_last_b_comes_beside_those_that_fit() -> None:
    """With one W less after the last B of device 1, the bound would be 62."""
    instance = uniform(3, 3, ([4, 1, 1], [3, 8, 5], [2, 9, 8]), placement="linear", comm=1)
    instance = replace(instance, memory=Memory(3, 0, -3, 6), offload=Offload(3, 3, 4))
    assert best_bound(instance).value <= cost(optimal(instance)) <= 60


@pytest.mark.parametrize(("seed", "value"), [(2006, 40), (2090, 34)])
def test_copies_bring_back_little_after_the_last_forward(seed: int, value: int) -> None:
    """All other bounds, and what is known of the first ticks alone, say less."""
    instance = replace(copied_case(seed), objective="makespan", microbatches=4)
    assert copies_bound(instance).value == value <= cost(optimal(instance))


@pytest.mark.parametrize("limit", [3, 4])
def test_every_method_returns_a_schedule_or_says_in_one_line_why_not(limit: int) -> None:
    instance = replace(V, microbatches=2, memory=Memory(2, -1, -1, limit))
    least = cost(optimal(instance))
    for name, method in METHODS.items():
        if "v" not in method.placements:
            continue
        if name in ("block", "milp"):
            continue  # they refuse, as another test says
        result = solve(instance, name, time_limit=0.3, workers=1)
        if result.schedule is None:
            assert method.kind == "heuristic"
            assert result.status is Status.UNKNOWN
            assert result.reason
            assert "\n" not in result.reason
        else:
            assert validate(instance, result.schedule) == []
            assert result.bound <= least <= result.cost


def test_a_search_starts_with_copies_where_memory_is_too_small_for_any_other_start() -> None:
    assert replace(TIGHT, offload=None).infeasibility()
    first = retime(TIGHT, one_by_one(TIGHT))
    assert validate(TIGHT, first) == []
    assert copies_of(first)
    assert not copies_of(retime(V, one_by_one(V)))
    assert solve(TIGHT, "best", effort=2, workers=1).cost < cost(first)


@pytest.mark.parametrize("seed", range(40))
def test_the_smallest_limit_holds_one_microbatch_after_another(seed: int) -> None:
    rng = random.Random(seed)
    held = [[rng.randint(2, 5) for _ in range(4)] for _ in range(rng.randint(1, 3))]
    away = [rng.randint(0, 2) for _ in range(4)]
    slices = [MicrobatchSlice(memory=Memory(f, [-x for x in f], 0)) for f in held]
    free = replace(V, microbatches=1, memory=Memory(held[0], [-x for x in held[0]], 0), offload=None)
    free = replace(free, slices=slices, offload=Offload([*away[:3], 1], 1, 1))
    limits = [free.smallest_limit(device) for device in range(2)]
    instance = replace(free, memory=replace(free.memory, limit=limits))
    assert validate(instance, retime(instance, one_by_one(instance))) == []


def test_bounds_are_given_where_no_heuristic_has_a_schedule() -> None:
    found, reason = bounds_within(TIGHT, Allowance(1, workers=1))
    assert reason == ""
    assert "copies" in {bound.name for bound in found}


@pytest.mark.parametrize("solver", ["block", "milp"])
def test_solvers_without_copies_name_the_entry(solver: str) -> None:
    assert not is_modelled(V)
    assert not is_modelled(V, *(rule for rule in Rule if rule is not Rule.OFFLOAD))
    with pytest.raises(InputError, match="does not copy activations") as error:
        solve(V, solver, time_limit=1, workers=1)
    assert error.value.key == "offload"
    refuse_unmodelled(solver, replace(V, offload=None))


def test_the_steps_of_the_theorem_are_not_given_with_copies() -> None:
    with pytest.raises(InputError, match="knows no copies"):
        prove_by_two_times(V)
