"""improve and best: never worse than the start, always valid, known optima, limits and interruption."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
import pytest
from helpers.cases import classed, instances, serial_order, wide_instances
from helpers.exact_cases import plain_memory, table_memory, v_instance
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Instance, Memory, MicrobatchClass, Objective, Status, retime, solve, validate
from tightpipe.heuristics.list_schedule import list_order
from tightpipe.model.metrics import cost
from tightpipe.model.microbatches import sequence_of
from tightpipe.model.operation import OpKind
from tightpipe.model.result import ignore
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.parameters import numbers
from tightpipe.params.solve_params import DEFAULTS, params_from_dict
from tightpipe.solver.engine.portfolio import Worker, alone
from tightpipe.solver.engine.run import Incumbent, in_queue_order
from tightpipe.solver.improve import annealing, improve, local_search, rule_search
from tightpipe.solver.improve.anneal_kernel import AnnealNumbers, anneal
from tightpipe.solver.improve.annealing import Meter, central_begins, whole_task
from tightpipe.solver.improve.dispatch_kernel import dispatch
from tightpipe.solver.improve.fold import fold
from tightpipe.solver.improve.lines import DELAYING, dispatch_state_for, first_weights
from tightpipe.solver.improve.pass_kernel import let_pass
from tightpipe.solver.improve.paths_kernel import cost_of, load, load_mirror
from tightpipe.solver.improve.rule_search import ALIKE, NO_SHAPES
from tightpipe.solver.improve.shape_kernel import SHAPE, Shapes, lay_out
from tightpipe.solver.improve.tune_kernel import TuneNumbers, tune
from tightpipe.solver.improve.words import (
    Positions,
    event_graph_of,
    mirrored,
    order_of_positions,
    positions_of,
    words_for,
)
from tightpipe.solver.outcome import Ended, Worked
from tightpipe.solver.queues import queues_of

B_IS_SLOW = v_instance(4, 8, (10, 20, 5, 1), plain_memory(16))


SHORT = Budget(params=params_from_dict({"anneal.moves_per_item": 100}))
"""Few moves, for tests that are not about what the search finds."""


def serial(instance: Instance) -> Any:
    return retime(instance, serial_order(instance))


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(
        instances(most_occupancy=20),
        instances(overlapped=True),
        wide_instances(most_occupancy=9),
        st.builds(classed, wide_instances(most_occupancy=9), st.integers(0, 9999)),
    )
)
def test_the_paths_after_a_walk_are_those_of_the_words(instance: Instance) -> None:
    queues = queues_of(instance)
    graph = event_graph_of(queues.instance)
    words, again = words_for(graph), words_for(graph)
    other = mirrored(graph)
    mirror, fresh = words_for(other, words), words_for(other, words)
    start = serial(instance)
    found = positions_of(queues, start.order)
    load(graph, words, *found, central_begins(start))
    load_mirror(graph, words, other, mirror)
    before = cost_of(graph, words)
    assert before == cost(start)
    random, changes = np.array([7], np.uint64), numbers(AnnealNumbers, DEFAULTS.anneal)
    best = anneal(graph, words, other, mirror, random, 500, 3.0, before, *found, changes)
    load(graph, again, words.item, words.joined, words.begin)
    assert np.array_equal(words.sent, again.sent)
    assert np.array_equal(words.end, again.end)
    load_mirror(graph, words, other, fresh)
    zero = (m.begin[-1] + words.begin[0] for m in (mirror, fresh))
    assert np.array_equal(mirror.end - next(zero), fresh.end - next(zero))
    schedule = retime(instance, order_of_positions(queues, graph, found))
    assert validate(instance, schedule) == []
    assert cost(schedule) <= best <= cost(start)


@settings(max_examples=60, deadline=None)
@given(st.one_of(instances(most_occupancy=20), instances(fused=True)), st.integers(0, 2**31))
def test_what_a_rule_dispatches_is_valid_and_costs_no_more_than_it_says(
    instance: Instance, seed: int
) -> None:
    queues = queues_of(instance)
    graph = event_graph_of(queues.instance)
    state = dispatch_state_for(queues, graph)
    weights = np.random.default_rng(seed).normal(size=first_weights(queues, 1.0).shape)
    says = dispatch(graph, state, weights, ALIKE, np.inf)
    if says == np.inf:
        return
    found = Positions(state.item, state.joined)
    schedule = retime(instance, order_of_positions(queues, graph, found))
    assert validate(instance, schedule) == []
    assert cost(schedule) <= says
    assert dispatch(graph, state, weights, ALIKE, says) == says
    assert dispatch(graph, state, weights, ALIKE, says - 1) == np.inf


def test_the_first_rule_fuses_where_nobody_waits_and_splits_where_somebody_does() -> None:
    instance = v_instance(4, 12, (100, 110, 90, 5), plain_memory(16))
    cheaper = dataclasses.replace(
        instance, costs=dataclasses.replace(instance.costs, fused=(172,) * 8), objective=Objective.MAKESPAN
    )
    queues = queues_of(cheaper)
    graph = event_graph_of(cheaper)
    state = dispatch_state_for(queues, graph)
    assert dispatch(graph, state, first_weights(queues, 100.0), ALIKE, np.inf) < np.inf
    fused = np.count_nonzero(state.joined)
    assert 0 < fused < 4 * 2 * 12


@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8])
def test_a_rule_leaves_memory_to_the_oldest_microbatch(devices: int) -> None:
    free = v_instance(devices, 2 * devices, (10, 15, 7, 1), plain_memory(4 * devices))
    for limit in range(max(free.smallest_limit(d) for d in range(devices)), 4 * devices + 1):
        queues = queues_of(v_instance(devices, 2 * devices, (10, 15, 7, 1), plain_memory(limit)))
        graph = event_graph_of(queues.instance)
        for seed in range(20):
            weights = np.random.default_rng(seed).normal(size=first_weights(queues, 1.0).shape)
            assert dispatch(graph, dispatch_state_for(queues, graph), weights, ALIKE, np.inf) < np.inf


def test_tuning_keeps_the_best_rule() -> None:
    instance = v_instance(8, 16, (10, 20, 9, 1), table_memory(8))
    queues = queues_of(instance)
    graph = event_graph_of(queues.instance)
    state = dispatch_state_for(queues, graph)
    weights = np.repeat(first_weights(queues, 10.0)[None], 3, axis=0)
    first = dispatch(graph, state, weights[0], ALIKE, np.inf)
    changes, none = numbers(TuneNumbers, DEFAULTS.rules), np.zeros((3, 0, 0), np.int64)
    random = np.array([7], np.uint64)
    _, best = tune(graph, state, random, 500, 1.0, np.inf, np.inf, weights, none, NO_SHAPES, changes)
    assert dispatch(graph, state, weights[1], ALIKE, np.inf) == best < first


def test_the_dearest_rules_give_way_to_the_cheapest() -> None:
    instance = v_instance(4, 8, (10, 20, 5, 1), plain_memory(16))
    queues = queues_of(instance)
    rules = rule_search._rules_of(queues, event_graph_of(queues.instance), 10.0)
    tuners = [rule_search._Tuner(rules, seed, DEFAULTS.rules, rule_search._Start()) for seed in range(8)]
    for cost_now, tuner in zip((5.0, 3.0, 9.0, 7.0, 8.0, 6.0, 4.0, 2.0), tuners, strict=True):
        tuner.cost = cost_now
        tuner.weights[0] = cost_now
    rule_search._replace_worst(tuners, DEFAULTS.rules.replaced)
    assert [tuner.cost for tuner in tuners] == [5.0, 3.0, 2.0, 7.0, 3.0, 6.0, 4.0, 2.0]
    assert all((tuner.weights[0] == tuner.cost).all() for tuner in tuners)
    tuners[7].weights[0] = 11.0
    assert (tuners[2].weights[0] == 2.0).all()  # a copy, not the same array


def test_rules_are_annealed_at_once_only_where_each_gets_many_runs() -> None:
    def rules(instance: Instance, budget: Budget) -> int:
        incumbent = Incumbent(serial(instance), 1, None, 0.0, ignore)
        worker = Worker(budget, local_search(instance, incumbent))
        search = rule_search.RuleSearch(whole_task(instance), incumbent, Meter(worker, 1.0), worker)
        return len(search._tuners)

    small = v_instance(4, 8, (10, 20, 5, 1), plain_memory(16))
    large = v_instance(16, 64, (10, 20, 5, 1), plain_memory(64))
    assert rules(small, Budget(effort=100)) == 8
    assert rules(large, Budget(effort=100)) == 4
    assert rules(large, Budget(effort=1)) == 1
    assert rules(large, Budget(effort=1, threads=3)) == 3


def searching_rules(instance: Instance, incumbent: Incumbent) -> tuple[rule_search.RuleSearch, Worker]:
    worker = Worker(Budget(effort=100), local_search(instance, incumbent))
    worker.seconds = 50.0  # of other members
    return rule_search.RuleSearch(whole_task(instance), incumbent, Meter(worker, 1.0), worker), worker


def test_rules_get_their_share_whatever_other_members_have_taken() -> None:
    instance = v_instance(4, 8, (10, 20, 5, 1), plain_memory(16))
    incumbent = Incumbent(serial(instance), 1, None, 0.0, ignore)
    search, worker = searching_rules(instance, incumbent)
    assert isinstance(search.step(worker), Worked)
    assert incumbent.cost < cost(serial(instance))


def test_rules_that_cost_much_more_than_the_incumbent_end_after_a_trial() -> None:
    instance = v_instance(4, 8, (10, 20, 5, 1), plain_memory(16))
    known = solve(instance, "improve", effort=2, workers=1).schedule
    assert known is not None
    ended = []
    for start in (known, serial(instance)):
        search, worker = searching_rules(instance, Incumbent(start, 1, None, 0.0, ignore))
        worker.seconds += 10.0  # of 110 for all phases: the trial is over, and the phase is not
        for tuner in search._tuners:
            tuner.best = 1.1 * cost(known)
        ended.append(isinstance(search.step(worker), Ended))
    assert ended == [True, False]


def test_iterations_that_are_flushed_stay_apart() -> None:
    instance = dataclasses.replace(v_instance(2, 6, (10, 15, 5, 1), plain_memory(8)), iterations=3)
    start = serial(instance)
    result = improve(instance, SHORT, start)
    assert validate(instance, result.schedule) == []
    assert result.cost < cost(start)
    assert solve(instance, "best", effort=1, workers=1).cost <= cost(start)


@pytest.mark.parametrize(
    ("instance", "bubble"),
    [
        (v_instance(3, 6, (10, 12, 8, 1), plain_memory(12)), 18),
        (v_instance(4, 8, (10, 12, 8, 1), plain_memory(16)), 32),
        (B_IS_SLOW, 94),
        (v_instance(4, 8, (10, 10, 6, 0), table_memory(4)), 18),
    ],
)
def test_known_optima_are_found_from_the_greedy(instance: Instance, bubble: int) -> None:
    start = solve(instance, "greedy-v").schedule
    known = Incumbent(start, instance.work(0) + bubble, None, perf_counter(), ignore)
    alone(UNLIMITED, known, local_search(instance, known))
    assert known.closed
    assert validate(instance, known.schedule) == []


def test_the_greedy_is_improved_where_b_is_slow() -> None:
    instance = v_instance(8, 16, (10, 20, 9, 1), table_memory(8))
    greedy = solve(instance, "greedy-v")
    result = improve(instance, SHORT, greedy.schedule)
    assert result.cost < greedy.cost
    costs = [entry.cost for entry in result.log]
    assert costs == sorted(costs, reverse=True)


def test_one_worker_is_reproducible() -> None:
    first, second = (improve(B_IS_SLOW, SHORT, serial(B_IS_SLOW)) for _ in range(2))
    assert first.schedule == second.schedule
    other = improve(B_IS_SLOW, dataclasses.replace(SHORT, seed=5), serial(B_IS_SLOW))
    assert other.schedule != first.schedule


def test_several_workers_share_the_best() -> None:
    result = improve(B_IS_SLOW, SHORT.on(3), serial(B_IS_SLOW))
    assert validate(B_IS_SLOW, result.schedule) == []
    assert result.cost < cost(serial(B_IS_SLOW))


@pytest.mark.parametrize("method", ["improve", "best"])
def test_no_time_returns_the_warm_start_with_its_bound(method: str) -> None:
    start = serial(B_IS_SLOW)
    result = solve(B_IS_SLOW, method, time_limit=0, warm_start=start)
    assert result.schedule == start
    assert result.status is Status.FEASIBLE
    assert result.bound >= B_IS_SLOW.work(0)


def test_a_warm_round_in_vain_is_followed_by_a_colder_one(monkeypatch: pytest.MonkeyPatch) -> None:
    warmths: list[float] = []

    def vain(*arguments: Any) -> int:
        *_, warmth, best = arguments[:8]
        warmths.append(warmth)
        return int(best)

    monkeypatch.setattr(annealing, "anneal", vain)
    numbers = {"cooling": 1.0, "calmer": 0.5, "rounds": [0.1, 0.3, 0.3, 0.3], "moves_per_item": 20_000}
    params = params_from_dict({"rules.share": 0.0, "fold.share": 0.01, "anneal": numbers})
    improve(B_IS_SLOW, Budget(params=params), serial(B_IS_SLOW))
    _, first, second, third = list(dict.fromkeys(warmths))[-4:]
    assert [second / first, third / second] == pytest.approx([0.5, 0.5])


def test_an_interrupt_keeps_what_was_found(monkeypatch: Any) -> None:
    calls = []

    def walk(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return anneal(*arguments)

    monkeypatch.setattr(annealing, "anneal", walk)
    start = serial(B_IS_SLOW)
    result = improve(B_IS_SLOW, UNLIMITED, start)
    assert result.reason == "interrupted"
    assert result.cost < cost(start)


def test_best_proves_what_improve_finds() -> None:
    instance = v_instance(3, 6, (10, 12, 8, 1), plain_memory(12))
    result = solve(instance, "best", time_limit=60, workers=1)
    assert (result.method, result.status, result.bubble) == ("best", Status.OPTIMAL, 18)
    assert [entry.seconds for entry in result.log] == sorted(entry.seconds for entry in result.log)


def test_best_costs_no_more_than_the_heuristics_where_operations_overlap() -> None:
    instance = Instance.uniform(
        devices=2,
        microbatches=8,
        forward=4,
        backward=4,
        weight=2,
        overlapped=8,
        placement="bidirectional",
    )
    result = solve(instance, "best", effort=2, workers=1)
    assert validate(instance, result.schedule) == []
    assert result.cost <= min(solve(instance, m).cost for m in ("dualpipe", "list")) < 70


@settings(max_examples=60, deadline=None)
@given(st.one_of(instances(max_microbatches=6), wide_instances(max_microbatches=6)), st.integers(0, 2**31))
def test_a_rule_dispatches_microbatches_that_differ_in_any_sequence(instance: Instance, seed: int) -> None:
    instance = classed(instance, seed)
    queues, random = queues_of(instance), np.random.default_rng(seed)
    graph = event_graph_of(instance)
    state = dispatch_state_for(queues, graph)
    weights = random.normal(size=first_weights(queues, 1.0).shape)
    sequences = ALIKE
    if not instance.alike:
        sequences = np.tile(random.permutation(instance.microbatches), (2 * instance.stages, 1))
        sequences[random.integers(len(sequences)) :] = random.permutation(instance.microbatches)
    says = dispatch(graph, state, weights, sequences, np.inf)
    if says == np.inf:
        return
    schedule = retime(instance, order_of_positions(queues, graph, Positions(state.item, state.joined)))
    assert validate(instance, schedule) == []
    if instance.barrier is None:
        assert cost(schedule) <= says
    assert dispatch(graph, state, weights, sequences, says) == says


def differing(lengths: Sequence[int], devices: int, comm: int) -> Instance:
    """F, B and W take a length each; memory holds the longest microbatches, one for each device."""
    classes = [
        MicrobatchClass(1, ticks, ticks, ticks, None, Memory(2 * ticks, -ticks, -ticks)) for ticks in lengths
    ]
    return Instance.uniform(
        devices=devices,
        placement="linear",
        forward=1,
        backward=1,
        weight=1,
        comm=comm,
        memory=Memory(2, -1, -1, 2 * sum(sorted(lengths)[-devices:])),
        objective="makespan",
        classes=classes,
    )


@pytest.mark.parametrize(
    ("lengths", "optimum"), [((20, 25, 16, 10, 14, 9), 302), ((18, 34, 22, 35, 21, 13, 28), 541)]
)
def test_the_optimum_of_a_few_microbatches_that_differ_is_found(
    lengths: tuple[int, ...], optimum: int
) -> None:
    instance = differing(lengths, 3, 1)
    assert solve(instance, "improve", effort=3, workers=1).cost == optimum
    proven = solve(instance, "best", effort=20, workers=1)
    assert (proven.cost, proven.bound) == (optimum, optimum)


def test_a_rule_search_finds_a_better_sequence_than_those_it_begins_with() -> None:
    instance = differing([20, 25, 16, 10, 14, 9, 31, 12], 4, 1)
    queues, graph = queues_of(instance), event_graph_of(instance)
    state, weights = (
        dispatch_state_for(queues, graph),
        np.repeat(first_weights(queues, 17.0)[None], 3, axis=0),
    )
    sequences = np.tile(np.arange(8), (3, 8, 1))
    first = dispatch(graph, state, weights[0], sequences[0], np.inf)
    changes = numbers(TuneNumbers, DEFAULTS.rules)._replace(reorders=1.0)
    random = np.array([7], np.uint64)
    _, best = tune(graph, state, random, 500, 1.0, np.inf, np.inf, weights, sequences, NO_SHAPES, changes)
    assert dispatch(graph, state, weights[1], sequences[1], np.inf) == best < first
    assert (np.sort(sequences[1]) == np.arange(8)).all()
    assert (weights[1] == first_weights(queues, 17.0)).all()


def test_a_rule_search_finds_a_better_shape_in_which_others_pass_the_longest() -> None:
    instance = differing(GIANT, 4, 1)
    queues, graph = queues_of(instance), event_graph_of(instance)
    state = dispatch_state_for(queues, graph)
    weights = np.repeat(first_weights(queues, 14.0)[None], 3, axis=0)
    rising = sequence_of(instance, "shortest-first")
    shapes = Shapes(rising, np.full((3, SHAPE), 0.5))
    sequences = np.zeros((3, 8, 16), np.int64)
    lay_out(rising, shapes.numbers[0], sequences[0])
    first = dispatch(graph, state, weights[0], sequences[0], np.inf)
    changes = numbers(TuneNumbers, DEFAULTS.rules)._replace(reorders=1.0)
    random = np.array([7], np.uint64)
    _, best = tune(graph, state, random, 300, 1.0, np.inf, np.inf, weights, sequences, shapes, changes)
    assert dispatch(graph, state, weights[1], sequences[1], np.inf) == best < first
    again = np.zeros_like(sequences[1])
    lay_out(rising, shapes.numbers[1], again)
    assert (again == sequences[1]).all()


@pytest.mark.parametrize("microbatches", [2, 3, 7, 40])
def test_every_shape_gives_sequences_of_all_microbatches(microbatches: int) -> None:
    random, sequences = np.random.default_rng(microbatches), np.zeros((6, microbatches), np.int64)
    rising = random.permutation(microbatches)
    for shape in (*random.random((50, SHAPE)), *random.integers(0, 2, (50, SHAPE)).astype(float)):
        lay_out(rising, shape, sequences)
        assert (np.sort(sequences) == np.arange(microbatches)).all()


def test_the_longest_is_passed_at_the_visits_of_the_shape() -> None:
    rising, sequences = np.arange(12), np.zeros((8, 12), np.int64)
    # passed at visits 2 and 6; three long ones ahead of it, one short one first and one last
    lay_out(rising, np.array([0.34, 0.5, 0.4, 0.5, 0.4, 0.5, 0.0, 0.0]), sequences)
    assert sequences[0].tolist() == [0, 8, 9, 10, 11, 2, 3, 4, 5, 6, 7, 1]
    places = [row.tolist().index(11) for row in sequences]
    assert places == [4, 4, 7, 7, 7, 7, 10, 10]


GIANT = (9, 11, 60, 12, 8, 13, 10, 14, 9, 12, 11, 10, 13, 15, 8, 7)


def test_a_rule_runs_microbatches_in_the_sequence_of_each_visit() -> None:
    instance = differing(GIANT, 3, 1)
    queues, graph = queues_of(instance), event_graph_of(instance)
    ahead, behind = list(range(16)), [0, 1, 3, 2, *range(4, 16)]
    sequences = np.array([ahead] * 2 + [behind] * 4)
    state = dispatch_state_for(queues, graph)
    assert dispatch(graph, state, first_weights(queues, 12.0), sequences, np.inf) < np.inf
    order = order_of_positions(queues, graph, Positions(state.item, state.joined))
    for device in range(3):
        kind, _, microbatch = order.operations[order.rows(device)].T
        assert microbatch[kind == OpKind.F].tolist() == sequences[device].tolist()
        assert microbatch[kind == OpKind.B].tolist() == sequences[5 - device].tolist()


def test_one_microbatch_passes_another_on_all_devices_of_a_range() -> None:
    instance = differing(GIANT, 3, 1)
    queues, graph = queues_of(instance), event_graph_of(instance)
    start = in_queue_order(retime(instance, list_order(instance)))
    words, other, random = words_for(graph), mirrored(graph), np.array([7], np.uint64)
    mirror = words_for(other, words)
    load(graph, words, *positions_of(queues, start.order), central_begins(start))
    load_mirror(graph, words, other, mirror)
    moved = set()
    for _ in range(300):
        before = words.item.copy()
        let_pass(graph, words, other, mirror, random, cost_of(graph, words), np.inf)
        moved.add(len(set(graph.arrays.items["home"][words.item[words.item != before]].tolist())))
        order = order_of_positions(queues, graph, Positions(words.item, words.joined))
        assert validate(instance, retime(instance, order)) == []
    assert moved == {0, 1, 2, 3}


def test_short_microbatches_pass_a_long_one_on_their_way() -> None:
    result = solve(differing(GIANT, 4, 1), "improve", effort=3, workers=1)
    order = result.schedule.order
    kind, _, microbatch = order.operations[order.rows(0)].T
    forward, backward = (microbatch[kind == k].tolist().index(2) for k in (OpKind.F, OpKind.B))
    assert forward < backward - 2
    assert result.cost <= 880  # the best schedule that is known with one sequence for all devices costs 906


def test_equal_classes_are_searched_as_one() -> None:
    alike = v_instance(2, 24, (10, 11, 9, 1), plain_memory(8))
    split = dataclasses.replace(alike, classes=[MicrobatchClass(12), MicrobatchClass(12, forward=10)])
    starts = [in_queue_order(retime(one, list_order(one))) for one in (alike, split)]
    folds = [fold(start) for start in starts]
    assert folds[0] is not None
    assert folds[1] is not None
    assert folds[1].schedule.instance == folds[0].schedule.instance
    assert folds[1].unfold(folds[1].schedule.order) == starts[1]
    results = [
        solve(one, "improve", effort=0.05, workers=1, warm_start=start)
        for one, start in zip((alike, split), starts, strict=True)
    ]
    assert results[0].schedule.order == results[1].schedule.order


def test_a_rule_that_counts_delays_fills_gaps_with_w_that_fit() -> None:
    instance = differing([30, 10, 40, 20, 15, 50, 12, 33], 4, 1)
    queues, sequences = queues_of(instance), np.arange(8)[None]
    graph = event_graph_of(instance)
    state = dispatch_state_for(queues, graph)
    weights = first_weights(queues, 17.0, hasty=True)
    careless, careful = weights.copy(), weights.copy()
    careless[-1, DELAYING], careful[-1, DELAYING] = 0.0, 1.0
    at_once = dispatch(graph, state, careless, sequences, np.inf)
    assert dispatch(graph, state, careful, sequences, np.inf) < at_once < np.inf
