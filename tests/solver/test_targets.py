"""Which targets are asked, in what sequence, and what is learned from the answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.cases import serial_order
from helpers.exact_cases import plain_memory, v_instance

from tightpipe import retime, solve
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.result import Proof, ignore
from tightpipe.params.budget import UNLIMITED
from tightpipe.params.solve_params import DEFAULTS
from tightpipe.solver.cpsat import targets
from tightpipe.solver.cpsat.race import Found
from tightpipe.solver.cpsat.targets import Decision
from tightpipe.solver.engine.portfolio import Begin, alone
from tightpipe.solver.engine.run import Incumbent
from tightpipe.solver.outcome import FINISHED, TOO_LARGE, End, Ended

INSTANCE = v_instance(3, 6, (10, 12, 8, 1), plain_memory(12))
SERIAL = retime(INSTANCE, serial_order(INSTANCE))
WINDOWS: Any = SimpleNamespace(name="windows")
Answer = Callable[[int, float], Decision]
ENOUGH = Ended(End.FAILED, "enough")


def member(instance: Instance, incumbent: Incumbent) -> Begin:
    return lambda _: targets.Targets(instance, incumbent, DEFAULTS.targets, 1.0)


def ask(monkeypatch: pytest.MonkeyPatch, answer: Answer, bound: int) -> tuple[list[int], Ended, Incumbent]:
    """Ask targets from a bound, at most 40; return them, the end, and the incumbent."""
    asked: list[int] = []
    incumbent = Incumbent(SERIAL, bound, Proof.FORMULA, time.perf_counter(), ignore)

    def decide(_: Any, target: int, __: Any, effort: float, *___: Any) -> Decision:
        asked.append(target)
        return answer(target, effort) if len(asked) < 40 else Decision(None, ended=ENOUGH)

    monkeypatch.setattr(targets, "decide", decide)
    ended = alone(UNLIMITED, incumbent, member(INSTANCE, incumbent))
    return asked, ended, incumbent


def test_the_first_target_is_near_the_cost_of_the_incumbent(monkeypatch: pytest.MonkeyPatch) -> None:
    bound, high = 200, cost(SERIAL)
    asked, _, __ = ask(monkeypatch, lambda *_: Decision(None, windows=WINDOWS), bound)
    assert high - asked[0] <= 0.11 * (high - bound)
    assert asked[1] == bound + (asked[0] - 1 - bound) // 2


def test_refuted_targets_raise_the_bound_until_it_meets_the_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ended, incumbent = ask(monkeypatch, lambda *_: Decision(False, proof=Proof.CP_SAT), 200)
    assert ended == FINISHED
    assert asked == sorted(asked)
    assert asked[-1] == cost(SERIAL) - 1
    assert (incumbent.closed, incumbent.proof) == (True, Proof.CP_SAT)
    assert len(asked) < 8


def test_a_schedule_above_the_target_leaves_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    target = cost(SERIAL) - 1
    monkeypatch.setattr(targets, "search", lambda *_, **__: Found(SERIAL, None, True))
    found = targets.decide(INSTANCE, target, UNLIMITED)
    assert (found.possible, found.schedule) == (None, SERIAL)
    assert found.windows is not None
    asked, *_ = ask(monkeypatch, lambda *_: replace(found, ended=FINISHED), 200)
    assert len(set(asked)) > 3


def test_answers_close_the_gap_from_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    best = solve(INSTANCE, "cpsat", time_limit=60, workers=1)
    assert best.status == "optimal"

    def answer(target: int, _: float) -> Decision:
        refuted = Decision(False, proof=Proof.CP_SAT)
        return refuted if target < best.cost else Decision(True, best.schedule)

    _, __, incumbent = ask(monkeypatch, answer, 200)
    assert incumbent.closed
    assert incumbent.schedule is best.schedule


def test_open_targets_are_asked_again_with_more_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    bound, efforts = 200, list[float]()

    def answer(_: int, effort: float) -> Decision:
        efforts.append(effort)
        return Decision(None, windows=WINDOWS)

    asked, _, __ = ask(monkeypatch, answer, bound)
    assert efforts == sorted(efforts)
    assert set(efforts[:12]) >= {1.0, 2.0, 4.0}
    again = efforts.index(2.0)
    assert asked[again] == asked[0]
    assert asked[again - 1] - bound >= (cost(SERIAL) - bound) // 16


def test_a_target_whose_model_is_too_large_makes_room_for_a_lower_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    least = 350
    assert 200 < least < cost(SERIAL)

    def answer(target: int, _: float) -> Decision:
        if target > least:
            return Decision(None, ended=TOO_LARGE, windows=WINDOWS)
        return Decision(False, proof=Proof.CP_SAT)

    asked, ended, incumbent = ask(monkeypatch, answer, 200)
    assert ended == TOO_LARGE
    assert incumbent.bound - 1 == max(target for target in asked if target <= least)
    assert asked[0] > least


def test_an_answer_that_came_too_late_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another member has found a schedule within the target meanwhile: the next target lies below that."""
    best = solve(INSTANCE, "cpsat", time_limit=60, workers=1)
    incumbent = Incumbent(SERIAL, best.cost - 20, Proof.FORMULA, time.perf_counter(), ignore)
    asked: list[int] = []

    def decide(*args: Any) -> Decision:
        target, moot = args[1], args[-1]
        asked.append(target)
        assert not moot()
        incumbent.offer(best.schedule)
        assert moot() == (best.cost <= target)
        return Decision(None, windows=WINDOWS) if len(asked) < 3 else Decision(None, ended=ENOUGH)

    monkeypatch.setattr(targets, "decide", decide)
    assert alone(UNLIMITED, incumbent, member(INSTANCE, incumbent)) == ENOUGH
    assert asked[0] > best.cost > asked[1] >= best.cost - 4
