"""A planner that orders the microbatches of one step after another: times, bounds, numbers, interruption."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from helpers.clock import calls_of, counted_time

from tightpipe import (
    CostLaw,
    InputError,
    Instance,
    Law,
    OpKind,
    Placement,
    Result,
    StepPlanner,
    solve,
    validate,
)
from tightpipe.solver.improve import annealing

LENGTHS = [700, 120, 2300, 90, 450, 1500, 300, 80, 950, 610, 200, 1800]


def law(placement: Placement, limit: int | None = None, **entries: object) -> CostLaw:
    forward = tuple(Law(10, 0.05, 1e-6) for _ in range(placement.stages))
    weight = tuple(Law(8, 0.05) for _ in range(placement.stages))
    held = tuple(Law(0, 1) for _ in range(placement.stages))
    freed = tuple(Law(0, -0.5) for _ in range(placement.stages))
    memory = None if limit is None else (held, freed, freed)
    found = CostLaw(placement, forward, forward, weight, comm=2, memory=memory, limit=limit)
    return replace(found, **entries)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["linear", "v", "bidirectional"])
def test_every_step_gets_a_valid_order_with_a_bound(name: str) -> None:
    planner = StepPlanner(law(Placement(name, 4)))
    for lengths in (LENGTHS, LENGTHS[::-1], [[700, 80], 90, [300], 5000]):
        result = planner.order(lengths, time_limit=0.3)
        assert result.schedule is not None
        assert result.bound is not None
        assert result.cost is not None
        assert validate(result.instance, result.schedule) == []
        assert result.bound <= result.cost
        assert result.instance == planner.law.instance(lengths)


def test_more_time_costs_no_more() -> None:
    """The search starts from the list schedule, which is all that there is time for at 0 seconds."""
    planner = StepPlanner(law(Placement("linear", 4), objective="makespan"))
    with counted_time():
        first, later = (planner.order(LENGTHS, time_limit=limit) for limit in (0, 2))
    assert first.method == "list:short-at-ends"
    assert later.method == "best"
    assert later.cost is not None
    assert first.cost is not None
    assert later.cost <= first.cost


def test_a_planner_of_a_heuristic_answers_with_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = StepPlanner(law(Placement("linear", 4)), method="1f1b:longest-first")
    asked = list[str]()

    def solved(instance: Instance, method: str, **options: Any) -> Result:
        asked.append(method)
        return solve(instance, method, **options)

    monkeypatch.setattr("tightpipe.steps.step_planner.solve", solved)
    result = planner.order(LENGTHS, time_limit=5)
    assert asked == [result.method] == ["1f1b:longest-first"]  # no search follows
    forward = [op for op in result.schedule.order.operations.tolist() if op[:2] == [OpKind.F, 0]]
    assert [LENGTHS[m] for _, _, m in forward] == sorted(LENGTHS, reverse=True)


def test_microbatches_keep_the_numbers_of_the_batch() -> None:
    planner = StepPlanner(law(Placement("linear", 2)), method="list")
    schedule = planner.order(LENGTHS, time_limit=0).schedule
    assert schedule is not None
    for (kind, _, microbatch), start, end in zip(
        schedule.order.operations.tolist(), schedule.start, schedule.end, strict=True
    ):
        if kind == OpKind.F:
            length = LENGTHS[microbatch]
            assert end - start == round(10 + 0.05 * length + 1e-6 * length**2)


def test_sixty_four_microbatches_on_sixteen_devices_take_little_longer_than_their_time() -> None:
    planner = StepPlanner(law(Placement("linear", 16)))
    lengths = [100 + 37 * (k * k % 61) for k in range(64)]
    methods = list[str]()
    calls = calls_of(lambda: methods.append(planner.order(lengths, time_limit=0).method))
    assert methods == ["list:short-at-ends"]
    assert calls < 10**6  # about 0.15 s
    with counted_time(per_look=0.01) as clock:
        begun = clock.now
        assert planner.order(lengths, time_limit=1).method == "best"
    assert clock.now < begun + 2


def test_an_interrupted_step_has_the_best_order_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(*_: object) -> None:
        raise KeyboardInterrupt

    planner = StepPlanner(law(Placement("linear", 4)))
    monkeypatch.setattr(annealing, "anneal", walk)
    result = planner.order(LENGTHS, time_limit=60)
    assert result.reason == "interrupted"
    assert result.bound is not None
    assert result.schedule is not None
    assert validate(result.instance, result.schedule) == []


def test_a_law_may_have_no_times_for_the_shortest_microbatches() -> None:
    falling = (Law(fixed=-50, tokens=1),) * 2
    planner = StepPlanner(law(Placement("linear", 2), forward=falling), method="list")
    assert planner.order([60, 90], time_limit=0).cost is not None
    with pytest.raises(
        InputError, match=r"forward = -10\.0: must be above 0: the law of stage 0 at a microbatch of 40"
    ):
        planner.order([60, 40], time_limit=0)


def test_a_law_may_have_times_for_very_long_microbatches_alone() -> None:
    late = (Law(-25_000, 1),) * 2
    planner = StepPlanner(CostLaw(Placement("linear", 2), late, late, late), method="list")
    found = planner.order([30_000], time_limit=np.float32(0))  # type: ignore[arg-type]
    assert found.cost is not None


def test_what_a_planner_cannot_do_is_one_line() -> None:
    with pytest.raises(InputError, match="method = 'bets'"):
        StepPlanner(law(Placement("linear", 2)), method="bets")
    planner = StepPlanner(law(Placement("linear", 2)), method="list")
    with pytest.raises(InputError, match=r"lengths\[1\] = 0: must be at least 1"):
        planner.order([3, 0])
    with pytest.raises(InputError, match="time_limit = -1: must be a number of seconds"):
        planner.order([3], time_limit=-1)
