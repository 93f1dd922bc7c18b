"""A search for a bound as a member of a portfolio: one step, within its share, from and to the incumbent."""

from __future__ import annotations

import time
from dataclasses import replace

from helpers.cases import serial_order
from helpers.exact_cases import plain_memory, v_instance

from tightpipe import Instance, retime
from tightpipe.model.result import Bound, LogEntry, Progress, Proof, ignore
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.solver.engine.portfolio import alone, in_sequence
from tightpipe.solver.engine.run import BoundSearch, Incumbent, bounding
from tightpipe.solver.outcome import FINISHED

INSTANCE = v_instance(2, 4, (10, 12, 8, 1), plain_memory(8))


def test_a_search_gets_the_incumbent_and_a_share_of_the_time_and_raises_the_bound() -> None:
    start = retime(INSTANCE, serial_order(INSTANCE))
    incumbent = Incumbent(start, 200, Proof.FORMULA, time.perf_counter(), ignore)
    told: list[Bound] = []
    found = Bound(210, "made up", "because", 0.0, Proof.SHAVING)

    def search(instance: Instance, upper: int, budget: Budget, lower: int, progress: Progress) -> Bound:
        assert (instance, upper, lower) == (INSTANCE, incumbent.cost, 200)
        assert 20 < budget.left <= 25
        progress(LogEntry(0.0, upper, 205, Proof.SHAVING))
        return found

    member = BoundSearch(search, incumbent, INSTANCE, 0.25, tell=told.append)
    assert alone(UNLIMITED.within(100), incumbent, lambda _: member) == FINISHED
    assert (incumbent.bound, incumbent.proof, told) == (210, Proof.SHAVING, [found])
    assert [entry.bound for entry in incumbent.log] == [200, 205, 210]


def test_a_search_is_asked_about_both_ways_to_cut_fused_backwards() -> None:
    instance = replace(INSTANCE, costs=replace(INSTANCE.costs, fused=15), memory=None)
    start = retime(instance, serial_order(instance))
    incumbent = Incumbent(start, 1, Proof.FORMULA, time.perf_counter(), ignore)
    asked: list[Instance] = []

    def search(about: Instance, _: int, __: Budget, lower: int, ___: Progress) -> Bound:
        asked.append(about)
        return Bound(lower, "none", "", 0.0)

    alone(UNLIMITED, incumbent, in_sequence(*bounding(search, incumbent)))
    assert asked[0] == instance
    assert [one.costs.backward[0] for one in asked[1:]] == [7]
    assert len(bounding(search, incumbent, cut=False)) == 1
