"""The objective `step`: stages get ready, are reduced one by one, and optimizers end the step."""

from __future__ import annotations

from itertools import permutations

from helpers.cases import random_order, uniform, wide_instances
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Order, Schedule, retime, solve, validate
from tightpipe.model.costs import Step
from tightpipe.model.metrics import charged_windows, cost, finished
from tightpipe.solver.bounds.formulas import best_bound

TIMES = (3, 4, 2)


def with_step(step: Step | None, **entries: object) -> Instance:
    return uniform(2, 1, TIMES, placement="linear", objective="step", step=step, **entries)


ORDER = Order.parse("F0.0 B0.0 W0.0\nF1.0 B1.0 W1.0")


def test_a_step_of_operations_alone_is_the_makespan() -> None:
    assert cost(retime(with_step(None), ORDER)) == 3 + 3 + 4 + 4 + 2
    assert with_step(Step(0, 0, 0)).barrier is None


def test_reductions_and_optimizer_follow_the_last_operations() -> None:
    instance = with_step(Step(ready=0, reduce=[5, 20], optimizer=[1, 2]))
    schedule = retime(instance, ORDER)
    assert finished(schedule).tolist() == [16 + 5 + 1, 12 + 20 + 2]
    assert cost(schedule) == 34
    assert [window.tolist() for window in charged_windows(schedule)] == [[0, 0], [34, 34]]


def test_no_forward_starts_before_its_stage_is_ready() -> None:
    instance = with_step(Step(ready=[0, 7]))
    schedule = retime(instance, ORDER)
    assert schedule.start.tolist() == [0, 14, 18, 7, 10, 14]
    assert validate(instance, schedule) == []
    early = Schedule(instance, ORDER, schedule.start - [0, 1, 1, 1, 1, 1], schedule.end - [0, 1, 1, 1, 1, 1])
    assert [str(fault) for fault in validate(instance, early)] == [
        "ready: F1.0 starts at 6, before its stage is ready at 7"
    ]


def test_a_step_changes_nothing_for_another_objective() -> None:
    instance = uniform(2, 1, TIMES, placement="linear", objective="makespan", step=Step(9, 9, 9))
    assert instance.barrier is None
    assert cost(retime(instance, ORDER)) == 16


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5))
def test_no_sequence_of_reductions_ends_earlier_than_that_of_the_stages_ends(
    stages: list[tuple[int, int]],
) -> None:
    def ended(sequence: list[tuple[int, int]]) -> int:
        at = 0
        for end, ticks in sequence:
            at = max(at, end) + ticks
        return at

    assert ended(sorted(stages)) == min(map(ended, map(list, permutations(stages))))


@settings(max_examples=60, deadline=None)
@given(wide_instances(), st.integers(0, 99))
def test_the_cost_counts_every_reduction_and_optimizer(instance: Instance, seed: int) -> None:
    """By hand, stage by stage, without the sorted loop."""
    schedule = retime(instance, random_order(instance, seed))
    if instance.objective != "step" or instance.step is None:
        return
    found = []
    for device in range(instance.devices):
        rows = schedule.order.rows(device)
        stage, end = schedule.order.operations[rows, 1], schedule.end[rows]
        ends = {s: int(end[stage == s].max()) for s in stage.tolist()}
        sums = [
            e + sum(instance.step.reduce[s] for s, other in ends.items() if other >= e) for e in ends.values()
        ]
        found.append(max(*ends.values(), *sums) + instance.step.optimizer[device])
    assert cost(schedule) == max(found)
    assert best_bound(instance).value <= cost(schedule)


def test_best_lets_a_stage_with_a_long_reduction_end_first() -> None:
    entries = {"placement": "v", "comm": 1, "objective": "step"}
    plain = uniform(2, 4, (10, 12, 8), **entries)
    late = uniform(2, 4, (10, 12, 8), **entries, step=Step(reduce=[0, 0, 0, 60], optimizer=5))
    before = solve(plain, "best", effort=5, workers=1).schedule
    result = solve(late, "best", effort=5, workers=1)
    assert before is not None
    assert result.cost is not None
    assert result.bound is not None
    assert result.bound <= result.cost <= cost(retime(late, before.order))
    assert result.bound > best_bound(plain).value


def test_a_plain_step_is_solved_by_every_solver() -> None:
    for method in ("cpsat", "milp", "improve", "best"):
        assert solve(with_step(None), method, time_limit=60, workers=1).cost == 16
