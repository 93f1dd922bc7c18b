"""One budget per solve: made when all is loaded, the same or narrower for everything below."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.exact_cases import plain_memory, v_instance
from helpers.scripted import Script, scripted

from tightpipe import solve
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost, largest_work
from tightpipe.model.result import Bound, Progress, Proof, Result, Status, ignore
from tightpipe.params import budget as budget_module
from tightpipe.params.budget import UNLIMITED, Allowance, Budget
from tightpipe.registry import methods as methods_module
from tightpipe.registry.solve import bounds_within
from tightpipe.registry.starts import warm_starts
from tightpipe.solver import best
from tightpipe.solver.engine.portfolio import Begin, Worker
from tightpipe.solver.outcome import FINISHED, Ended

EASY = v_instance(2, 3, (10, 12, 8, 1), plain_memory(8))
HARD = v_instance(4, 8, (8, 14, 8, 2), plain_memory(16))


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Budget]:
    """The budgets that have been begun, in sequence."""
    budgets: list[Budget] = []
    begin = Allowance.begin

    def remembered(allowance: Allowance) -> Budget:
        budgets.append(begin(allowance))
        return budgets[-1]

    monkeypatch.setattr(Allowance, "begin", remembered)
    return budgets


def _seen(monkeypatch: pytest.MonkeyPatch, module: str, name: str, place: int) -> list[Budget]:
    """Let a function go on as it is, and keep the budgets that it is called with."""
    seen: list[Budget] = []
    real: Callable[..., Any] = getattr(sys.modules[module], name)

    def watched(*arguments: Any, **named: Any) -> Any:
        seen.append(arguments[place])
        return real(*arguments, **named)

    monkeypatch.setattr(sys.modules[module], name, watched)
    return seen


@pytest.mark.parametrize(
    ("method", "module", "name", "place"),
    [
        ("cpsat", "cpsat.cpsat_method", "shaved_windows", 2),
        ("cpsat", "cpsat.cpsat_method", "search", 1),
        ("milp", "milp.milp_method", "shaved_windows", 2),
        ("milp", "milp.milp_method", "run_highs", 1),
        ("best", "bounds.destructive", "windows_of", 2),
    ],
)
def test_what_works_below_has_no_more_than_the_solve(
    monkeypatch: pytest.MonkeyPatch, begun: list[Budget], method: str, module: str, name: str, place: int
) -> None:
    solve(EASY, method, time_limit=0)  # loaded
    begun.clear()
    seen = _seen(monkeypatch, f"tightpipe.solver.{module}", name, place)
    solve(EASY, method, time_limit=20, workers=2, seed=3, max_memory=1000, warm_start=None)
    (whole,) = begun
    assert seen
    for budget in seen:
        assert budget.deadline <= whole.deadline
        assert (budget.threads, budget.max_memory) == (2, 1000)


def test_the_time_begins_when_all_is_compiled(monkeypatch: pytest.MonkeyPatch, begun: list[Budget]) -> None:
    now = [1000.0]
    monkeypatch.setattr(budget_module, "perf_counter", lambda: now[0])

    def compile_for_long(_: object) -> None:
        now[0] += 500

    monkeypatch.setattr(sys.modules["tightpipe.registry.solve"], "ensure_compiled", compile_for_long)
    solve(EASY, "list", time_limit=20)
    assert [budget.deadline for budget in begun] == [1520.0]


def test_the_time_stands_still_while_the_loops_of_a_search_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, deadlines = [1000.0], []
    monkeypatch.setattr(budget_module, "perf_counter", lambda: now[0])
    monkeypatch.setattr(methods_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def compile_for_long(_: object) -> None:
        now[0] += 500

    def search(instance: Instance, budget: Budget, _: object, progress: Progress) -> Result:
        deadlines.append(budget.deadline)
        now[0] += 7
        return Result(instance, "improve", Status.UNKNOWN, None, None, 0.0)

    monkeypatch.setattr(methods_module, "are_compiled", lambda _: False)
    monkeypatch.setattr(methods_module, "ensure_compiled", compile_for_long)
    result = methods_module._run_solver("improve", search, HARD, UNLIMITED.within(20), None, ignore)
    assert (deadlines, result.seconds) == ([1520.0], 7.0)


def test_searches_for_bounds_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now, deadlines = [1000.0], []
    monkeypatch.setattr(budget_module, "perf_counter", lambda: now[0])

    def search(_: Instance, __: int, budget: Budget, lower: int, ___: Progress) -> Bound:
        deadlines.append(budget.deadline)
        now[0] += budget.left
        return Bound(lower, "none", "", 0.0, Proof.SHAVING)

    searches = [best.Asked(search, share) for share in (0.2, 0.5, 1.0)]
    monkeypatch.setattr(best, "bound_searches", lambda _: searches)
    bounds_within(HARD, Allowance(100, workers=1))
    assert deadlines == [1020.0, 1060.0, 1100.0]


def test_the_members_of_best_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first improvement ends early, and both members may go on until the deadline of the whole."""
    deadlines = []

    def first(budget: Budget, *_: Any) -> Ended:
        deadlines.append(budget.deadline)
        return FINISHED

    def member(*_: Any) -> Begin:
        @scripted
        def start(worker: Worker) -> Script:
            deadlines.append(worker.budget.deadline)
            yield 0.0
            return None

        return start

    monkeypatch.setattr(best, "alone", first)
    for name in ("searches", "proofs"):
        monkeypatch.setattr(best, name, member)
    known = warm_starts(HARD)[-1][1]
    begun = perf_counter()
    budget = UNLIMITED.within(1000)
    best.solve_best(HARD, budget, known)
    assert begun < deadlines[0] < begun + 110  # a tenth of what is left once bounds by formula are known
    assert deadlines[1] == deadlines[2] == budget.deadline


@pytest.mark.parametrize("method", ["cpsat", "improve"])
def test_the_largest_seed_is_one_for_every_thread(method: str) -> None:
    result = solve(EASY, method, time_limit=60, workers=2, seed=2**31 - 1)
    assert not result.reason
    assert result.schedule is not None
    assert cost(result.schedule) >= largest_work(EASY)


@pytest.mark.parametrize("method", ["cpsat", "milp", "improve", "block", "best"])
def test_progress_is_told_beside_the_budget(method: str) -> None:
    told: list[Any] = []
    result = solve(HARD, method, time_limit=0, progress=told.append)
    assert tuple(told) == result.log
    assert len(told) == 1
