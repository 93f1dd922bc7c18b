"""The lattice model knows every rule: it takes optimal schedules, and has no solution that is cheaper."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.cases import cases_of_every_rule, uniform
from helpers.independent_model import optimal_schedule
from ortools.sat.python import cp_model

from tightpipe import Instance, Memory, Placement, Schedule, Status, solve
from tightpipe.model.costs import Costs, Step
from tightpipe.model.metrics import cost
from tightpipe.params.budget import UNLIMITED
from tightpipe.solver.cpsat.lattice import LatticeModel
from tightpipe.solver.cpsat.plain import PlainModel
from tightpipe.solver.cpsat.race import SearchModel, search
from tightpipe.solver.engine.run import in_queue_order
from tightpipe.solver.queues import Rule, queues_of, rules_of
from tightpipe.solver.windows import shaved_windows, windows_of

CASES = cases_of_every_rule(range(500, 540))


def test_the_cases_are_of_every_rule() -> None:
    # the lattice refuses copies, and tests/model/test_empty.py asks it about empty stages
    for rule in set(Rule) - {Rule.OFFLOAD, Rule.EMPTY}:
        assert sum(rule in rules_of(case) for case in CASES) >= 5, rule


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_an_optimal_schedule_is_a_solution_and_none_is_cheaper(number: int) -> None:
    instance = CASES[number]
    best = in_queue_order(optimal_schedule(instance))
    queues, least = queues_of(instance), cost(best)
    narrow = shaved_windows(queues, least, UNLIMITED.within(20))
    assert narrow.feasible
    model = LatticeModel(queues, narrow, 0)
    assert is_solution(model, best)
    assert len(model.model.proto.solution_hint.vars) == len(model.model.proto.variables)
    wide = LatticeModel(queues, windows_of(queues, least + 2 + least // 30), 0)
    found = search(wide, UNLIMITED.within(30), lambda *_: None)
    assert not found.ended.early
    assert found.exhausted
    assert found.schedule is not None
    assert cost(found.schedule) == found.bound == least


def is_solution(model: LatticeModel | PlainModel, schedule: Schedule) -> bool:
    """Whether the values that the model hints for a schedule obey all constraints."""
    model.add_hint(schedule, cost(schedule))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.fix_variables_to_their_hinted_value = True
    return solver.solve(model.model) == cp_model.OPTIMAL


@pytest.mark.parametrize("lattice", [True, False])
def test_a_device_may_start_long_after_a_frozen_stage_has_ended(lattice: bool) -> None:
    """Each device has a span of its own, and nothing comes back to the one with the frozen stage."""
    far = [[0, 900, 900], [900, 0, 1], [900, 1, 0]]
    costs = Costs((1, 8, 8), (0, 14, 14), (0, 8, 8), far)
    instance = Instance(Placement("linear", 3), 3, costs)
    best = in_queue_order(optimal_schedule(instance))
    queues = queues_of(instance)
    model: SearchModel = PlainModel(instance, cost(best), 0, fifo=True)
    if lattice:
        model = LatticeModel(queues, windows_of(queues, cost(best)), 0)
    found = search(model, UNLIMITED.within(30), lambda *_: None)
    assert found.exhausted
    assert found.schedule is not None
    assert cost(found.schedule) == cost(best)


def test_a_step_that_gets_ready_late_is_hinted_at_its_own_times() -> None:
    instance = uniform(2, 2, (3, 4, 2), comm=1, objective="step")
    instance = replace(instance, step=Step(5, 3, 2))
    best = in_queue_order(optimal_schedule(instance))
    assert is_solution(PlainModel(instance, cost(best), 0, fifo=True), best)


def test_memory_that_a_frozen_stage_holds_while_it_runs_counts() -> None:
    """The frozen stage 0 and the stage 2 share a device, which holds two activations of stage 2 at most."""
    times = {"forward": 9, "backward": [0, 0, 12, 12], "weight": [0, 0, 4, 4]}
    memory = Memory(2, [0, 0, -1, -1], [0, 0, -1, -1], (4, 6))
    instance = Instance.uniform(
        devices=2, microbatches=6, placement="loop", comm=1, memory=memory, objective="step", **times
    )
    windows = shaved_windows(queues_of(instance), 214, UNLIMITED.within(20))
    found = search(LatticeModel(queues_of(instance), windows, 0), UNLIMITED.within(30), lambda *_: None)
    assert found.exhausted
    assert found.schedule is None
    result = solve(instance, "cpsat", time_limit=30, workers=1)
    assert (result.status, result.cost) == (Status.OPTIMAL, 215)
