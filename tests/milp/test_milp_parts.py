"""Rows, counts and estimates that the mixed-integer model is built from."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pulp
import pytest
from helpers.cases import uniform
from helpers.constraint_families import horizon_of, open_windows
from helpers.exact_cases import with_busy_links
from helpers.schedules import schedules_of

from tightpipe import InputError
from tightpipe.model.metrics import cost
from tightpipe.params.solve_params import DEFAULTS
from tightpipe.solver.milp.milp_method import megabytes_of, refuse_busy_links, refuse_if_too_large
from tightpipe.solver.milp.model import minimise_cost
from tightpipe.solver.milp.variables import Linear, Starts, Variables, items_of
from tightpipe.solver.queues import queues_of

LINEAR = uniform(2, 2, (3, 4, 2), comm=1, placement="linear")


def test_a_row_keeps_its_constant_on_the_right() -> None:
    problem = pulp.LpProblem("rows", pulp.LpMinimize)
    x, y = (problem.add_variable(name, 0, 10) for name in "xy")
    Linear(5).plus(x, 2).plus(y, -1).at_least(problem, 7)  # 2x - y + 5 >= 7
    (row,) = problem.constraints()
    for x_value, y_value, holds in ((1, 0, True), (2, 2, True), (1, 1, False)):
        x.setInitialValue(x_value)
        y.setInitialValue(y_value)
        assert row.valid() is holds


def test_the_coefficients_of_a_variable_add_up() -> None:
    problem = pulp.LpProblem("rows", pulp.LpMinimize)
    x, y = (problem.add_variable(name, 0, 10) for name in "xy")
    Linear().plus(x, 2).plus(y, -1).add([(x, 3), (y, 1)], -1).at_least(problem, -4)  # -x - 2y >= -4
    (row,) = problem.constraints()
    assert {v.name: c for v, c in row.items()} == {"x": -1, "y": -2}


def test_a_number_makes_no_row() -> None:
    problem = pulp.LpProblem("rows", pulp.LpMinimize)
    Linear(5).at_least(problem, 7)
    assert problem.numConstraints() == 0


@pytest.mark.parametrize("placement", ["linear", "v", "bidirectional"])
def test_counts_before_an_item_are_those_of_the_schedule(placement: str) -> None:
    instance = uniform(2, 2, (3, 4, 2), comm=1, placement=placement)
    queues = queues_of(instance)
    for schedule in schedules_of(instance, 3):
        if cost(schedule) > horizon_of(instance):  # the windows are for cheaper ones
            continue
        problem = pulp.LpProblem("counts", pulp.LpMinimize)
        variables = Variables(problem, queues, open_windows(queues), 0)
        starts = items_of(queues, schedule)
        time = np.array(starts.start)
        since = starts.since(variables.windows.origin(starts.start))
        variables.set_start(since, [0] * len(variables.begin), cost(schedule))
        for x, y in (pair for on in variables.on for pair in permutations(on, 2)):
            for k, i in enumerate(variables.items(x)):
                counted = Linear(10)
                variables.add_count_before(counted, 3, x, k, y)
                value = counted.constant + sum(c * v.varValue for v, c in counted.terms)
                assert value == 10 + 3 * (time[variables.items(y)] < time[i]).sum()


@pytest.mark.parametrize(("objective", "frames"), [("device_span", [0, 1]), ("makespan", [0, 0])])
def test_the_cost_is_as_long_as_every_frame(objective: str, frames: list[int]) -> None:
    instance = uniform(2, 1, (3, 4, 2), comm=1, placement="linear", objective=objective)
    queues = queues_of(instance)
    problem = pulp.LpProblem("frames", pulp.LpMinimize)
    variables = Variables(problem, queues, open_windows(queues), 0)
    minimise_cost(problem, queues, variables)
    assert variables.frame == frames
    # F B W of each device; the spans are 18, 9
    starts = Starts([0, 12, 16, 4, 7, 11], [3, 16, 18, 7, 11, 13], set(), set())
    begin = [0, 4][: len(set(frames))]
    for length, holds in ((18, True), (17, False)):
        variables.set_start(starts, begin, length)
        assert all(row.valid() for row in problem.constraints()) is holds


def test_models_are_refused_from_the_cap_on() -> None:
    most = DEFAULTS.milp.most_megabytes
    largest = next(b for b in range(150_000, 0, -1) if megabytes_of(b, 0) <= most)
    refuse_if_too_large(largest, 0, most)
    with pytest.raises(InputError, match=f"{largest + 1} order binaries"):
        refuse_if_too_large(largest + 1, 0, most)


def test_links_are_refused_where_a_message_may_have_to_wait() -> None:
    shortest = 3
    refuse_busy_links(with_busy_links(LINEAR, shortest))
    with pytest.raises(InputError, match="milp does not model messages that wait for their link") as error:
        refuse_busy_links(with_busy_links(LINEAR, shortest + 1))
    assert (error.value.key, error.value.value) == ("link_occupancy", shortest + 1)
