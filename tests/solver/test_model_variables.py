"""The expressions that the families of the CP-SAT models speak of."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from cases import uniform
from families import horizon_of, open_windows
from ortools.sat.python import cp_model
from schedules import schedules_of

from tightpipe import Instance, Operation
from tightpipe.core.metrics import cost
from tightpipe.core.operation import OpKind
from tightpipe.solver.cpsat.lattice.variables import Variables as Lattice
from tightpipe.solver.cpsat.plain.variables import Variables as Plain
from tightpipe.solver.cpsat.plain.variables import receiver
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
        origin = variables.windows.origin(start)
        variables.add_hint(model, [time - origin for time in start])
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
