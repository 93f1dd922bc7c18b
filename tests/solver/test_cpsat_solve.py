"""What solve_cpsat promises besides optima: limits, hints, interruption, honesty."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from helpers.cases import instances, serial_order, uniform
from helpers.clock import counted_time
from helpers.exact_cases import plain_memory, table_memory, v_instance, with_busy_links
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model

from tightpipe import (
    Instance,
    Operation,
    Order,
    Proof,
    Schedule,
    Status,
    retime,
    simulate,
    validate,
)
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost, largest_work
from tightpipe.model.operation import OpKind
from tightpipe.model.result import ignore
from tightpipe.params.budget import UNLIMITED, Allowance, Budget
from tightpipe.params.solve_params import DEFAULTS
from tightpipe.registry.starts import warm_starts
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.cpsat import cpsat_method as solve_module
from tightpipe.solver.cpsat import race as search_module
from tightpipe.solver.cpsat import solve_cpsat
from tightpipe.solver.cpsat.lattice import LatticeModel
from tightpipe.solver.cpsat.plain import PlainModel
from tightpipe.solver.cpsat.race import Found, search
from tightpipe.solver.cpsat.targets import Targets
from tightpipe.solver.engine.portfolio import alone
from tightpipe.solver.engine.run import Incumbent, in_queue_order
from tightpipe.solver.outcome import FINISHED
from tightpipe.solver.queues import order_of_words, queues_of, words_of
from tightpipe.solver.windows import windows_of

HARD = v_instance(4, 8, (8, 14, 8, 2), plain_memory(16))
EASY = v_instance(2, 4, (10, 12, 8, 1), plain_memory(8))


def _serial(instance: Instance) -> Schedule:
    return retime(instance, serial_order(instance))


@settings(max_examples=25, deadline=None)
@given(instances(most_operations=60))  # all are solved to the end; larger ones would take the time limit
def test_bound_is_below_optimum_is_below_warm_start(instance: Instance) -> None:
    warm_start = _serial(instance)
    result = solve_cpsat(instance, Budget(threads=2).within(5), warm_start)
    assert best_bound(instance).value <= result.bound <= result.cost <= cost(warm_start)
    assert validate(instance, result.schedule) == []
    assert result.status is (Status.OPTIMAL if result.bound == result.cost else Status.FEASIBLE)


@settings(max_examples=60, deadline=None)
@given(instances())
def test_queue_order_keeps_the_schedule_valid_and_no_dearer(instance: Instance) -> None:
    queues = queues_of(instance)
    schedule = _serial(instance)
    queued = in_queue_order(schedule)
    assert validate(instance, queued) == []
    assert cost(queued) <= cost(schedule)
    assert order_of_words(queues, words_of(queues, queued.order)) == queued.order


@settings(max_examples=40, deadline=None)
@given(instances(), st.sampled_from([0, 5, 15]))
def test_the_hint_is_complete_and_feasible(instance: Instance, occupancy: int) -> None:
    instance = with_busy_links(instance, occupancy)
    hint = in_queue_order(_serial(instance))
    queues = queues_of(instance)
    lattice = LatticeModel(queues, windows_of(queues, cost(hint)), 0)
    for model in (lattice, PlainModel(instance, cost(hint), 0, fifo=True)):
        model.add_hint(hint, cost(hint))
        assert len(model.model.proto.solution_hint.vars) == len(model.model.proto.variables)
        solver = cp_model.CpSolver()
        solver.parameters.fix_variables_to_their_hinted_value = True
        assert solver.solve(model.model) == cp_model.OPTIMAL
        assert solver.objective_value == cost(hint)


def test_a_fused_backward_is_split() -> None:
    rows: list[list[Operation]] = [[] for _ in range(2)]
    for kind, s, m in (op for device in serial_order(EASY).to_lists() for op in device):
        if kind is not OpKind.W:
            rows[EASY.device(s, m)].append(Operation(OpKind.BW if kind is OpKind.B else kind, s, m))
    fused = retime(EASY, Order.from_lists(rows))
    assert validate(EASY, fused) == []
    assert cost(in_queue_order(fused)) <= cost(fused)
    assert solve_cpsat(EASY, Budget(threads=2).within(20), fused).status is Status.OPTIMAL


def test_one_worker_is_reproducible() -> None:
    first, second = (solve_cpsat(EASY, Budget(seed=5)) for _ in range(2))
    assert first.schedule == second.schedule
    assert [(e.cost, e.bound) for e in first.log] == [(e.cost, e.bound) for e in second.log]


@pytest.mark.parametrize("effort", [0.002, 1.0])
def test_targets_close_the_gap_without_minimising(effort: float) -> None:
    instance = v_instance(3, 6, (10, 12, 8, 1), plain_memory(12))
    start = retime(instance, HEURISTICS["greedy-v"].make(instance))
    incumbent = Incumbent(start, best_bound(instance).value, Proof.FORMULA, time.perf_counter(), ignore)
    member = Targets(instance, incumbent, DEFAULTS.targets, effort)
    assert alone(UNLIMITED, incumbent, lambda _: member) == FINISHED
    assert incumbent.closed
    assert cost(incumbent.schedule) - largest_work(instance) == 18
    assert validate(instance, incumbent.schedule) == []


def test_an_optimal_start_is_proven_before_the_search(monkeypatch: Any) -> None:
    """Windows alone refute any cheaper schedule: no model is built."""
    monkeypatch.setattr(solve_module, "search", None)
    instance = v_instance(6, 18, (3, 3, 2, 0), table_memory(6))
    greedy = retime(instance, HEURISTICS["greedy-v"].make(instance))
    result = solve_cpsat(instance, UNLIMITED, greedy)
    assert (result.status, result.cost) == (Status.OPTIMAL, 296)


RACED = v_instance(3, 4, (10, 12, 8, 1), plain_memory(12))
SMALL = v_instance(3, 6, (10, 12, 8, 1), plain_memory(12))


def _lattice(instance: Instance) -> tuple[LatticeModel, int]:
    """Return the model that minimises from microbatch after microbatch, and what that costs."""
    queues = queues_of(instance)
    horizon = cost(in_queue_order(_serial(instance)))
    return LatticeModel(queues, windows_of(queues, horizon), 0), horizon


@pytest.mark.parametrize("workers", [1, 3])
def test_threads_race_and_the_winner_ends_the_others(workers: int) -> None:
    model, _ = _lattice(RACED)
    told: list[tuple[int | None, int | None]] = []
    found = search(model, Budget(threads=workers).within(60), lambda *now: told.append(now))
    assert found.exhausted
    assert found.schedule is not None
    assert cost(found.schedule) == found.bound == min(new for new, _ in told if new is not None)


def test_a_schedule_good_enough_ends_the_race() -> None:
    model, horizon = _lattice(SMALL)
    found = search(model, Budget(threads=2).within(60), lambda *_: None, enough=horizon - 1)
    assert found.schedule is not None
    assert cost(found.schedule) < horizon


def test_a_racer_that_dies_ends_the_others(monkeypatch: Any) -> None:
    """They would search for minutes, until the optimum is proven."""
    run, others = search_module._Racer.run, list[Found]()

    def die(self: search_module._Racer) -> Found:
        if self._solver.parameters.random_seed == 1:
            raise MemoryError
        others.append(run(self))
        return others[-1]

    monkeypatch.setattr(search_module._Racer, "run", die)
    model, _ = _lattice(HARD)
    budget = Budget(threads=2).within(600)
    with pytest.raises(MemoryError):
        search(model, budget, lambda *_: None)
    assert [found.exhausted for found in others] == [False]
    assert budget.left > 0


def test_two_directions_over_iterations_without_a_flush() -> None:
    instance = Instance.uniform(
        devices=2,
        microbatches=4,
        forward=2,
        backward=3,
        weight=1,
        placement="bidirectional",
        iterations=2,
        flush=False,
    )
    result = solve_cpsat(instance, Budget(threads=2).within(20))
    assert validate(instance, result.schedule) == []
    assert result.status is Status.OPTIMAL
    assert not result.reason


def test_progress_is_told_as_logged() -> None:
    told: list[Any] = []
    result = solve_cpsat(EASY, Budget(threads=2).within(20), progress=told.append)
    assert tuple(told) == result.log
    assert result.log[-1].cost == result.log[-1].bound == result.cost
    assert all(a.seconds <= b.seconds for a, b in zip(result.log, result.log[1:], strict=False))


@pytest.mark.parametrize("formulation", ["lattice", "plain"])
def test_the_time_limit_holds_at_paper_scale(monkeypatch: Any, formulation: Any) -> None:
    instance = v_instance(32, 256, (9, 9, 6, 1), table_memory(32))
    warm_start = _serial(instance)
    for model in ("LatticeModel", "PlainModel"):
        monkeypatch.setattr(solve_module, model, None)  # there is no time to build one
    with counted_time(per_look=0.01) as clock:
        begun = clock.now
        result = solve_cpsat(instance, Budget(threads=2).within(1), warm_start, formulation=formulation)
    assert clock.now < begun + 2  # nothing goes on that looks at the clock between its steps
    assert result.cost <= cost(warm_start)
    assert result.bound >= result.work


@pytest.mark.parametrize("failure", [RuntimeError("out of memory"), KeyboardInterrupt(), MemoryError()])
def test_a_solver_that_dies_leaves_the_warm_start(monkeypatch: Any, failure: BaseException) -> None:
    def die(*_: Any) -> int:
        raise failure

    monkeypatch.setattr(cp_model.CpSolver, "solve", die)
    warm_start = _serial(HARD)
    result = solve_cpsat(HARD, Budget(threads=2).within(20), warm_start)
    assert result.status is Status.FEASIBLE
    assert result.cost <= cost(warm_start)
    assert result.reason


INTERRUPTED = """
import sys
from tightpipe import Instance, Memory
from tightpipe.params.budget import Budget
from tightpipe.solver.cpsat import solve_cpsat
instance = Instance.uniform(devices=5, microbatches=16, forward=10, backward=17, weight=9, comm=1,
                            memory=Memory(2, -1, -1, 20))
def tell(entry):
    print("searching", flush=True)
easy = Instance.uniform(devices=2, microbatches=4, forward=10, backward=12, weight=8, comm=1)
solve_cpsat(easy, Budget().within(20))  # compile first
result = solve_cpsat(instance, Budget(threads=2).within(120), progress=tell)
print(result.status, result.cost, result.reason, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends a POSIX signal")
def test_an_interrupt_returns_the_best_schedule_so_far() -> None:
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "searching\n"
    time.sleep(1)  # now CP-SAT runs
    process.send_signal(signal.SIGINT)
    line = "searching\n"
    while line == "searching\n":
        line = process.stdout.readline()
    assert line.startswith("feasible")
    assert line.endswith("interrupted\n")
    assert process.wait(10) == 0


@pytest.mark.parametrize(("limit", "expected"), [(16, False), (5, True)])
def test_precedences_are_for_scarce_memory(limit: int, expected: bool) -> None:
    """Less memory, more idle time: there CP-SAT reasons about what precedes an operation."""
    instance = v_instance(4, 8, (10, 12, 8, 1), plain_memory(limit))
    start = min((schedule for _, schedule in warm_starts(instance)), key=cost)
    queues = queues_of(instance)
    model = LatticeModel(queues, windows_of(queues, cost(start) - 1), 0)
    assert model.with_precedences is expected


def test_a_short_solve_has_time_for_the_plain_model_of_a_small_instance() -> None:
    """The search for plans solves candidates for parts of a second; this model takes a hundredth of one."""
    instance = uniform(2, 4, (10, 12, 8), placement="v", overlapped=15)
    start = simulate(instance, serial_order(instance))
    incumbent = Incumbent(start, best_bound(instance).value, None, time.perf_counter(), ignore)
    model = solve_module._plain(fifo=True)(instance, Allowance(0.5, 1).begin(), incumbent)
    assert isinstance(model, PlainModel)
