"""Repeating blocks: least periods against brute force, compression against a linear program, unrolling."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise
from math import ceil

import pytest
from cases import instances, serial_order, uniform
from endless import least_period, problem
from families import Case, Known, families_of, left_out
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

from tightpipe import Instance, Memory, Operation, OpKind, Status, retime, solve, validate
from tightpipe.core.budget import UNLIMITED
from tightpipe.core.metrics import cost
from tightpipe.solver.block import Block, Shape, compressed, period_bound, repeated, serial_block, unrolled
from tightpipe.solver.cpsat.periodic.constraints import Constraints
from tightpipe.solver.cpsat.periodic.model import PeriodicModel
from tightpipe.solver.cpsat.periodic.settle import settle
from tightpipe.solver.periods import search_period, steady_block
from tightpipe.solver.periods.ask import ask


def tiny(seed: int) -> Instance:
    """A random instance of one route with two stages, whose blocks can be enumerated."""
    rng = random.Random(seed)
    placement, devices = rng.choice([("linear", 2), ("v", 1)])
    weight, backward = rng.randint(0, 2), rng.randint(0, 2)
    least = (weight + backward) * (2 if placement == "v" else 1)
    return uniform(
        devices,
        rng.randint(4, 9),
        (rng.randint(1, 2), rng.randint(1, 2), rng.randint(1, 2)),
        comm=rng.randint(0, 1),
        placement=placement,
        memory=Memory(weight + backward, -backward, -weight, least + rng.randint(0, 2)),
    )


def checked(block: Block) -> Block:
    assert problem(block.shape.instance, block.shape.copies, block.period, block.start) == ""
    return block


SHORT = (1, 2, 6, 8, 10, 15, 18, 19, 20, 22, 26, 31, 37)  # least periods up to 6: enumerated in seconds


@pytest.mark.parametrize("seed", SHORT)
def test_the_least_period_of_one_microbatch_is_that_of_all_starts(seed: int) -> None:
    instance = tiny(seed)
    found = search_period(Shape(instance, 1), UNLIMITED)
    assert found.closed
    assert checked(found.block).period == found.bound == least_period(instance)


def test_for_some_of_them_no_formula_gives_the_least_period() -> None:
    shapes = [Shape(tiny(seed), 1) for seed in SHORT]
    assert sum(period_bound(shape) < search_period(shape, UNLIMITED).block.period for shape in shapes) >= 3


@pytest.mark.parametrize("copies", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_more_microbatches_need_no_more_time_each(seed: int, copies: int) -> None:
    instance = tiny(seed)
    few, many = (search_period(Shape(instance, k), UNLIMITED.within(20)) for k in (1, copies))
    assert few.closed
    assert many.closed
    assert checked(many.block).period <= copies * few.block.period


def test_two_microbatches_can_have_a_smaller_period_each_than_one() -> None:
    instance = uniform(4, 12, (31, 30, 15), comm=1, memory=Memory(2, -1, -1, 8))
    assert settle(Shape(instance, 1), 185, UNLIMITED, 2.0) == (None, True)
    two = ask(Shape(instance, 2), 370, UNLIMITED, 0.5).block
    assert two is not None
    assert checked(two).pace <= 185


@settings(max_examples=60, deadline=None)
@given(instances(max_devices=4), st.integers(1, 3))
def test_one_after_another_is_a_block_and_stays_one_when_compressed(instance: Instance, copies: int) -> None:
    shape = Shape(instance, copies)
    block = checked(serial_block(shape))
    short = checked(compressed(block, period_bound(shape)))
    assert period_bound(shape) <= short.period <= block.period
    assert compressed(short, period_bound(shape)).period == short.period


@settings(max_examples=30, deadline=None)
@given(instances(max_devices=3), st.integers(1, 2), st.integers(1, 3))
def test_a_block_repeated_is_a_block_of_more_microbatches(
    instance: Instance, copies: int, times: int
) -> None:
    shape = Shape(instance, copies)
    block = compressed(serial_block(shape), period_bound(shape))
    whole = checked(repeated(block, times))
    assert (whole.shape.copies, whole.pace) == (times * copies, block.pace)


@settings(max_examples=40, deadline=None)
@given(instances(max_devices=3), st.integers(1, 3), st.integers(0, 99))
def test_compression_gives_the_least_period_of_the_sequences(
    instance: Instance, copies: int, delay: int
) -> None:
    shape = Shape(instance, copies)
    block = serial_block(shape)
    block = Block(shape, block.period + delay, block.start)
    assert compressed(block, 1).period == least_by_program(block)


def least_by_program(block: Block) -> int:
    """The least whole period at which neighbours in the endless schedule keep their sequence, and waits hold."""
    shape, program = block.shape, pywraplp.Solver.CreateSolver("GLOP")
    period = program.NumVar(0, program.infinity(), "period")
    start = {op: program.NumVar(-program.infinity(), program.infinity(), str(op)) for op in block.start}
    program.Minimize(period)
    for m in range(shape.microbatches):
        for wait in shape.waits(m):
            program.Add(start[wait.after] >= start[wait.before] + wait.lag)
    for device in range(shape.instance.devices):
        mine = [op for op in block.start if shape.device(op) == device]
        times = sorted((block.start[op] + i * block.period, i, op) for op in mine for i in range(-40, 41))
        middle = next(k for k, (_, i, _) in enumerate(times) if i == 0)
        for (_, i, one), (_, j, other) in pairwise(times[middle : middle + len(mine) + 1]):
            program.Add(start[other] + j * period >= start[one] + i * period + shape.duration(one))
    assert program.Solve() == program.OPTIMAL
    return ceil(period.solution_value() - 1e-6)


@settings(max_examples=30, deadline=None)
@given(instances(max_devices=3), st.integers(1, 3), st.integers(1, 12))
def test_every_block_unrolls_to_valid_schedules_of_any_length(
    instance: Instance, copies: int, microbatches: int
) -> None:
    shape = Shape(instance, copies)
    least = period_bound(shape)
    answer = ask(shape, 2 * least, UNLIMITED.within(5), 0.05)
    block = checked(answer.block or compressed(serial_block(shape), least))
    count = microbatches * len(instance.placement.routes)
    longer = Instance(instance.placement, count, instance.costs, instance.memory, instance.objective)
    assert validate(longer, unrolled(block, longer)) == []


def test_in_the_long_run_an_unrolled_block_costs_its_period_per_period() -> None:
    shape = Shape(uniform(4, 24, (10, 12, 8), comm=1, memory=Memory(2, -1, -1, 8)), 2)
    block = search_period(shape, UNLIMITED.within(3)).block
    costs = []
    for microbatches in (24, 44):
        instance = shape.instance
        longer = Instance(instance.placement, microbatches, instance.costs, instance.memory)
        costs.append(cost(unrolled(block, longer)))
    assert 10 * (block.period - 1) < costs[1] - costs[0] <= 10 * block.period


@settings(max_examples=60, deadline=None)
@given(instances(max_devices=4, max_microbatches=8), st.sampled_from(["serial", "list"]))
def test_no_schedule_is_shorter_than_the_bound_of_a_block_of_all_its_microbatches(
    instance: Instance, start: str
) -> None:
    if start == "list":
        schedule = solve(instance, "list").schedule
    else:
        schedule = retime(instance, serial_order(instance))
    assert schedule is not None
    copies = instance.microbatches // len(instance.placement.routes)
    assert period_bound(Shape(instance, copies)) <= cost(schedule)


@pytest.mark.parametrize("seed", range(8))
def test_a_schedule_run_again_and_again_is_a_block(seed: int) -> None:
    instance = tiny(seed)
    few = Instance(instance.placement, 2, instance.costs, instance.memory, "makespan")
    best = solve(few, "cpsat", workers=1, time_limit=20)
    assert best.status is Status.OPTIMAL
    found = search_period(Shape(instance, 2), UNLIMITED.within(20))
    assert found.bound <= best.cost
    assert found.block.period <= best.cost


PLAIN = Known(uniform(2, 4, (2, 1, 1), comm=1, placement="linear"), 4)
CASES = {
    "turns": Case(Known(tiny(3), 9)),
    "order_in_time": Case(PLAIN, ("no_overlap",)),
    "no_overlap": Case(PLAIN, ("order_in_time",)),
    "memory": Case(Known(tiny(3), 9)),
    "memory_time": Case(Known(tiny(14), 8), ("memory",)),
}
# Without these, no smaller period seems possible, but a block that is none: the second operation too early.
BROKEN = {
    "waits": (1, Operation(OpKind.F, 1, 0), Operation(OpKind.B, 1, 0)),
    "sequence": (2, Operation(OpKind.W, 0, 0), Operation(OpKind.W, 0, 1)),
}


def least_of_model(instance: Instance, without: Iterable[str]) -> int:
    """The smallest period for which CP-SAT finds a solution, of blocks of one microbatch."""
    return next(period for period in range(2, 40) if status(instance, 1, period, without) == cp_model.OPTIMAL)


def status(
    instance: Instance,
    copies: int,
    period: int,
    without: Iterable[str],
    swapped: tuple[Operation, Operation] | None = None,
) -> int:
    with left_out(Constraints, without):
        model = PeriodicModel(Shape(instance, copies), period)
    if swapped is not None:
        start = model.variables.start
        model.model.add(start[swapped[1]] <= start[swapped[0]])
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    return solver.solve(model.model)


def test_every_family_has_a_case() -> None:
    assert {*CASES, *BROKEN} == families_of(Constraints)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_all_families_together_allow_exactly_the_periods_of_blocks(case: Case) -> None:
    known = case.known
    assert least_of_model(known.instance, ()) == known.optimum


@pytest.mark.parametrize("family", CASES)
def test_without_a_family_periods_seem_possible_that_are_not(family: str) -> None:
    case = CASES[family]
    with_it = least_of_model(case.known.instance, case.beside)
    assert least_of_model(case.known.instance, (*case.beside, family)) < with_it <= case.known.optimum


@pytest.mark.parametrize("family", BROKEN)
def test_without_a_family_operations_swap_that_must_not(family: str) -> None:
    copies, *swapped = BROKEN[family]
    assert status(PLAIN.instance, copies, 12, (), (swapped[0], swapped[1])) == cp_model.INFEASIBLE
    assert status(PLAIN.instance, copies, 12, (family,), (swapped[0], swapped[1])) == cp_model.OPTIMAL


@pytest.mark.parametrize("method", ["v-min", "v-half", "v-zb", "1f1b-v", "list"])
@pytest.mark.parametrize("copies", [1, 2])
def test_what_a_schedule_repeats_is_a_valid_block_of_its_own_pace(method: str, copies: int) -> None:
    instance = uniform(3, 24, (10, 12, 8), comm=1, memory=Memory(2, -1, -1, 12))
    more = uniform(3, 36, (10, 12, 8), comm=1, memory=Memory(2, -1, -1, 12))
    few, many = solve(instance, method), solve(more, method)
    block = steady_block(many.schedule, copies)
    if block is None:
        assert method == "list"
        return
    checked(block)
    assert few.cost is not None
    assert many.cost is not None
    assert block.pace <= (many.cost - few.cost) / 12
    assert validate(instance, unrolled(block, instance)) == []


@settings(max_examples=30, deadline=None)
@given(instances(max_devices=3, most_occupancy=0), st.integers(1, 3))
def test_a_steady_block_of_any_schedule_is_valid(instance: Instance, copies: int) -> None:
    block = steady_block(retime(instance, serial_order(instance)), copies)
    if block is not None:
        checked(block)


@pytest.mark.parametrize("placement", ["linear", "v", "loop", "wave"])
def test_one_microbatch_after_another_is_a_block(placement: str) -> None:
    instance = uniform(2, 12, (10, 12, 8), comm=1, placement=placement, memory=Memory(2, -1, -1, 8))
    block = steady_block(retime(instance, serial_order(instance)), 1)
    assert block is not None
    checked(block)


@pytest.mark.parametrize("rule", [{"overlapped": 15}, {"iterations": 2}])
def test_a_schedule_with_other_rules_has_no_block(rule: dict[str, int]) -> None:
    instance = uniform(2, 12, (10, 12, 8), **rule)
    assert steady_block(retime(instance, serial_order(instance)), 1) is None
