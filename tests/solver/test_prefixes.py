"""Searches over prefixes: never above an optimum, exact where they leave nothing out, ended by every limit."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise, product
from math import ceil
from time import perf_counter
from typing import Any

import pytest
from helpers.exact_cases import plain_memory, uniform, v_instance
from helpers.small_instances import Known, known_optima, small_instance

from tightpipe import Instance, validate
from tightpipe.model.costs import Objective
from tightpipe.model.graph import NO_LIMIT
from tightpipe.model.graph_arrays import arrays_of
from tightpipe.model.metrics import cost
from tightpipe.model.result import LogEntry, Proof, ignore
from tightpipe.params.budget import UNLIMITED, Budget
from tightpipe.params.solve_params import DEFAULTS
from tightpipe.registry.starts import warm_starts
from tightpipe.settings.instances import load_realistic
from tightpipe.solver.bounds import destructive
from tightpipe.solver.bounds.destructive import prefix_bound
from tightpipe.solver.bounds.formulas import best_bound
from tightpipe.solver.engine.portfolio import alone
from tightpipe.solver.engine.run import Incumbent
from tightpipe.solver.outcome import End
from tightpipe.solver.prefixes.extend_kernel import extend
from tightpipe.solver.prefixes.few_devices import few_devices, is_whole, start_windows
from tightpipe.solver.prefixes.search import (
    PrefixProofs,
    PrefixSearch,
    Question,
    Questions,
    answer_to,
    search_prefixes,
)
from tightpipe.solver.prefixes.table_kernel import FULL, ROWS, empty_table
from tightpipe.solver.prefixes.tables import first_table

MOST = 10**6
ONE_CLASS, TWO_CLASSES = (
    [line for line in known_optima() if len(small_instance(line.seed).placement.routes) == classes]
    for classes in (1, 2)
)


def searched(
    instance: Instance, target: int, devices: tuple[int, ...], most: int = MOST, floor: int = NO_LIMIT
) -> PrefixSearch:
    windows = start_windows(instance, target)
    return search_prefixes(instance, windows, devices, UNLIMITED.within(20), most, floor=floor)


def every_set(devices: int) -> list[tuple[int, ...]]:
    return [some for size in range(1, devices + 1) for some in combinations(range(devices), size)]


def ways(line: Known) -> list[tuple[int, int]]:
    """Targets above the optimum, as differences, each with a floor of the search."""
    return [(0, NO_LIMIT), (line.seed % 11 * 5, 0)]


@pytest.mark.parametrize("lines", [ONE_CLASS[2::9], TWO_CLASSES[::3]], ids=["one class", "two classes"])
def test_no_set_of_devices_refutes_an_optimum(lines: list[Known]) -> None:
    asked = 0
    for line in lines:
        instance = small_instance(line.seed)
        for devices, (more, floor) in product(every_set(instance.devices), ways(line)):
            answer = searched(instance, line.optimum + more, devices, floor=floor)
            assert answer.bound is not None
            assert answer.bound <= line.optimum, (line, devices, more)
            asked += 1
    assert asked > 1000


def test_with_a_floor_the_last_device_proves_more_under_a_large_target() -> None:
    better = 0
    for line in ONE_CLASS[::20]:
        instance = small_instance(line.seed)
        last = (instance.devices - 1,)
        more = searched(instance, 2 * line.optimum, last, floor=0).bound
        less = searched(instance, 2 * line.optimum, last).bound
        assert more is not None
        assert less is not None
        assert more >= less, line
        better += more > less
    assert better > 20


def whole_with_one_frame(line: Known) -> bool:
    """Whether a search over all devices leaves nothing out: neither waiting for links nor where frames begin."""
    instance = small_instance(line.seed)
    free = instance.costs.link_occupancy == 0 and instance.objective is Objective.MAKESPAN
    return free and is_whole(arrays_of(instance), range(instance.devices))


@pytest.mark.parametrize("lines", [ONE_CLASS, TWO_CLASSES], ids=["one class", "two classes"])
def test_all_devices_together_are_exact(lines: list[Known]) -> None:
    """Which fails if any rule is left out: the bound is smaller then, or the schedule is not valid."""
    exact = [line for line in lines if whole_with_one_frame(line)]
    for line in exact[::2]:
        instance = small_instance(line.seed)
        devices = tuple(range(instance.devices))
        found = searched(instance, line.optimum, devices)
        assert found.bound == line.optimum, line
        assert found.schedule is not None, line
        assert cost(found.schedule) == line.optimum, line
        assert validate(instance, found.schedule) == []
        windows = start_windows(instance, line.optimum - 1)
        if windows.feasible:
            answer = search_prefixes(instance, windows, devices, UNLIMITED.within(20), MOST)
            assert answer == PrefixSearch(line.optimum, answer.extended), line
    assert len(exact) > 150


def test_few_devices_stand_for_the_path_between_their_operations() -> None:
    instance = v_instance(4, 6, (10, 20, 5, 3), plain_memory(6))
    few = few_devices(start_windows(instance, 500), (3, 1)).queues
    assert few["device"].tolist() == [1, 0, 0, 1, 1, 0, 0, 1]
    assert few["backward"].tolist() == [0] * 4 + [1] * 4
    # F2 and two messages lie between F1 and F3; F7, B7 and two messages between F6 and B6
    assert few["lag"].tolist() == [16, 0, 16, 36, 26, 0, 26, 0]


def test_each_class_of_microbatches_has_a_path_of_its_own() -> None:
    instance = uniform(4, 6, ([10, 11, 12, 13], [20] * 4, [5] * 4), placement="bidirectional", comm=3)
    problem = few_devices(start_windows(instance, 600), (3, 1))
    few = problem.queues
    assert few["path"].tolist() == [0] * 4 + [1] * 4
    assert few["device"].tolist() == [1, 0, 0, 1, 0, 1, 1, 0]
    assert few["duration"].tolist() == [11, 13, 20, 20, 10, 12, 20, 20]
    # F2 and two messages lie between F1 and F3, and F1 and two messages between F0 and F2
    assert few["lag"].tolist() == [18, 0, 26, 0, 17, 2 * 3 + 13 + 20, 26, 0]
    assert few["count"].tolist() == [3] * 8
    assert problem.paths[["begin", "end", "columns"]].tolist() == [(0, 4, 3), (4, 8, 3)]


def under_way(instance: Instance, devices: tuple[int, ...]) -> list[int]:
    """The most microbatches of each class that can be under way on some devices."""
    return few_devices(start_windows(instance, 10**4), devices).paths["columns"].tolist()


def test_memory_limits_how_many_microbatches_are_under_way() -> None:
    scarce = v_instance(4, 9, (10, 12, 8, 1), plain_memory(7))
    assert under_way(scarce, (0,)) == [3]
    assert under_way(scarce, (3,)) == [3]
    assert under_way(uniform(4, 9, (10, 12, 8)), (0,)) == [9]


def test_memory_limits_each_class_of_microbatches_under_way() -> None:
    scarce = uniform(4, 12, (10, 12, 8), placement="bidirectional", memory=plain_memory(7))
    assert under_way(scarce, (0,)) == [3, 3]
    assert under_way(scarce, (1, 3)) == [3, 3]
    assert under_way(uniform(4, 12, (10, 12, 8), placement="bidirectional"), (0,)) == [6, 6]


def test_limits_end_a_search_without_an_answer() -> None:
    instance = v_instance(3, 6, (10, 12, 8, 1), plain_memory(8))
    assert searched(instance, 400, (0, 1), most=20).bound is None
    late = search_prefixes(instance, start_windows(instance, 400), (0, 1), UNLIMITED.within(0), MOST)
    assert late.bound is None
    assert searched(instance, 400, (0, 1)).bound is not None


def test_a_table_without_room_says_so() -> None:
    instance = v_instance(2, 4, (10, 12, 8, 1), plain_memory(8))
    problem = few_devices(start_windows(instance, 300), (0, 1))
    first = first_table(problem)
    after = empty_table(4, len(problem.queues), 2, 4)
    assert extend(problem, first, 0, 1, after) == 1
    crowded = empty_table(1, len(problem.queues), 2, 4)
    while after.counter[ROWS] < 3:
        before, after = after, empty_table(64, len(problem.queues), 2, 4)
        extend(problem, before, 0, int(before.counter[ROWS]), after)
    assert extend(problem, before, 0, int(before.counter[ROWS]), crowded) == FULL


def simulated(devices: int, proven: dict[tuple[int, ...], int], longest: int = 1640) -> list[Question]:
    """The questions, where each set of devices proves a number, by default 0. The gap is 1000 to 1640.

    Searches with targets above `longest` end early.
    """
    questions, asked = Questions(devices, 1000, 1640, DEFAULTS.prefixes), []
    while (question := questions.next(1640)) is not None:
        asked.append(question)
        most = max(proven.get(some, 0) for some in every_set(devices) if {*some} <= {*question.devices})
        answer = None if question.target > longest else min(most, question.target + 1)
        questions.learn(question, PrefixSearch(answer, 1))
        assert len(asked) < 1000
    return asked


def test_the_best_device_is_joined_by_others() -> None:
    asked = simulated(5, {(2,): 1100, (1, 2): 1300, (1, 2, 3): 1401})
    sizes = [len(question.devices) for question in asked]
    assert sizes == sorted(sizes)
    assert {question.devices[0] for question in asked if len(question.devices) > 1} == {2}
    assert {question.devices[:2] for question in asked if len(question.devices) > 2} == {(2, 1)}
    assert {question.floor for question in asked} == {360}
    again = [one.devices for one, other in pairwise(asked) if one.devices == other.devices]
    assert {*again} == {(2,), (2, 1), (2, 1, 3)}  # whose first target is refuted
    assert len({question.devices for question in asked}) == len(asked) - len(again)


def test_targets_are_farther_and_farther_from_the_bound_while_they_are_refuted() -> None:
    targets = [question.target for question in simulated(1, {(0,): 1500})]
    assert targets == [1040, 1190, 1639]
    assert [question.target for question in simulated(1, {(0,): 1100})] == [1040, 1190]


def test_a_search_that_ends_early_is_followed_by_targets_closer_to_the_bound() -> None:
    targets = [question.target for question in simulated(1, {(0,): 1500}, longest=1100)]
    assert targets[:2] == [1040, 1190]  # refuted, and too much
    assert targets[2:] == [1078, 1106]  # refuted, and too much again
    assert [question.target for question in simulated(1, {(0,): 1500}, longest=1130)][2:] == [
        1078,
        1106,
        1127,
    ]


def test_a_larger_target_does_not_take_back_what_a_smaller_one_has_proven() -> None:
    questions = Questions(2, 1000, 1640, DEFAULTS.prefixes)
    for bound in (1041, 1000):
        question = questions.next(1640)
        assert question is not None
        assert question.devices == (1,)
        questions.learn(question, PrefixSearch(bound, 5))
    following = questions.next(1640)
    assert following is not None
    assert (following.devices, following.target) == ((0,), 1041 + ceil((1639 - 1041) / 16))


def test_the_device_that_proves_more_by_itself_joins_first() -> None:
    asked = simulated(4, {(2,): 1100, (0,): 1050, (1,): 500, (3,): 400})
    assert [question.devices for question in asked if len(question.devices) == 2] == [(2, 0), (2, 1), (2, 3)]


def test_a_device_more_has_to_raise_the_bound_by_a_share_of_the_gap() -> None:
    assert max(len(question.devices) for question in simulated(9, {(2,): 1100, (1, 2): 1119})) == 2
    assert max(len(question.devices) for question in simulated(9, {(2,): 1100, (1, 2): 1120})) == 3


def test_more_than_four_devices_are_not_all_asked_where_none_proves_anything() -> None:
    assert {len(question.devices) for question in simulated(5, {})} == {1}
    assert {len(question.devices) for question in simulated(4, {})} == {1, 4}


def test_searches_that_end_early_end_the_questions() -> None:
    questions, asked = Questions(9, 1000, 1640, DEFAULTS.prefixes), 0
    while (question := questions.next(1640)) is not None:
        questions.learn(question, PrefixSearch(None, 0))
        asked += 1
    assert asked == DEFAULTS.prefixes.failures


def test_long_searches_that_prove_less_end_the_sets_of_a_size() -> None:
    questions, asked = Questions(9, 1000, 1640, DEFAULTS.prefixes), []
    while (question := questions.next(1640)) is not None:
        asked.append(question.devices)
        bound = min(question.target + 1, 1100 if 8 in question.devices else 500)
        questions.learn(question, PrefixSearch(bound, 5 if question.devices == (8,) else 1001))
    assert asked[: 2 + DEFAULTS.prefixes.failures] == [(8,), (8,), (7,), (6,), (5,)]
    assert len(asked[5]) == 2


@pytest.mark.parametrize(("name", "optimum"), [("long-4x16-small", 180510), ("recompute-4x12-tight", 126420)])
def test_scarce_memory_is_closed(name: str, optimum: int, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[LogEntry] = []
    answers: list[int | None] = []

    def answered(*question: Any) -> tuple[PrefixSearch, Proof]:
        found = answer_to(*question)
        answers.append(found[0].bound)
        return found

    monkeypatch.setattr(destructive, "answer_to", answered)
    instance = load_realistic()[name].instance()
    bound = prefix_bound(instance, optimum, UNLIMITED.within(60), progress=told.append)
    assert [answer == optimum for answer in answers].index(True) == len(answers) - 1  # nothing is left to ask
    assert (bound.value, bound.proof, bound.name) == (optimum, Proof.PREFIXES, "prefixes")
    assert [entry.bound for entry in told] == sorted({entry.bound for entry in told})


def two_directions(objective: str) -> Instance:
    memory = plain_memory(2)
    entries = {"placement": "bidirectional", "comm": 1, "memory": memory, "objective": objective}
    return uniform(4, 8, (10, 14, 6), **entries)


def test_scarce_memory_for_two_directions_is_closed() -> None:
    """Where the best formula says little more than half of the optimum."""
    instance = two_directions("makespan")
    bound = prefix_bound(instance, 633, UNLIMITED.within(60))
    assert (bound.value, bound.proof) == (633, Proof.PREFIXES)
    assert best_bound(instance).value < 350


def test_a_device_that_has_done_its_work_does_not_wait_for_the_others() -> None:
    """Its span ends with its own work, although the device where the last microbatch began still has some."""
    instance = two_directions("device_span")
    assert prefix_bound(instance, 600, UNLIMITED.within(60)).value == 588
    forwards = Instance.uniform(
        devices=2, microbatches=3, forward=[4, 1], backward=0, weight=0, comm=1, placement="linear"
    )
    assert searched(forwards, 12, (0, 1)).bound == 12  # the last F of device 1 begins at tick 13


def test_proofs_by_prefixes_close_the_gap_of_two_directions() -> None:
    instance = two_directions("makespan")
    incumbent = Incumbent(warm_starts(instance)[0][1], 300, None, perf_counter(), ignore)
    alone(UNLIMITED.within(20), incumbent, partial(PrefixProofs, instance, incumbent, 1.0, 1.0))
    assert incumbent.bound == cost(incumbent.schedule) == 633


@pytest.mark.parametrize(("pace", "end"), [(1.0, End.UNSUITED), (DEFAULTS.prefixes.pace, End.FINISHED)])
def test_proofs_say_whether_any_search_came_to_an_end(pace: float, end: End) -> None:
    """At a pace of one prefix a second, every search has less than the first one."""
    start = warm_starts(two_directions("makespan"))[0][1]
    incumbent = Incumbent(start, cost(start) - 1, None, perf_counter(), ignore)
    params = replace(DEFAULTS, prefixes=replace(DEFAULTS.prefixes, pace=pace))
    budget = Budget(effort=100.0, params=params)
    begin = partial(PrefixProofs, start.instance, incumbent, 1.0, 0.001)
    assert alone(budget, incumbent, begin).end is end


def test_an_answer_names_its_proof() -> None:
    instance = v_instance(2, 4, (10, 12, 8, 1), plain_memory(8))
    few = Question((0,), 245)
    assert answer_to(instance, Question((0,), 100), UNLIMITED, MOST)[1] is Proof.SHAVING
    assert answer_to(instance, few, UNLIMITED, MOST)[1] is Proof.PREFIXES
