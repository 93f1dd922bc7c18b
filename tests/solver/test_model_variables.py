"""The expressions that the families of the CP-SAT models speak of."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from helpers.cases import uniform
from helpers.constraint_families import horizon_of, open_windows
from helpers.schedules import schedules_of
from ortools.sat.python import cp_model

from tightpipe import Instance, Memory, Operation
from tightpipe.model.metrics import cost
from tightpipe.model.operation import OpKind
from tightpipe.solver.blocks.block import Shape, Wait
from tightpipe.solver.blocks.periodic_model import Variables as Periodic
from tightpipe.solver.blocks.periodic_model import most_delays, rooms
from tightpipe.solver.cpsat.lattice_variables import Variables as Lattice
from tightpipe.solver.cpsat.plain import bound_spans
from tightpipe.solver.cpsat.plain_variables import Variables as Plain
from tightpipe.solver.cpsat.plain_variables import receiver
from tightpipe.solver.queues import queues_of, starts_of

F, B, W = OpKind.F, OpKind.B, OpKind.W


@pytest.mark.parametrize("placement", ["linear", "v", "bidirectional"])
def test_counts_before_an_item_are_those_of_the_hinted_schedule(placement: str) -> None:
    instance = uniform(2, 2, (3, 4, 2), comm=1, placement=placement)
    queues = queues_of(instance)
    for schedule in schedules_of(instance, 3):
        if cost(schedule) > horizon_of(instance):  # the windows are for cheaper ones
            continue
        model = cp_model.CpModel()
        variables = Lattice(model, queues, open_windows(queues))
        start = starts_of(queues, schedule)
        variables.add_hint(model, schedule)
        solver = cp_model.CpSolver()
        solver.parameters.fix_variables_to_their_hinted_value = True
        assert solver.solve(model) == cp_model.OPTIMAL
        time = np.array(start)
        for x, y in (pair for on in variables.on for pair in permutations(on, 2)):
            for k, i in enumerate(variables.items(x)):
                count = (time[variables.items(y)] < time[i]).sum()
                assert solver.value(variables.count_before(x, k, y)) == count


def test_each_of_two_items_is_first_where_the_other_is_not() -> None:
    instance = uniform(1, 2, (3, 4, 2), placement="linear")
    queues = queues_of(instance)
    variables = Lattice(cp_model.CpModel(), queues, open_windows(queues))
    for x, y in variables.pairs():
        for k, i in enumerate(variables.items(x)):
            for rank in variables.open_ranks(i, y):
                forth, back = variables.precedes(x, k, y, rank), variables.precedes(y, rank, x, k)
                assert back.negated().index == forth.index


def linear(occupancy: int) -> Instance:
    return uniform(3, 1, (3, 4, 2), comm=1, placement="linear", link_occupancy=occupancy)


@pytest.mark.parametrize(
    ("sender", "expected"),
    [
        (Operation(F, 0, 0), Operation(F, 1, 0)),
        (Operation(F, 2, 0), None),
        (Operation(B, 2, 0), Operation(B, 1, 0)),
        (Operation(B, 0, 0), None),
        (Operation(W, 1, 0), None),
    ],
)
def test_forwards_send_down_the_route_and_backwards_up(sender: Operation, expected: Operation | None) -> None:
    assert receiver(linear(0), sender) == expected


def test_a_device_sends_nothing_to_itself() -> None:
    turn = uniform(2, 1, (3, 4, 2))  # a V: stages 1 and 2 lie on device 1
    assert receiver(turn, Operation(F, 1, 0)) is None
    assert receiver(turn, Operation(F, 0, 0)) == Operation(F, 1, 0)


@pytest.mark.parametrize(
    ("occupancy", "senders"),
    [(3, []), (4, [(F, 0), (F, 1)]), (5, [(F, 0), (F, 1), (B, 1), (B, 2)])],
)
def test_a_message_departs_by_itself_only_where_it_may_have_to_wait(
    occupancy: int, senders: list[tuple[OpKind, int]]
) -> None:
    variables = Plain(cp_model.CpModel(), linear(occupancy), 100)
    assert set(variables.departure) == {Operation(kind, stage, 0) for kind, stage in senders}


@pytest.mark.parametrize(
    ("objective", "cost_of_starts", "begins"), [("device_span", 18, (5, 9)), ("makespan", 23, (0, 0))]
)
def test_the_cost_of_the_plain_model_is_the_longest_span(
    objective: str, cost_of_starts: int, begins: tuple[int, int]
) -> None:
    """The microbatch begins at 5, and is on device 0 for 18 ticks and on device 1 for 9."""
    instance = uniform(2, 1, (3, 4, 2), comm=1, placement="linear", objective=objective)
    model = cp_model.CpModel()
    variables, cost_variable = Plain(model, instance, 100), model.new_int_var(0, 100, "cost")
    bound_spans(model, instance, variables, cost_variable)
    starts = {(F, 0): 5, (F, 1): 9, (B, 1): 12, (W, 1): 16, (B, 0): 17, (W, 0): 21}
    for (kind, stage), start in starts.items():
        model.add(variables.start[Operation(kind, stage, 0)] == start)
    model.minimize(cost_variable)
    solver = cp_model.CpSolver()
    assert solver.solve(model) == cp_model.OPTIMAL
    assert solver.value(cost_variable) == cost_of_starts
    assert solver.value(variables.begin[0]) == begins[0]
    assert solver.value(variables.begin[1]) <= begins[1]


def shape(copies: int, limit: int | None = 4) -> Shape:
    """F holds 2, of which B and W free 1 each: 34 units times ticks a microbatch on device 0, 16 on device 1."""
    memory = Memory(2, -1, -1, limit)
    return Shape(uniform(2, 4, (3, 4, 2), comm=1, placement="linear", memory=memory), copies)


def names(waits: dict[Wait, int]) -> dict[str, int]:
    return {f"{wait.before}-{wait.after}": value for wait, value in waits.items()}


def test_a_delay_takes_the_memory_of_each_device_that_waits_meanwhile() -> None:
    first, last = rooms(shape(1), 20)
    assert (first.most, last.most) == (4 * 20 - 34, 4 * 20 - 16)
    assert names(first.takes) == {"F0.0-F1.0": 2, "F1.0-B1.0": 2, "B1.0-B0.0": 2, "B0.0-W0.0": 1}
    assert names(last.takes) == {"F1.0-B1.0": 2, "B1.0-W1.0": 1}
    assert rooms(shape(1, None), 20) == []


@pytest.mark.parametrize(
    ("copies", "period", "on_chain", "of_w0", "of_w1"),
    [(1, 10, 6 // 2, 6, 9), (2, 20, 12 // 2, 12, 39), (1, 8, -1, -2, 7)],
)
def test_memory_and_two_periods_limit_a_delay(
    copies: int, period: int, on_chain: int, of_w0: int, of_w1: int
) -> None:
    most = names(most_delays(shape(copies), period, rooms(shape(copies), period)))
    assert {most[f"{wait}"] for wait in ("F0.0-F1.0", "F1.0-B1.0", "B1.0-B0.0")} == {on_chain}
    assert (most["B0.0-W0.0"], most["B1.0-W1.0"]) == (of_w0, of_w1)


def test_without_a_limit_a_delay_is_less_than_one_period_or_two() -> None:
    assert set(most_delays(shape(1, None), 10, []).values()) == {9}
    assert set(most_delays(shape(2, None), 20, []).values()) == {39}


def test_starts_of_a_block_lie_between_the_shortest_path_and_all_delays() -> None:
    most = dict.fromkeys((wait for m in range(2) for wait in shape(2).waits(m)), 5)
    variables = Periodic(cp_model.CpModel(), shape(2), 20, most)
    first, again, last = (Operation(*op) for op in ((F, 0, 0), (F, 0, 1), (W, 0, 1)))
    assert list(variables.start[first].proto.domain) == [0, 0]
    assert list(variables.start[again].proto.domain) == [0, 19]  # a period has a first microbatch
    assert list(variables.start[last].proto.domain) == [16, 19 + 16 + 4 * 5]
    assert list(variables.residue[last].proto.domain) == [0, 19]
    assert list(variables.lap[last].proto.domain) == [0, 55 // 20]
    assert {tuple(delay.proto.domain) for delay in variables.delay.values()} == {(0, 5)}


def test_of_two_operations_of_a_device_one_has_the_smaller_residue() -> None:
    variables = Periodic(cp_model.CpModel(), shape(1), 20, most_delays(shape(1), 20, []))
    one, other, elsewhere = (Operation(*op) for op in ((F, 0, 0), (B, 0, 0), (F, 1, 0)))
    assert len(variables.precedes) == 2 * (3 * 2)
    assert variables.precedes[one, other].index == variables.precedes[other, one].negated().index
    assert (one, elsewhere) not in variables.precedes
