"""Beam search over prefixes: valid schedules, the optimum where nothing is left out, and limits that are kept."""

from __future__ import annotations

from functools import partial
from time import perf_counter

import numpy as np
import pytest
from helpers.clock import counted_time
from helpers.exact_cases import plain_memory, uniform, v_instance
from helpers.small_instances import Known, known_optima, small_instance

from tightpipe import Instance, Schedule, solve, validate
from tightpipe.model.costs import Objective
from tightpipe.model.graph_arrays import NO_LIMIT, arrays_of
from tightpipe.model.metrics import cost
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.settings.instances import load_realistic
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.engine.portfolio import Worker
from tightpipe.solver.engine.run import Incumbent
from tightpipe.solver.outcome import End, Ended
from tightpipe.solver.prefixes import is_whole
from tightpipe.solver.prefixes.beam import Beams, BeamSearch, best_rows
from tightpipe.solver.prefixes.few_devices import DEVICE, few_devices, start_windows
from tightpipe.solver.prefixes.table_kernel import (
    ALONE,
    FREE,
    LAST,
    ROWS,
    Table,
    empty_table,
    keep_new_row,
    rows_of,
)
from tightpipe.solver.prefixes.tables import Trail, first_table, next_table
from tightpipe.solver.queues import queues_of


def is_exact(line: Known) -> bool:
    """Whether a search over all devices leaves nothing out: neither waiting for links nor where frames begin."""
    instance = small_instance(line.seed)
    free = instance.costs.link_occupancy == 0 and instance.objective is Objective.MAKESPAN
    return free and is_whole(arrays_of(instance), range(instance.devices))


def searched(instance: Instance, horizon: int, width: int, budget: Budget) -> Schedule | None:
    search = BeamSearch(instance, start_windows(instance, horizon), width, budget)
    while not search.ended:
        assert search.step() >= 0
    return search.schedule


EXACT = [line for line in known_optima() if is_exact(line)]
TWO_CLASSES = [line for line in EXACT if len(small_instance(line.seed).placement.routes) == 2]


@pytest.mark.parametrize("lines", [EXACT[::3], TWO_CLASSES], ids=["all placements", "two classes"])
@pytest.mark.parametrize("width", [1, 5, 10**6])
def test_schedules_are_valid_and_optimal_where_no_prefix_is_left_out(width: int, lines: list[Known]) -> None:
    found = 0
    for line in lines:
        instance = small_instance(line.seed)
        horizon = line.optimum + line.optimum // 10
        schedule = searched(instance, horizon, width, UNLIMITED.within(20))
        if schedule is not None:
            assert validate(instance, schedule) == []
            assert line.optimum <= cost(schedule) <= horizon
            found += cost(schedule) == line.optimum
    assert len(lines) > 50
    assert found == len(lines) if width == 10**6 else 0 < found < len(lines)


def scarce() -> Instance:
    return load_realistic()["recompute-4x12-tight"].instance()


def test_a_beam_finds_what_published_schedules_do_not() -> None:
    instance = scarce()
    found = searched(instance, 163_099, 300, UNLIMITED)
    assert found is not None
    assert cost(found) < 127_110  # of annealing for 100 s; the greedy schedule costs 163,100


def test_a_deadline_ends_a_beam() -> None:
    with counted_time(per_look=1.0) as clock:
        begun = clock.now
        assert searched(scarce(), 163_099, 10**6, UNLIMITED.within(10)) is None
    assert clock.now <= begun + 12  # few looks after the one that sees that time is up


def test_the_rows_that_have_lost_least_time_are_kept() -> None:
    instance = v_instance(3, 5, (10, 12, 8, 1), plain_memory(8))
    problem = few_devices(start_windows(instance, 400), range(3))
    table: Table | None = first_table(problem)
    for _ in range(8):
        assert table is not None
        table = next_table(problem, [table], 10**6, UNLIMITED)
    assert table is not None
    alive = int(table.alive[: rows_of(table)].sum())
    assert rows_of(best_rows(problem, table, alive, 0.5)) == alive
    few = best_rows(problem, table, 4, 0.5)
    assert rows_of(few) == len(few.alive) == len(few.parent) == 4
    assert few.alive.all()
    few_queues, weight = problem.queues, problem.devices["weight"]

    def idle(row: int) -> int:
        """The idle time of all devices, and half of the waiting of microbatches."""
        time, done = table.times[row], table.started[row].astype(np.int64)
        run = done @ (few_queues["duration"] + few_queues["leaves"] * weight[few_queues["device"]])
        left = time[FREE + 3 : FREE + 6] @ weight
        waiting = sum(max(0, arrival - time[LAST]) for arrival in time[FREE + 6 :])
        return int(2 * (time[FREE : FREE + 3].sum() - run + left) + waiting)

    everything = sorted(idle(row) for row in np.flatnonzero(table.alive[: rows_of(table)]))
    kept = [
        idle(row)
        for row in np.flatnonzero(table.alive[: rows_of(table)])
        if any(
            (table.started[row] == few.started[i]).all() and (table.times[row] == few.times[i]).all()
            for i in range(4)
        )
    ]
    assert sorted(kept) == everything[:4]


def test_a_trail_leads_from_the_last_table_to_the_first() -> None:
    instance = v_instance(1, 2, (10, 12, 8, 1), plain_memory(8))
    problem = few_devices(start_windows(instance, 200), (0,))
    table: Table | None = first_table(problem)
    trail = Trail(queues_of(instance), problem)
    while table is not None and table.started[0].min() < 2:
        table = next_table(problem, [table], 10**6, UNLIMITED)
        assert table is not None
        table = best_rows(problem, table, 1, 0.5)
        trail.keep(table)
    schedule = trail.schedule(table)
    assert schedule is not None
    assert validate(instance, schedule) == []
    assert cost(schedule) == 2 * 2 * (10 + 12 + 8)


def add(table: Table, free: int, pending: int, least: int = 0) -> list[tuple[int, int]]:
    """Add a prefix on one device, whose W's take 10 ticks; return the prefixes that none dominates."""
    table.new_started[:] = 1
    table.new_times[:] = [5, least, free, pending, 0]
    devices = np.zeros(1, DEVICE)
    devices["weight"] = 10
    assert keep_new_row(table, devices, 0, 0, ALONE)
    rows = np.flatnonzero(table.alive[: table.counter[ROWS]])
    return sorted((int(table.times[row, FREE]), int(table.times[row, FREE + 1])) for row in rows)


def test_a_device_that_could_run_its_weights_in_time_dominates() -> None:
    table = empty_table(8, 2, 1, 1)
    assert add(table, 40, 1) == [(40, 1)]
    assert add(table, 31, 2) == [(31, 2), (40, 1)]  # with one W more it would be free at tick 41
    assert add(table, 30, 2) == [(30, 2)]  # free at tick 40 with one W left, too
    assert add(table, 45, 1) == [(30, 2)]
    assert add(table, 50, 0) == [(30, 2)]
    assert add(table, 39, 1) == [(30, 2), (39, 1)]
    assert add(table, 30, 3) == [(30, 2), (39, 1)]


def searched_for(
    instance: Instance, budget: Budget, share: float = 0.5, start: str = "greedy-v"
) -> Incumbent:
    bound = best_bound(instance)
    incumbent = Incumbent(
        solve(instance, start).schedule, bound.value, bound.proof, perf_counter(), lambda entry: None
    )
    worker = Worker(budget, partial(Beams, instance, incumbent, share))
    while not worker.ended:
        worker.step()
    return incumbent


def test_beams_offer_schedules_within_their_share_of_the_time() -> None:
    with counted_time(per_look=0.001) as clock:
        begun = clock.now
        incumbent = searched_for(scarce(), UNLIMITED.within(4))
    assert cost(incumbent.schedule) < 127_110
    assert clock.now < begun + 4


def test_beams_with_an_effort_limit_are_the_same_in_every_run() -> None:
    budget = Budget(threads=1, effort=5.0)
    first, second = (searched_for(scarce(), budget) for _ in range(2))
    assert first.schedule == second.schedule
    assert cost(first.schedule) < 163_100
    assert len(first.log) == len(second.log)


def test_beams_find_schedules_of_two_directions() -> None:
    instance = uniform(4, 12, (10, 14, 6), placement="bidirectional", comm=1, memory=plain_memory(8))
    found = searched_for(instance, Budget(effort=4.0), start="modulo").schedule
    assert validate(instance, found) == []
    assert cost(found) < min(
        solve(instance, name).cost or NO_LIMIT for name in ("modulo", "list", "due-date")
    )


def test_there_are_no_beams_where_the_weights_of_a_device_differ() -> None:
    instance = load_realistic()["head-8x24-tight"].instance()
    start = solve(instance, "improve", time_limit=0).schedule
    incumbent = Incumbent(start, 1, None, perf_counter(), lambda entry: None)
    worker = Worker(UNLIMITED, partial(Beams, instance, incumbent, 1.0))
    worker.step()
    assert worker.ended == Ended(End.UNSUITED)
    assert incumbent.schedule is start


def test_a_prefix_that_allows_a_lower_cost_is_not_dominated() -> None:
    table = empty_table(8, 2, 1, 1)
    assert add(table, 40, 1, least=90) == [(40, 1)]
    assert add(table, 45, 1, least=89) == [(40, 1), (45, 1)]
    assert add(table, 45, 1, least=91) == [(40, 1), (45, 1)]
