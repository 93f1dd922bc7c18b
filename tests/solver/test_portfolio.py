"""Search and proof share the threads and the incumbent: who works when, and what ends both."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Sequence
from functools import partial

import pytest
from helpers.cases import serial_order
from helpers.exact_cases import plain_memory, v_instance
from helpers.scripted import Script, scripted

from tightpipe import Schedule, retime, solve
from tightpipe.model.metrics import cost
from tightpipe.model.result import Proof, ignore
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.solver.engine.portfolio import Begin, Portfolio, Worker, alone, in_sequence, in_turn
from tightpipe.solver.engine.run import Incumbent
from tightpipe.solver.outcome import FINISHED, End, Ended, Idle, Outcome, Worked

INSTANCE = v_instance(2, 4, (10, 12, 8, 1), plain_memory(8))
SERIAL = retime(INSTANCE, serial_order(INSTANCE))


def from_serial() -> Incumbent:
    return Incumbent(SERIAL, INSTANCE.work(0), Proof.FORMULA, time.perf_counter(), ignore)


def idle(log: list[str], name: str, steps: int, seconds: float = 1.0) -> Begin:
    """A member that moves nothing, and notes each turn."""

    @scripted
    def start(_: Worker) -> Script:
        for _turn in range(steps):
            log.append(name)
            yield seconds
        return None

    return start


def until_there_are(count: int, found: Sequence[object]) -> Begin:
    """A member that moves nothing until the other one has found so many things."""

    @scripted
    def start(_: Worker) -> Script:
        while len(found) < count:
            time.sleep(0.001)
            yield 1.0
        return None

    return start


@scripted
def until_halted(worker: Worker) -> Script:
    while worker.budget.left > 0:
        time.sleep(0.001)
    yield 0.0
    return None


def test_one_thread_works_for_both_members_in_turn() -> None:
    log: list[str] = []
    assert Portfolio(UNLIMITED, from_serial(), idle(log, "s", 8), idle(log, "p", 4)).run() == FINISHED
    assert log.count("s") == 8
    assert log.count("p") == 4
    assert "".join(log[:8]) in ("pspspsps", "spspspsp", "psspspsp", "pspsspsp")


def test_effort_is_counted_for_both_members_together() -> None:
    log: list[str] = []
    budget = Budget(effort=5.5)
    assert Portfolio(budget, from_serial(), idle(log, "s", 99), idle(log, "p", 99)).run() == FINISHED
    assert len(log) == 6
    log.clear()
    alone(budget, from_serial(), idle(log, "s", 99, seconds=2.0))
    assert log == ["s"] * 3


def with_threads(names: set[str]) -> Begin:
    """A member that never ends by itself, works in threads of its worker, and notes them."""

    @scripted
    def start(worker: Worker) -> Script:
        while True:
            worker.on_each(lambda _: names.add(threading.current_thread().name), range(4))
            yield 1.0

    return start


def are_over(names: set[str]) -> bool:
    return bool(names) and not names & {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_end_with_the_solve_and_are_not_left_to_the_garbage_collector(threads: int) -> None:
    """To wait for threads must not happen where the collector happens to run, e.g. while a thread starts."""
    first, search, proof = set[str](), set[str](), set[str]()
    gc.disable()
    try:
        alone(Budget(effort=3.0, threads=threads), from_serial(), with_threads(first))
        budget = Budget(effort=30.0, threads=threads)
        Portfolio(budget, from_serial(), with_threads(search), with_threads(proof)).run()
        assert are_over(first)
        assert are_over(search)
        assert are_over(proof)
    finally:
        gc.enable()


def test_an_interrupt_ends_the_threads_too() -> None:
    names = set[str]()

    @scripted
    def interrupted(_: Worker) -> Script:
        yield 1.0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Portfolio(UNLIMITED, from_serial(), interrupted, with_threads(names)).run()
    assert are_over(names)


def test_a_member_knows_what_effort_is_left_to_it() -> None:
    found = []

    @scripted
    def start(worker: Worker) -> Script:
        while True:
            found.append((worker.expected, worker.left))
            yield 4.0

    alone(Budget(effort=10.0, threads=2), from_serial(), start)
    assert found == [(5.0, 5.0), (1.0, 1.0)]  # 8 of 10 seconds are used by the two threads of the first turn


def test_steps_of_one_thread_never_overlap() -> None:
    working = threading.Lock()

    @scripted
    def start(_: Worker) -> Script:
        for _turn in range(20):
            assert working.acquire(blocking=False)
            time.sleep(0.001)
            working.release()
            yield 0.001
        return None

    assert Portfolio(UNLIMITED.within(60), from_serial(), start, start).run() == FINISHED


def test_long_steps_of_one_member_are_made_good() -> None:
    log: list[str] = []
    Portfolio(UNLIMITED, from_serial(), idle(log, "s", 100, 0.1), idle(log, "p", 3, 2.0)).run()
    first, second, _ = (place for place, name in enumerate(log) if name == "p")
    assert 15 <= second - first <= 25


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_are_never_used_twice(threads: int) -> None:
    used: dict[str, int] = {"search": 0, "proof": 0}
    most = []

    def start(name: str, worker: Worker) -> Script:
        for _ in range(30):
            used[name] = worker.threads
            most.append(sum(used.values()))
            time.sleep(0.001)
            used[name] = 0
            yield 0.001
        return None

    budget = Budget(threads=threads).within(60)
    members = (scripted(partial(start, name)) for name in used)
    assert Portfolio(budget, from_serial(), *members).run() == FINISHED
    assert max(most) == threads


def test_what_moves_the_bound_gets_more_threads() -> None:
    incumbent, seen = from_serial(), []

    @scripted
    def proof(worker: Worker) -> Script:
        for _ in range(10):
            incumbent.prove(incumbent.bound + (cost(SERIAL) - incumbent.bound) // 4, Proof.SHAVING)
            seen.append(worker.threads)
            yield 1.0
        return None

    Portfolio(Budget(threads=8), incumbent, until_there_are(10, seen), proof).run()
    assert seen[0] == 4
    assert max(seen) == 7


def test_the_search_keeps_half_of_one_thread_and_plans_with_a_steady_share() -> None:
    incumbent = from_serial()
    log: list[str] = []
    shares = []

    @scripted
    def search(worker: Worker) -> Script:
        for _ in range(200):
            log.append("s")
            shares.append(round(worker.share, 9))
            yield 1.0
        return None

    @scripted
    def proof(worker: Worker) -> Script:
        for _ in range(200):
            incumbent.prove(incumbent.bound + (cost(SERIAL) - incumbent.bound) // 10, Proof.SHAVING)
            log.append("p")
            yield 1.0
        return None

    Portfolio(Budget(effort=100), incumbent, search, proof, hope=0.2).run()
    first = log[:20]
    assert first.count("p") == first.count("s")  # the proofs move the bound, and get all that they may get
    assert set(shares) == {0.8}


def test_one_thread_of_two_always_searches() -> None:
    incumbent = from_serial()
    threads: list[int] = []

    @scripted
    def proof(worker: Worker) -> Script:
        for _ in range(10):
            incumbent.prove(incumbent.bound + (cost(SERIAL) - incumbent.bound) // 4, Proof.SHAVING)
            threads.append(worker.threads)
            yield 1.0
        return None

    Portfolio(Budget(threads=2), incumbent, until_there_are(10, threads), proof).run()
    assert set(threads) == {1}


@pytest.mark.parametrize(("hope", "steps"), [(0.5, 100), (0.25, 50), (0.1, 20), (0.01, 10)])
def test_where_nothing_moves_proofs_take_steps_as_they_are_hoped_to_pay(hope: float, steps: int) -> None:
    log: list[str] = []
    both = idle(log, "s", 1000), idle(log, "p", 1000)
    Portfolio(Budget(effort=200), from_serial(), *both, hope).run()
    assert abs(log.count("p") - steps) <= 2
    assert len(log) == 200


@pytest.mark.parametrize(("hope", "share"), [(0.5, 1.0), (0.25, 0.5), (0.1, 0.2), (0.01, 0.1)])
def test_a_thread_of_two_plans_its_proofs_for_as_long_as_they_are_hoped_to_pay(
    hope: float, share: float
) -> None:
    shares: list[float] = []

    @scripted
    def proof(worker: Worker) -> Script:
        for _ in range(4):
            shares.append(round(worker.share, 9))
            yield 1.0
        return None

    Portfolio(Budget(threads=2), from_serial(), until_there_are(4, shares), proof, hope).run()
    assert set(shares) == {share}


def test_a_member_that_has_ended_leaves_all_threads_to_the_other() -> None:
    seen: list[tuple[int, float]] = []

    @scripted
    def search(worker: Worker) -> Script:
        while not seen or seen[-1] != (4, 1.0):  # the test ends only if the other's end is noticed
            time.sleep(0.001)
            seen.append((worker.threads, worker.share))
            yield 1.0
        return None

    Portfolio(Budget(threads=4), from_serial(), search, idle([], "p", 0)).run()
    assert seen[-1] == (4, 1.0)


def test_a_schedule_that_meets_the_bound_ends_a_proof_that_runs() -> None:
    best = solve(INSTANCE, "cpsat", time_limit=60, workers=1)
    incumbent = Incumbent(SERIAL, best.cost, Proof.CP_SAT, time.perf_counter(), ignore)

    @scripted
    def search(_: Worker) -> Script:
        yield 0.01
        incumbent.offer(best.schedule)
        yield 0.01
        return None

    assert Portfolio(Budget(threads=2).within(600), incumbent, search, until_halted).run() == FINISHED
    assert incumbent.closed


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_ends_both_members(threads: int) -> None:
    @scripted
    def search(_: Worker) -> Script:
        yield 0.01
        raise KeyboardInterrupt

    proof = until_halted if threads > 1 else idle([], "p", 1000, 0.01)
    sides = Portfolio(Budget(threads=threads).within(600), from_serial(), search, proof)
    with pytest.raises(KeyboardInterrupt):
        sides.run()
    assert sides.budget.left == 0


def test_a_member_whose_program_fails_ends_alone() -> None:
    log: list[str] = []

    @scripted
    def proof(_: Worker) -> Script:
        yield 0.01
        raise MemoryError

    ended = Portfolio(Budget(threads=2), from_serial(), idle(log, "s", 50), proof).run()
    assert ended == Ended(End.FAILED, "memory is used up")
    assert len(log) == 50


@pytest.mark.parametrize("fault", [AssertionError, RuntimeError, RecursionError])
def test_another_error_of_the_proof_is_not_swallowed(fault: type[Exception]) -> None:
    @scripted
    def proof(_: Worker) -> Script:
        yield 0.01
        raise fault("wrong")

    with pytest.raises(fault, match="wrong"):
        Portfolio(Budget(threads=2), from_serial(), idle([], "s", 10**6), proof).run()


def test_only_a_valid_schedule_becomes_the_incumbent() -> None:
    incumbent = from_serial()
    broken = Schedule(SERIAL.instance, SERIAL.order, SERIAL.start // 2, SERIAL.end // 2)
    with pytest.raises(AssertionError, match="found an invalid schedule, please report"):
        incumbent.offer(broken)
    assert incumbent.schedule is SERIAL


def test_the_deadline_ends_both_members() -> None:
    budget = Budget(threads=2).within(0.2)
    Portfolio(budget, from_serial(), until_halted, until_halted).run()
    assert budget.left <= 0


def test_a_member_alone_ends_when_the_gap_is_closed() -> None:
    log: list[str] = []
    incumbent = Incumbent(SERIAL, cost(SERIAL), Proof.FORMULA, time.perf_counter(), ignore)
    assert alone(UNLIMITED, incumbent, idle(log, "s", 5)) == FINISHED
    assert log == []


def test_a_signal_while_the_thread_starts_ends_both_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool does not know of a thread that runs already when a signal cuts `Thread.start` short."""
    start, cut = threading.Thread.start, []

    def cut_short(thread: threading.Thread) -> None:
        start(thread)
        if not cut:
            cut.append(thread)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", cut_short)
    with pytest.raises(KeyboardInterrupt):
        Portfolio(Budget(threads=2), from_serial(), until_halted, until_halted).run()
    assert cut


def test_members_in_turn_share_the_time_and_leave_it_where_they_are_idle() -> None:
    log: list[str] = []

    class Resting:
        """Has nothing to do until the other one has worked twice."""

        def step(self, _: Worker) -> Outcome:
            if log.count("s") < 2:
                return Idle()
            log.append("p")
            return Worked(1.0)

    class Working:
        def step(self, _: Worker) -> Outcome:
            log.append("s")
            return Worked(1.0) if len(log) < 8 else Ended(End.FAILED, "enough")

    ended = in_turn(UNLIMITED, from_serial(), lambda _: Working(), lambda _: Resting(), lambda: 0.5)
    assert ended == Ended(End.FAILED, "enough")
    assert "".join(log) == "sspppsps"


def test_members_in_turn_end_when_both_are_idle() -> None:
    class Resting:
        def step(self, _: Worker) -> Outcome:
            return Idle()

    assert (
        in_turn(UNLIMITED, from_serial(), lambda _: Resting(), lambda _: Resting(), lambda: 0.5) == FINISHED
    )


def test_members_in_sequence_go_on_after_one_that_is_too_large_but_not_after_a_signal() -> None:
    log: list[str] = []

    def ending(name: str, ended: Ended) -> Begin:
        @scripted
        def start(_: Worker) -> Script:
            log.append(name)
            yield 1.0
            return ended

        return start

    large, unsuited = Ended(End.TOO_LARGE, "large"), Ended(End.UNSUITED, "no")
    members = ending("a", unsuited), ending("b", large), ending("c", FINISHED)
    assert alone(UNLIMITED, from_serial(), in_sequence(*members)) == large
    assert log == ["a", "b", "c"]
    signal = Ended(End.STOPPED, "interrupted")
    assert alone(UNLIMITED, from_serial(), in_sequence(ending("d", signal), *members)) == signal
    assert log == ["a", "b", "c", "d"]


def test_a_thread_that_the_system_does_not_start_costs_no_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = v_instance(3, 6, (10, 12, 8, 1), plain_memory(6))

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    found = solve(instance, "cpsat", workers=2, time_limit=20)
    assert found.schedule is not None
    assert found.reason.startswith("no thread could be started: can't start new thread")
