"""Repeating blocks: least periods against brute force, compression against a linear program, unrolling."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import ceil

import pytest
from helpers.cases import instances, serial_order, uniform
from helpers.constraint_families import Case, Known, families_of, left_out
from helpers.endless import least_period, problem
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

from tightpipe import Instance, Memory, Operation, OpKind, Status, retime, solve, validate
from tightpipe.model.metrics import cost
from tightpipe.params.budget import UNLIMITED
from tightpipe.params.solve_params import DEFAULTS
from tightpipe.solver.blocks import repeated
from tightpipe.solver.blocks.block import (
    Block,
    Shape,
    earliest_starts,
    memory_time,
    period_bound,
    serial_block,
)
from tightpipe.solver.blocks.period_search import Answer, PeriodSearch, ask, search_period, settle
from tightpipe.solver.blocks.periodic_model import Constraints, PeriodicModel
from tightpipe.solver.blocks.unroll import compressed, shortened, steady_block, unrolled, with_late_weights


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


@pytest.mark.sampled(3)
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
    assert settle(Shape(instance, 1), 185, UNLIMITED, 2.0) == Answer(None, refuted=True)
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


@settings(max_examples=30, deadline=None)
@given(instances(max_devices=3), st.integers(1, 3))
def test_late_weights_run_at_most_a_period_later_in_a_block_that_stays_valid(
    instance: Instance, copies: int
) -> None:
    shape = Shape(instance, copies)
    answer = ask(shape, 2 * period_bound(shape), UNLIMITED.within(5), 0.05)
    block = answer.block or compressed(serial_block(shape), period_bound(shape))
    late = checked(with_late_weights(block))
    for operation, start in block.start.items():
        most = block.period if operation.kind is OpKind.W else 0
        assert 0 <= late.start[operation] - start <= most


def test_weights_run_late_as_far_as_memory_allows() -> None:
    tight, roomy = (with_late_weights(compressed(serial_block(Shape(line(limit), 1)), 9)) for limit in (2, 8))
    assert [late.start[Operation(OpKind.W, 0, 0)] // late.period for late in (tight, roomy)] == [0, 1]


def test_in_the_long_run_an_unrolled_block_costs_its_period_per_period() -> None:
    shape = Shape(uniform(4, 24, (10, 12, 8), comm=1, memory=Memory(2, -1, -1, 8)), 2)
    block = search_period(shape, UNLIMITED.within(3)).block
    costs = []
    for microbatches in (24, 44):
        instance = shape.instance
        longer = Instance(instance.placement, microbatches, instance.costs, instance.memory)
        costs.append(cost(unrolled(block, longer)))
    assert 10 * (block.period - 1) < costs[1] - costs[0] <= 10 * block.period


MIXED = uniform(2, 24, (10, 11, 9), comm=1, fused=17, memory=Memory(2, -1, -1, 5))


def test_blocks_fuse_some_backwards_where_neither_all_nor_none_give_the_least_period() -> None:
    """All three periods are proven to be the least ones."""
    costs, memory = MIXED.costs, Memory(2, -2, 0, 5)
    split = replace(MIXED, costs=replace(costs, fused=None))
    fused = replace(MIXED, costs=replace(costs, backward=17, weight=0, fused=None), memory=memory)
    searches = [search_period(Shape(one, 1), UNLIMITED) for one in (split, fused, MIXED)]
    assert all(search.closed for search in searches)
    assert [search.block.period for search in searches] == [74, 83, 71]
    assert 0 < len(searches[-1].block.fused) < 2 * MIXED.stages


@pytest.mark.parametrize("times", [1, 3])
def test_in_the_long_run_a_block_with_fused_backwards_costs_its_period_per_period(times: int) -> None:
    block = repeated(search_period(Shape(MIXED, 1), UNLIMITED).block, times)
    costs = []
    for microbatches in (24, 42):
        longer = replace(MIXED, microbatches=microbatches)
        schedule = unrolled(block, longer)
        assert validate(longer, schedule) == []
        assert (schedule.order.operations[:, 0] == OpKind.BW).any()
        costs.append(cost(schedule))
    periods = 18 // times
    assert periods * (block.period - 1) < costs[1] - costs[0] <= periods * block.period


def test_the_parts_of_a_fused_backward_take_its_time_however_short_it_is() -> None:
    for fused in range(2, 25):
        shape = Shape(uniform(1, 4, (10, 11, 9), fused=fused, placement="linear"), 1)
        b, w = Operation(OpKind.B, 0, 0), Operation(OpKind.W, 0, 0)
        together = min(fused, 20)
        assert shape.least(b) + shape.least(w) <= together
        assert shape.fused(b) == (fused if fused < 20 else 0)
        assert not shape.fused(b) or shape.part(b) + shape.part(w) == fused
        assert period_bound(shape) <= 10 + together


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
    best = solve(few, "cpsat", workers=1, effort=20)
    assert best.status is Status.OPTIMAL
    found = search_period(Shape(instance, 2), UNLIMITED.within(20))
    assert found.bound <= best.cost
    assert found.block.period <= best.cost


PLAIN = Known(uniform(2, 4, (2, 1, 1), comm=1, placement="linear"), 4)
CASES = {
    "laps": Case(Known(tiny(3), 9)),
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
        assert method in ("list", "v-zb")  # which choose anew as they go, and so may not repeat
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


F, B, W = OpKind.F, OpKind.B, OpKind.W


def line(limit: int | None, microbatches: int = 4) -> Instance:
    """Two devices with one stage each; F holds 2, of which B and W free 1 each."""
    memory = Memory(2, -1, -1, limit)
    return uniform(2, microbatches, (3, 4, 2), comm=1, placement="linear", memory=memory)


PAIRED = {
    Operation(F, 0, 0): 0,
    Operation(F, 1, 0): 4,
    Operation(B, 1, 0): 7,
    Operation(W, 1, 0): 11,
    Operation(B, 0, 0): 12,
    Operation(W, 0, 0): 16,
}
"""What a device runs within 9 ticks if device 0 runs F's one microbatch ahead: its work alone takes as long."""


def by_sequence(period: int) -> Block:
    """Starts that only say in which sequence the devices run: F B W, on device 0 with B and W a period later."""
    later = {Operation(B, 0, 0): period + 1, Operation(W, 0, 0): period + 2}
    first = {Operation(F, 0, 0): 0, Operation(F, 1, 0): 0, Operation(B, 1, 0): 1, Operation(W, 1, 0): 2}
    return Block(Shape(line(4), 1), period, {**first, **later})


def test_a_shape_numbers_its_microbatches_route_after_route() -> None:
    shape = Shape(uniform(2, 4, (3, 4, 2), placement="bidirectional"), 2)
    assert shape.microbatches == 4
    assert [shape.device(Operation(F, 0, m)) for m in range(4)] == [0, 0, 1, 1]
    assert shape.queue(B, 1, 1) == [Operation(B, 1, 2), Operation(B, 1, 3)]
    assert shape.queues()[-1] == [Operation(W, 1, 2), Operation(W, 1, 3)]
    assert len(shape.on(0)) == len(shape.on(1)) == 12


def test_an_operation_waits_for_the_end_of_another_and_its_message() -> None:
    waits = {(str(wait.before), str(wait.after)): wait.lag for wait in Shape(line(4), 2).waits(1)}
    down_and_up = {("F0.1", "F1.1"): 3 + 1, ("F1.1", "B1.1"): 3, ("B1.1", "B0.1"): 4 + 1}
    assert waits == {**down_and_up, ("B0.1", "W0.1"): 4, ("B1.1", "W1.1"): 4}


def test_a_pace_is_the_period_of_one_microbatch_of_each_route() -> None:
    assert Block(Shape(line(4), 2), 19, {}).pace == Fraction(19, 2)


def test_a_microbatch_that_never_waits_gives_the_memory_that_a_block_takes() -> None:
    shape = Shape(line(4), 2)
    assert earliest_starts(shape, 0) == PAIRED
    assert memory_time(shape, 0) == 2 * (16 + 18)  # from F at 0 to the ends of B and W
    assert memory_time(shape, 1) == 2 * (7 + 9)  # from F at 4 to 11 and 13


@pytest.mark.parametrize(("limit", "period"), [(None, 18), (4, 18), (3, 23), (2, 34)])
def test_a_period_takes_the_work_of_a_device_and_its_memory_time_over_the_limit(
    limit: int | None, period: int
) -> None:
    assert period_bound(Shape(line(limit), 2)) == period  # 18 is the work, 68 the memory-time


def test_a_serial_block_begins_a_microbatch_when_the_one_before_has_ended() -> None:
    block = serial_block(Shape(line(4), 2))
    assert block.period == 36
    assert {op: at for op, at in block.start.items() if op.microbatch == 0} == PAIRED
    assert [block.start[Operation(kind, 0, 1)] for kind in (F, B, W)] == [18, 30, 34]


def test_compression_keeps_how_many_periods_an_operation_comes_later() -> None:
    assert compressed(Block(Shape(line(4), 1), 18, PAIRED), 1).period == 18
    block = compressed(by_sequence(30), 1)
    assert (block.period, block.start) == (9, PAIRED)


def test_sequences_are_shortened_where_their_starts_are_none_but_not_below_the_least_period() -> None:
    assert shortened(by_sequence(9), 1) == Block(Shape(line(4), 1), 9, PAIRED)
    assert shortened(by_sequence(8), 1) is None


def test_a_block_unrolls_to_its_sequence_with_warm_up_and_cool_down() -> None:
    schedule = unrolled(Block(Shape(line(4), 1), 9, PAIRED), line(4))
    assert str(schedule.order).splitlines() == [
        "F0.0 F0.1 B0.0 W0.0 F0.2 B0.1 W0.1 F0.3 B0.2 W0.2 B0.3 W0.3",
        "F1.0 B1.0 W1.0 F1.1 B1.1 W1.1 F1.2 B1.2 W1.2 F1.3 B1.3 W1.3",
    ]
    assert cost(schedule) == 4 * 9 + 9


def test_the_best_microbatch_of_a_block_is_the_first() -> None:
    """The second one begins when the first has ended, and the next first one while the second still runs."""
    second = {Operation(op.kind, op.stage, 1): at + 18 for op, at in PAIRED.items()}
    block = checked(Block(Shape(line(4), 2), 27, {**PAIRED, **second}))
    assert cost(unrolled(block, line(4, microbatches=2))) == 27


def test_a_steady_block_is_the_one_that_was_unrolled() -> None:
    block = steady_block(unrolled(by_sequence(9), line(4)), 1)
    assert block is not None
    assert (block.period, block.start) == (9, PAIRED)


def test_what_a_schedule_repeats_less_than_twice_is_no_block() -> None:
    schedule = unrolled(by_sequence(9), line(4))
    assert steady_block(schedule, 2) is None  # warm-up and cool-down leave no two periods of two microbatches
    assert steady_block(schedule, 3) is None


def test_a_search_without_time_keeps_its_start() -> None:
    shape = Shape(line(4), 1)
    alone = search_period(shape, UNLIMITED.within(0))
    assert (alone.block.period, alone.bound, alone.closed) == (18, 9, False)
    ahead = search_period(shape, UNLIMITED.within(0), by_sequence(9))
    assert (ahead.block.period, ahead.bound, ahead.closed) == (9, 9, True)


def test_a_round_asks_only_for_blocks_of_less_than_a_given_pace() -> None:
    search = PeriodSearch(Shape(line(4), 1))
    assert list(search.ask_round(lambda: UNLIMITED, 1.0, lambda: Fraction(9))) == []
    assert search.block.period == 18
    (block,) = search.ask_round(lambda: UNLIMITED, 1.0, lambda: Fraction(19, 2))
    assert block is search.block
    assert (block.period, search.closed) == (9, True)


def test_a_round_from_a_known_block_gallops_where_devices_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    known = by_sequence(1000)
    asked = []

    def answer(shape: Shape, period: int, *_: object) -> Answer:
        asked.append(period)
        return Answer(replace(known, period=period) if period >= 400 else None, False)

    monkeypatch.setattr("tightpipe.solver.blocks.period_search.ask", answer)
    search = PeriodSearch(Shape(line(4), 1), known, replace(DEFAULTS.blocks, few=0))
    search.block = search._like = known  # before its compression
    best, ways = 1000, []
    for block in search.ask_round(lambda: UNLIMITED, 1.0):
        ways.append(((best - asked[-1]) / (best - search.bound), block is not None))
        best = search.block.period
    for (way, found), (next_way, _) in pairwise(ways[:5]):
        assert next_way == pytest.approx(min(1.0, 2 * way) if found else way / 2, rel=0.05)
    assert {found for _, found in ways[:4]} == {True, False}
    assert asked[-1] == best - 1


def test_a_refuted_period_raises_the_bound() -> None:
    """One activation at a time: a microbatch takes 18 ticks, though memory-time alone would allow 17."""
    search = PeriodSearch(Shape(line(2), 1))
    assert search.bound == 17
    search.settle(UNLIMITED, 1.0)
    assert (search.bound, search.block.period, search.closed) == (18, 18, True)


def test_the_laps_of_a_block_are_the_hint_for_blocks_like_it() -> None:
    shape = Shape(uniform(4, 12, (10, 12, 8), comm=1, memory=Memory(2, -1, -1, 8)), 1)
    block = search_period(shape, UNLIMITED).block
    model = PeriodicModel(shape, block.period, block)
    hint = model.model.proto.solution_hint
    laps = {
        var.index: block.start[operation] // block.period for operation, var in model.variables.lap.items()
    }
    assert dict(zip(hint.vars, hint.values, strict=True)) == laps
    answer = ask(shape, block.period, UNLIMITED, 10.0, block)
    assert answer.block is not None
    assert checked(answer.block).period <= block.period
