"""Large neighbourhoods: what is not free stays in place, and what is free is searched to the end."""

from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np
import pytest
from helpers.brute_force import optimum
from helpers.cases import instances, serial_order, uniform, wide_instances, widened
from helpers.exact_cases import TINY_SHAPES, plain_memory, table_memory, tiny_instance, v_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, MicrobatchClass, MicrobatchSlice, Schedule, retime, solve, validate
from tightpipe.base.interruption import INTERRUPTED
from tightpipe.model.costs import Step
from tightpipe.model.metrics import cost
from tightpipe.model.result import ignore
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.solve_params import params_from_dict
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.cpsat.lattice import LatticeModel
from tightpipe.solver.cpsat.race import Found, search
from tightpipe.solver.engine.portfolio import Worker, alone
from tightpipe.solver.engine.run import Incumbent, in_queue_order
from tightpipe.solver.improve import improve, neighbourhood
from tightpipe.solver.improve.neighbourhood import Neighbourhoods, _choose, _plain_model, _windows
from tightpipe.solver.outcome import FINISHED, End, Ended
from tightpipe.solver.queues import Rule, queues_of, rules_of, words_of


def serial(instance: Instance) -> Schedule:
    return in_queue_order(retime(instance, serial_order(instance)))


def best_within(schedule: Schedule, free: np.ndarray) -> Schedule | None:
    """The cheapest schedule of a neighbourhood, None if there is no cheaper one."""
    queues = queues_of(schedule.instance)
    windows = _windows(queues, schedule, free, UNLIMITED)
    if not windows.feasible:
        return None
    found = search(LatticeModel(queues, windows, 0), UNLIMITED.within(60), lambda *_: None)
    assert found.exhausted
    return found.schedule


@pytest.mark.parametrize("objective", ["device_span", "makespan"])
@pytest.mark.parametrize("shape", TINY_SHAPES, ids=lambda shape: "-".join(map(str, shape)))
def test_the_optimum_lies_in_the_neighbourhood_in_which_everything_is_free(
    shape: tuple[str, int, int], objective: str
) -> None:
    instance = tiny_instance(shape, 3, objective, limited=True)
    start = serial(instance)
    found = best_within(start, np.ones(sum(queue.count for queue in queues_of(instance).queues), bool))
    assert cost(found or start) == optimum(instance)


@pytest.mark.parametrize("rule", [Rule.ABSENT, Rule.STEP, Rule.CLASSES, Rule.SLICES, Rule.FLUSHES])
def test_the_lattice_finds_the_optimum_of_every_rule_without_joint_operations(rule: Rule) -> None:
    plain = uniform(2, 2, (3, 5, 2), comm=1, placement="linear", memory=plain_memory(4))
    wider = {
        Rule.ABSENT: replace(plain, costs=replace(plain.costs, weight=(2, 0)), memory=None),
        Rule.STEP: replace(plain, objective="step", step=Step(ready=[4, 0], reduce=[0, 9], optimizer=1)),
        Rule.CLASSES: replace(plain, classes=[MicrobatchClass(1), MicrobatchClass(1, forward=9)]),
        Rule.SLICES: replace(plain, slices=[MicrobatchSlice(), MicrobatchSlice(forward=4)], memory=None),
        Rule.FLUSHES: replace(plain, iterations=2),
    }
    instance = wider[rule]
    assert rule in rules_of(instance)
    start = serial(instance)
    assert isinstance(searched(start), LatticeModel | None)
    found = best_within(start, np.ones(len(start.order), bool))
    assert cost(found or start) == solve(instance, "cpsat", time_limit=60, workers=1).bound


def searched(start: Schedule) -> object:
    """The model of a neighbourhood in which everything is free."""
    incumbent = Incumbent(start, 1, None, perf_counter(), ignore)
    made = []

    def begin(worker: Worker) -> Neighbourhoods:
        search = Neighbourhoods(start.instance, incumbent, worker)
        made.append(search._model(start, np.ones(len(start.order), bool), worker))
        return search

    alone(Budget(effort=0.01), incumbent, begin)
    return made[0]


@settings(max_examples=40, deadline=None)
@given(
    instances(most_occupancy=10)
    | st.builds(widened, instances(max_devices=2, max_microbatches=3), st.integers(0, 9999)),
    st.integers(0, 2**16),
)
def test_what_is_not_free_stays_in_place(instance: Instance, seed: int) -> None:
    start, queues = serial(instance), queues_of(instance)
    free = _choose(queues, start, 0.3, 0.5, np.random.default_rng(seed))
    found = best_within(start, free)
    if found is None:
        return
    assert validate(instance, found) == []
    assert cost(found) < cost(start)
    offsets = start.order.offsets[:-1].tolist()
    olds, news = words_of(queues, start.order), words_of(queues, found.order)
    for offset, old, new in zip(offsets, olds, news, strict=True):
        fixed = [place for place in range(len(old)) if not free[offset + place]]
        assert [old[place] for place in fixed] == [new[place] for place in fixed]


@settings(max_examples=25, deadline=None)
@given(wide_instances(max_devices=2, max_microbatches=3), st.integers(0, 2**16))
def test_joint_operations_that_are_not_free_stay_joint_and_in_place(instance: Instance, seed: int) -> None:
    start, queues = serial(instance), queues_of(instance)
    if cost(start) == best_bound(instance).value:  # then no search begins
        return
    free = _choose(queues, start, 0.4, 0.5, np.random.default_rng(seed))
    found = search(_plain_model(start, free, 0), UNLIMITED.within(60), lambda *_: None)
    assert found.exhausted
    if found.schedule is None:
        return
    assert validate(instance, found.schedule) == []
    assert cost(found.schedule) < cost(start)
    for device in range(instance.devices):
        rows = start.order.rows(device)
        old = start.order.operations[rows][~free[rows]].tolist()
        new = found.schedule.order.operations[found.schedule.order.rows(device)].tolist()
        assert [op for op in new if op in old] == old


def test_neighbourhoods_join_and_part_operations() -> None:
    """Where everything is free, the neighbourhood of a serial schedule has the optimum: known is 471 at 2x8."""
    instance = uniform(2, 4, (20, 22, 18), fused=34, comm=1, placement="linear", objective="makespan")
    start = serial(instance)
    everything = np.ones(len(start.order), bool)
    found = search(_plain_model(start, everything, 0), UNLIMITED.within(60), lambda *_: None)
    assert found.exhausted
    assert found.schedule is not None
    assert cost(found.schedule) == solve(instance, "cpsat", time_limit=60, workers=1).bound


def test_an_interrupted_neighbourhood_interrupts_the_improvement(monkeypatch: pytest.MonkeyPatch) -> None:
    always = params_from_dict({"anneal.converged": 0})
    stopped = Found(None, None, exhausted=False, ended=Ended(End.STOPPED, INTERRUPTED))
    monkeypatch.setattr(neighbourhood, "search", lambda *_, **__: stopped)
    instance = v_instance(4, 8, (10, 20, 5, 1), table_memory(4))
    result = improve(instance, Budget(params=always).within(2), serial(instance))
    assert result.reason == INTERRUPTED
    assert validate(instance, result.schedule) == []


def test_neighbourhoods_go_on_from_the_incumbent_until_the_gap_is_closed() -> None:
    instance = v_instance(2, 4, (10, 12, 8, 1), plain_memory(8))
    start, least = retime(instance, serial_order(instance)), instance.work(0) + 6  # proven by a prototype
    incumbent = Incumbent(start, least, None, perf_counter(), ignore)
    alone(UNLIMITED.within(60), incumbent, partial(Neighbourhoods, instance, incumbent))
    assert validate(instance, incumbent.schedule) == []
    assert cost(incumbent.schedule) == least


def test_after_the_largest_seed_comes_another_neighbourhood() -> None:
    instance = v_instance(3, 6, (10, 12, 8, 1), table_memory(3))
    start = retime(instance, serial_order(instance))
    incumbent = Incumbent(start, instance.work(0) + 18, None, perf_counter(), ignore)
    last = Budget(seed=2**31 - 1, effort=1)
    assert alone(last, incumbent, partial(Neighbourhoods, instance, incumbent)) == FINISHED
    assert cost(incumbent.schedule) < cost(start)
