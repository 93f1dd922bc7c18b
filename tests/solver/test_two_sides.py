"""Search and proof share the threads and the incumbent: who works when, and what ends both."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from cases import serial_order
from exact_cases import plain_memory, v_instance

from tightpipe import retime, solve
from tightpipe.core.budget import UNLIMITED, Budget
from tightpipe.core.metrics import cost
from tightpipe.core.progress import ignore
from tightpipe.core.result import Proof
from tightpipe.solver.incumbent import Incumbent
from tightpipe.solver.two_sides import Side, SideBySide, Turns, alone

INSTANCE = v_instance(2, 4, (10, 12, 8, 1), plain_memory(8))
SERIAL = retime(INSTANCE, serial_order(INSTANCE))


def from_serial() -> Incumbent:
    return Incumbent(SERIAL, INSTANCE.work(0), Proof.FORMULA, time.perf_counter(), ignore)


def idle(log: list[str], name: str, turns: int, seconds: float = 1.0) -> Callable[[Side], Turns]:
    """A side that moves nothing, and notes each turn."""

    def start(_: Side) -> Turns:
        for _turn in range(turns):
            log.append(name)
            yield seconds
        return ""

    return start


def until_halted(side: Side) -> Turns:
    while side.budget.left > 0:
        time.sleep(0.001)
    yield 0.0
    return ""


def test_one_thread_works_for_both_sides_in_turn() -> None:
    log: list[str] = []
    assert SideBySide(UNLIMITED, from_serial(), idle(log, "s", 8), idle(log, "p", 4)).run() == ""
    assert log.count("s") == 8
    assert log.count("p") == 4
    assert "".join(log[:8]) in ("pspspsps", "spspspsp", "psspspsp", "pspsspsp")


def test_effort_is_counted_for_both_sides_together() -> None:
    log: list[str] = []
    budget = Budget(effort=5.5)
    assert SideBySide(budget, from_serial(), idle(log, "s", 99), idle(log, "p", 99)).run() == ""
    assert len(log) == 6
    log.clear()
    alone(budget, from_serial(), idle(log, "s", 99, seconds=2.0))
    assert log == ["s"] * 3


def noted_at_the_end(log: list[str], name: str) -> Callable[[Side], Turns]:
    """A side that never ends by itself, and notes when and in which thread it is ended."""

    def start(side: Side) -> Turns:
        try:
            while True:
                if side.budget.threads == 1:
                    time.sleep(0.001)
                yield 1.0
        finally:
            log.append(f"{name} in {threading.current_thread().name}")

    return start


@pytest.mark.parametrize("threads", [1, 2])
def test_turns_end_with_the_solve_and_are_not_left_to_the_garbage_collector(threads: int) -> None:
    """What waits for threads must not run where the collector happens to run, e.g. while a thread starts."""
    main, log = threading.current_thread().name, list[str]()
    gc.disable()
    try:
        alone(Budget(effort=3.0, threads=threads), from_serial(), noted_at_the_end(log, "alone"))
        assert log == [f"alone in {main}"]
        sides = noted_at_the_end(log, "s"), noted_at_the_end(log, "p")
        SideBySide(UNLIMITED.within(0.1).on(threads), from_serial(), *sides).run()
        assert log[1:] == [f"s in {main}", f"p in {main}"]
    finally:
        gc.enable()


def test_an_interrupt_ends_the_turns_too() -> None:
    log: list[str] = []

    def interrupted(_: Side) -> Turns:
        yield 1.0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SideBySide(UNLIMITED, from_serial(), interrupted, noted_at_the_end(log, "p")).run()
    assert len(log) == 1


def test_a_side_knows_what_effort_is_left_to_it() -> None:
    found = []

    def start(side: Side) -> Turns:
        while True:
            found.append((side.left, side.rest))
            yield 4.0

    alone(Budget(effort=10.0, threads=2), from_serial(), start)
    assert found == [(5.0, 5.0), (1.0, 1.0)]  # 8 of 10 seconds are used by the two threads of the first turn


def test_turns_of_one_thread_never_overlap() -> None:
    working = threading.Lock()

    def start(_: Side) -> Turns:
        for _turn in range(20):
            assert working.acquire(blocking=False)
            time.sleep(0.001)
            working.release()
            yield 0.001
        return ""

    assert SideBySide(UNLIMITED.within(60), from_serial(), start, start).run() == ""


def test_long_turns_of_one_side_are_made_good() -> None:
    log: list[str] = []
    SideBySide(UNLIMITED, from_serial(), idle(log, "s", 100, 0.1), idle(log, "p", 3, 2.0)).run()
    first, second, _ = (place for place, name in enumerate(log) if name == "p")
    assert 15 <= second - first <= 25


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_are_never_used_twice(threads: int) -> None:
    used: dict[str, int] = {"search": 0, "proof": 0}
    most = []

    def start(name: str, side: Side) -> Turns:
        for _ in range(30):
            used[name] = side.threads
            most.append(sum(used.values()))
            time.sleep(0.001)
            used[name] = 0
            yield 0.001
        return ""

    budget = Budget(threads=threads).within(60)
    assert SideBySide(budget, from_serial(), partial(start, "search"), partial(start, "proof")).run() == ""
    assert max(most) == threads


def test_what_moves_the_bound_gets_more_threads() -> None:
    incumbent, seen = from_serial(), []

    def proof(side: Side) -> Turns:
        for _ in range(10):
            incumbent.prove(incumbent.bound + (cost(SERIAL) - incumbent.bound) // 4, Proof.SHAVING)
            seen.append(side.threads)
            yield 1.0
        return ""

    SideBySide(Budget(threads=8), incumbent, idle([], "s", 10**4), proof).run()
    assert seen[0] == 4
    assert max(seen) == 7


def test_the_search_keeps_half_of_one_thread_and_plans_with_a_steady_share() -> None:
    incumbent = from_serial()
    log: list[str] = []
    shares = []

    def search(side: Side) -> Turns:
        for _ in range(200):
            log.append("s")
            shares.append(round(side.share, 9))
            yield 1.0
        return ""

    def proof(side: Side) -> Turns:
        for _ in range(200):
            incumbent.prove(incumbent.bound + (cost(SERIAL) - incumbent.bound) // 10, Proof.SHAVING)
            log.append("p")
            yield 1.0
        return ""

    SideBySide(Budget(effort=100), incumbent, search, proof, hope=0.2).run()
    first = log[:20]
    assert first.count("p") == first.count("s")  # the proofs move the bound, and get all that they may get
    assert set(shares) == {0.8}


def test_one_thread_of_two_always_searches() -> None:
    incumbent = from_serial()
    threads: list[int] = []

    def search(side: Side) -> Turns:
        while len(threads) < 10:
            time.sleep(0.001)
            yield 1.0
        return ""

    def proof(side: Side) -> Turns:
        for _ in range(10):
            incumbent.prove(incumbent.bound + (cost(SERIAL) - incumbent.bound) // 4, Proof.SHAVING)
            threads.append(side.threads)
            yield 1.0
        return ""

    SideBySide(Budget(threads=2), incumbent, search, proof).run()
    assert set(threads) == {1}


@pytest.mark.parametrize(("hope", "turns"), [(0.5, 100), (0.25, 50), (0.05, 30)])
def test_where_nothing_moves_proofs_take_turns_as_they_are_hoped_to_pay(hope: float, turns: int) -> None:
    log: list[str] = []
    both = idle(log, "s", 1000), idle(log, "p", 1000)
    SideBySide(Budget(effort=200), from_serial(), *both, hope).run()
    assert abs(log.count("p") - turns) <= 2
    assert len(log) == 200


@pytest.mark.parametrize(("hope", "share"), [(0.5, 1.0), (0.25, 0.5), (0.05, 0.3)])
def test_a_thread_of_two_plans_its_proofs_for_as_long_as_they_are_hoped_to_pay(
    hope: float, share: float
) -> None:
    shares = []

    def proof(side: Side) -> Turns:
        for _ in range(4):
            shares.append(round(side.share, 9))
            yield 1.0
        return ""

    SideBySide(Budget(threads=2), from_serial(), idle([], "s", 10**3), proof, hope).run()
    assert set(shares) == {share}


def test_a_side_that_has_ended_leaves_all_threads_to_the_other() -> None:
    seen: list[tuple[int, float]] = []

    def search(side: Side) -> Turns:
        for _ in range(5):
            time.sleep(0.01)
            seen.append((side.threads, side.share))
            yield 1.0
        return ""

    SideBySide(Budget(threads=4), from_serial(), search, idle([], "p", 0)).run()
    assert seen[-1] == (4, 1.0)


def test_a_schedule_that_meets_the_bound_ends_a_proof_that_runs() -> None:
    best = solve(INSTANCE, "cpsat", time_limit=60, workers=1)
    incumbent = Incumbent(SERIAL, best.cost, Proof.CP_SAT, time.perf_counter(), ignore)

    def search(_: Side) -> Turns:
        yield 0.01
        incumbent.offer(best.schedule)
        yield 0.01
        return ""

    assert SideBySide(Budget(threads=2).within(600), incumbent, search, until_halted).run() == ""
    assert incumbent.closed


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_both_sides(threads: int) -> None:
    def search(_: Side) -> Turns:
        yield 0.01
        raise KeyboardInterrupt

    proof = until_halted if threads > 1 else idle([], "p", 1000, 0.01)
    sides = SideBySide(Budget(threads=threads).within(600), from_serial(), search, proof)
    with pytest.raises(KeyboardInterrupt):
        sides.run()
    assert sides.budget.left == 0


def test_a_side_whose_program_fails_ends_alone() -> None:
    log: list[str] = []

    def proof(_: Side) -> Turns:
        yield 0.01
        raise MemoryError

    reason = SideBySide(Budget(threads=2), from_serial(), idle(log, "s", 50), proof).run()
    assert reason == "CP-SAT failed: MemoryError"
    assert len(log) == 50


def test_another_error_of_the_proof_is_not_swallowed() -> None:
    def proof(_: Side) -> Turns:
        yield 0.01
        raise AssertionError("wrong")

    with pytest.raises(AssertionError, match="wrong"):
        SideBySide(Budget(threads=2), from_serial(), idle([], "s", 10**6), proof).run()


def test_the_deadline_ends_both_sides() -> None:
    begun = time.perf_counter()
    SideBySide(Budget(threads=2).within(0.2), from_serial(), until_halted, until_halted).run()
    assert time.perf_counter() - begun >= 0.2


def test_a_side_alone_ends_when_the_gap_is_closed() -> None:
    log: list[str] = []
    incumbent = Incumbent(SERIAL, cost(SERIAL), Proof.FORMULA, time.perf_counter(), ignore)
    assert alone(UNLIMITED, incumbent, idle(log, "s", 5)) == ""
    assert log == []


def test_a_signal_while_the_thread_starts_ends_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool does not know of a thread that runs already when a signal cuts `Thread.start` short."""
    start, cut = threading.Thread.start, []

    def cut_short(thread: threading.Thread) -> None:
        start(thread)
        if not cut:
            cut.append(thread)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", cut_short)
    with pytest.raises(KeyboardInterrupt):
        SideBySide(Budget(threads=2), from_serial(), until_halted, until_halted).run()
    assert cut
