"""All that comes before a search keeps within the time limit: no heuristic runs on when its time is up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from helpers.clock import Clock
from helpers.exact_cases import plain_memory, v_instance
from helpers.scripted import Script, scripted

from tightpipe import Instance, Memory, Order, Schedule, solve, validate
from tightpipe.base.errors import NoScheduleError
from tightpipe.heuristics import HEURISTICS, Heuristic
from tightpipe.heuristics import list_schedule as list_module
from tightpipe.heuristics.list_state_kernel import Fusing
from tightpipe.model.metrics import cost
from tightpipe.params import budget as budget_module
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.solve_params import DEFAULTS, params_from_dict
from tightpipe.registry import starts as starts_module
from tightpipe.registry.starts import StartClock, requested_starts, usual_seconds, warm_starts
from tightpipe.solver.engine import portfolio as worker_module
from tightpipe.solver.engine.portfolio import Worker
from tightpipe.solver.engine.run import one_by_one

SMALL = v_instance(4, 8, (8, 14, 8, 2), plain_memory(16))
OPERATIONS = 3 * 8 * 8
NO_TIME_FOR_STARTS = params_from_dict({"starts.least": 0, "starts.short": 0})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    mine = Clock()
    for module in (budget_module, starts_module):
        monkeypatch.setattr(module, "perf_counter", mine)
    return mine


def heuristic(name: str, clock: Clock, seconds: float, begun: list[str], usual: float) -> Heuristic:
    """A heuristic that takes `seconds` of the clock, and usually takes `usual` seconds."""

    def make(instance: Instance) -> Order:
        begun.append(name)
        clock.now += seconds
        return one_by_one(instance)

    return Heuristic(name, make, ("v",), "any", "this test", pace=usual / OPERATIONS)


def starts_with(monkeypatch: pytest.MonkeyPatch, *given: Heuristic) -> None:
    found = {each.name: each for each in given}
    monkeypatch.setattr(starts_module, "_fitting", lambda _: found)


def test_no_heuristic_begins_after_half_of_the_time_limit(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    begun: list[str] = []
    starts_with(monkeypatch, *(heuristic(name, clock, 3.0, begun, 3.0) for name in "abcd"))
    assert len(warm_starts(SMALL, UNLIMITED.within(14.0))) == 2
    assert begun == ["a", "b"]


def test_a_heuristic_that_would_take_too_long_does_not_begin(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    begun: list[str] = []
    slow, quick = heuristic("slow", clock, 60.0, begun, 60.0), heuristic("quick", clock, 1.0, begun, 1.0)
    starts_with(monkeypatch, slow, quick)
    warm_starts(SMALL, UNLIMITED.within(100.0))
    assert begun == ["quick"]


def test_trials_within_a_fixed_amount_of_work_count_once_on_large_instances(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """The heuristic takes 4 s where the instance is large, and 0.1 s per operation where it is small."""
    begun: list[str] = []
    tries = replace(heuristic("tries", clock, 4.0, begun, 0.0), trial_pace=0.1, trials=4.0)
    starts_with(monkeypatch, tries)
    assert tries.seconds(1) == pytest.approx(0.1)
    warm_starts(SMALL, UNLIMITED.within(7.0))
    assert begun == []
    warm_starts(SMALL, UNLIMITED.within(9.0))
    assert begun == ["tries"]


def test_on_a_slow_machine_a_heuristic_counts_with_the_time_that_it_takes_there(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """The first one takes ten times as long as usual, so the second one would take 30 s of the 25 s left."""
    begun: list[str] = []
    starts_with(monkeypatch, heuristic("a", clock, 10.0, begun, 1.0), heuristic("b", clock, 30.0, begun, 3.0))
    warm_starts(SMALL, UNLIMITED.within(70.0))
    assert begun == ["a"]


def test_without_a_deadline_every_heuristic_runs(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    begun: list[str] = []
    starts_with(monkeypatch, *(heuristic(name, clock, 1e6, begun, 1e6) for name in "abc"))
    warm_starts(SMALL)
    warm_starts(SMALL, replace(UNLIMITED, effort=1.0))
    assert begun == [*"abc", *"abc"]


def test_of_equally_cheap_starts_the_first_in_the_list_wins_whatever_ran_first(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    begun: list[str] = []
    starts_with(
        monkeypatch, heuristic("slow", clock, 2.0, begun, 2.0), heuristic("quick", clock, 1.0, begun, 1.0)
    )
    found = warm_starts(SMALL, UNLIMITED.within(100.0))
    assert begun == ["quick", "slow"]
    assert [name for name, _ in found] == ["slow", "quick"]


def _counting(looks: int) -> Callable[[], float]:
    """A clock that stands at 0 for so many looks, and is far ahead afterwards."""
    seen = [0]

    def look() -> float:
        seen[0] += 1
        return 0.0 if seen[0] <= looks else 1e9

    return look


TIMED = [name for name, each in HEURISTICS.items() if each.timed]


def test_the_heuristics_of_many_passes_look_at_the_clock() -> None:
    assert {"greedy-v", "list", "due-date"} <= set(TIMED)


# v-beat has an order at once, and only packs its ends for longer
@pytest.mark.parametrize("name", [name for name in TIMED if name != "v-beat"])
def test_a_heuristic_whose_time_is_up_at_once_has_no_schedule(name: str) -> None:
    with pytest.raises(NoScheduleError):
        HEURISTICS[name].order(SMALL, Budget(deadline=0.0))


@pytest.mark.parametrize(
    ("name", "rules"), [("list", DEFAULTS.list.rules), ("due-date", DEFAULTS.due_date.rules)]
)
def test_a_heuristic_whose_time_is_up_returns_the_best_order_so_far(
    name: str, rules: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    real = list_module.new_state
    monkeypatch.setattr(list_module, "new_state", lambda *args: (runs.append(1), real(*args))[1])
    monkeypatch.setattr(budget_module, "perf_counter", _counting(3))
    order = HEURISTICS[name].order(SMALL, Budget(deadline=1.0))
    assert len(runs) <= 4 < len(rules)
    assert len(order) == OPERATIONS


@pytest.mark.parametrize("name", TIMED)
def test_a_clock_that_does_not_end_a_heuristic_does_not_change_it(name: str) -> None:
    assert HEURISTICS[name].order(SMALL, Budget(deadline=1e12)) == HEURISTICS[name].order(SMALL)


def test_a_run_of_list_scheduling_is_cut_within_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    advanced: list[int] = []
    often = params_from_dict({"list.slice": 10})
    monkeypatch.setattr(budget_module, "perf_counter", _counting(5))
    problem = list_module.list_problem(SMALL)
    ways = [(lambda _, most: advanced.append(most), Fusing(0.0, 0.0))]
    limited = Budget(deadline=1.0, params=often)
    assert list(list_module.runs_of(SMALL, problem, ways, limited)) == []
    assert advanced == [10] * 5


def test_a_named_warm_start_that_needs_too_long_is_left_out() -> None:
    assert list(requested_starts(SMALL, "list", Budget(deadline=0.0, params=NO_TIME_FOR_STARTS))) == []
    assert len(list(requested_starts(SMALL, "list"))) == 1


def test_where_no_heuristic_has_time_the_schedule_runs_one_microbatch_after_another() -> None:
    result = solve(SMALL, "improve", time_limit=0, params=NO_TIME_FOR_STARTS)
    assert result.schedule is not None
    assert validate(SMALL, result.schedule) == []
    assert result.schedule.order == one_by_one(SMALL)


def test_a_step_that_took_longer_than_the_time_left_is_not_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = Clock()
    for module in (budget_module, worker_module):
        monkeypatch.setattr(module, "perf_counter", mine)

    @scripted
    def long_steps(_: Worker) -> Script:
        mine.now += 3.0
        yield 1.0
        mine.now += 3.0
        yield 1.0
        return None

    worker = Worker(UNLIMITED.within(8.0), long_steps)
    worker.step()
    assert not worker.over
    worker.step()
    assert worker.over  # 2 s are left, and a step takes 3 s
    endless = Worker(UNLIMITED, long_steps)
    endless.step()
    assert not endless.over


def test_on_a_large_instance_only_heuristics_begin_that_usually_have_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are 786,432 operations, for which the heuristics together take more than a minute."""
    instance = Instance.uniform(
        devices=128,
        microbatches=1024,
        forward=18522,
        backward=20086,
        weight=9337,
        comm=601,
        memory=Memory(2, -1, -1, 512),
    )
    real, begun = starts_module.schedule_of, list[Heuristic]()

    def schedule_of(about: Instance, heuristic: Heuristic, budget: Budget) -> Schedule:
        begun.append(heuristic)
        return real(about, heuristic, budget)

    monkeypatch.setattr(starts_module, "schedule_of", schedule_of)
    result = solve(instance, "improve", time_limit=1)
    assert result.schedule is not None
    assert cost(result.schedule) == result.cost
    assert result.seconds < 25  # a generous limit for a busy machine
    usual = StartClock(instance, UNLIMITED).usual  # the same on every machine; the others look at the clock
    assert sum(usual(heuristic) for heuristic in begun if not heuristic.timed) <= 1
    assert usual_seconds(instance, None) > 60
