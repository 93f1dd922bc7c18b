"""Where devices have many stages, candidates come by how many layers the later stages of a device have together."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import islice

import pytest
from helpers.handmade_plans import full
from helpers.random_models import alike_cases, cases, configuration, taken, taken_from
from helpers.schedules import by_heuristics
from helpers.small_models import all_cuts
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tightpipe import Placement
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.costs import Objective
from tightpipe.model.metrics import cost
from tightpipe.params.budget import Budget
from tightpipe.params.solve_params import params_from_dict
from tightpipe.planning import Batch, Cluster, Layer, Model, PlanningProblem, SearchSpace
from tightpipe.planning.candidate import bytes_lacking, instance_of
from tightpipe.planning.candidates_by_list import device_stages, least_sum
from tightpipe.planning.candidates_by_table import Tabled, kind_of
from tightpipe.planning.cluster import Gradients, Host
from tightpipe.planning.device_bound_kernel import NEVER
from tightpipe.planning.partition_kernel import JOINED, TURNED
from tightpipe.planning.partitions import partitions_of, relaxed_candidate
from tightpipe.registry.starts import schedule_of

Case = tuple[PlanningProblem, Placement]
BLOCK = Layer("block", 10, 12, 8, activation=8, weight_activation=2, recompute=full(10, 1), parameters=1)


def joined(case: Case) -> tuple[Tabled, bool]:
    """Return the candidates of a case by joined stages, and whether all of them come."""
    problem, placement = case
    asked = configuration(problem, placement)
    assume(asked.joined is not None)  # a model with hardly more layers than stages may have no usual layer
    assert asked.joined is not None
    return Tabled(asked, JOINED if placement.name == "loop" else TURNED), asked.joined.is_exact


def without_recomputation(case: Case) -> Case:
    problem, placement = case
    return replace(problem, space=replace(problem.space, recompute=())), placement


def layers_of(blocks: int, head: int = 3) -> Model:
    first, last = replace(BLOCK, name="embedding", backward=0), replace(BLOCK, name="head", forward=10 * head)
    return Model((first, *(replace(BLOCK, name=f"block {k}") for k in range(blocks)), last))


@given(alike_cases())
@settings(max_examples=40)
def test_no_bound_is_above_that_of_a_candidate_to_come(case: Case) -> None:
    case = without_recomputation(case)
    asked = configuration(*case)
    devices = device_stages(asked, asked.arrays())  # all stages count one by one
    every = [candidate.cuts for _, candidate in taken(*case)]
    own = {cuts: max(device.ways(cuts)[0].bound for device in devices) for cuts in every}
    partitions, _ = joined(case)
    for _ in range(12):
        assert partitions.bound <= min(own.values(), default=NEVER)
        found = partitions.take()
        if found is None:
            break
        own.pop(found.cuts, None)


@given(alike_cases(), st.booleans())
@settings(max_examples=60)
def test_no_bound_is_above_that_of_a_candidate_whose_activations_leave(case: Case, again: bool) -> None:
    """All that fits counts stage by stage, and then the largest of the joined stages fits, too."""
    problem, placement = case if again else without_recomputation(case)
    assume(problem.cluster.memory is not None)
    layers = (replace(layer, offload=layer.activation) for layer in problem.model.layers)
    cluster = replace(problem.cluster, host=Host(Fraction(4), Fraction(4)))
    problem = replace(problem, model=Model(tuple(layers)), cluster=cluster)
    partitions, _ = joined((problem, placement))
    asked = configuration(problem, placement)
    devices = device_stages(asked, asked.arrays())
    for cuts in islice(all_cuts(len(problem.model.layers), placement.stages), 60):
        ways = [device.ways(cuts) for device in devices]
        if all(ways):
            assert partitions.bound <= max(found[0].bound for found in ways)


@pytest.mark.parametrize(("memory", "fits"), [(59, False), (60, True)])
def test_the_largest_of_the_joined_stages_has_to_fit(memory: int, fits: bool) -> None:
    """Of 14 layers in 8 stages, some share a stage, whose F takes 60 bytes; all of them may leave then."""
    layers = tuple(Layer(f"{k}", 10, 10, 10, activation=30, offload=30) for k in range(14))
    cluster = Cluster((2,), memory, host=Host(Fraction(8), Fraction(8)))
    problem = PlanningProblem(Model(layers), cluster, Batch(4), SearchSpace(("wave",)))
    partitions = Tabled(configuration(problem, Placement("wave", 2, 4)), TURNED)
    assert (partitions.bound < NEVER) == fits


@given(alike_cases())
@settings(max_examples=40)
def test_each_partition_of_equal_layers_comes_once_in_ascending_order(case: Case) -> None:
    """A few come that are impossible: joined ones have an F and a B, and state is rounded up once for them.

    Where few stages stay gathered, joined ones count with equal parameters.
    """
    problem, placement = case = without_recomputation(case)
    partitions, is_exact = joined(case)
    assume(is_exact)
    found = list(taken_from(partitions))
    bounds, cuts = [bound for bound, _ in found], [candidate.cuts for _, candidate in found]
    assert bounds == sorted(bounds)
    assert len(cuts) == len(set(cuts))
    assert set(cuts) <= set(all_cuts(len(problem.model.layers), placement.stages))
    expected = {candidate.cuts for _, candidate in taken(problem, placement)}
    assert expected <= set(cuts)
    for _, other in found:
        possible = all(problem.model.is_possible(*stage) for stage in other.stages)
        if possible and other.cuts not in expected:
            stages, lacking = placement.stages_per_device, max(bytes_lacking(problem, other))
            assert lacking > 0
            assert lacking <= 3 * stages or problem.cluster.sharding.gathers_again(stages)


@given(alike_cases())
@settings(max_examples=40)
def test_no_bound_of_joined_stages_is_above_a_schedule(case: Case) -> None:
    problem, placement = case
    partitions, is_exact = joined(case)
    first = partitions.bound
    for _, candidate in islice(taken(problem, placement), 4):
        instance = instance_of(problem, candidate)
        for schedule in by_heuristics(instance):
            assert first <= cost(schedule)
    found = [partitions.take() for _ in range(20)]
    if found[0] is not None and not is_exact:  # some candidates are never taken
        assert partitions.bound == first


@pytest.mark.parametrize(("name", "chunks"), [("loop", 3), ("wave", 4), ("loop", 5)])
def test_the_bound_of_many_chunks_is_above_the_work_alone(name: str, chunks: int) -> None:
    """The last device waits for the first microbatch, which has to pass a layer on each device before."""
    problem = PlanningProblem(layers_of(60), Cluster((8,)), Batch(16))
    asked = configuration(problem, Placement(name, 8, chunks))
    partitions = partitions_of(asked)
    assert isinstance(partitions, Tabled)
    assert partitions.bound > least_sum(asked)


def test_a_model_of_200_layers_is_cut_into_48_stages() -> None:
    problem = PlanningProblem(layers_of(198), Cluster((16,), 500), Batch(32))
    asked = configuration(problem, Placement("loop", 16, 3))
    partitions = partitions_of(asked)
    first, second = partitions.take(), partitions.take()
    relaxed = relaxed_candidate(asked, int(1.1 * partitions.bound), 1.5)
    assert first is not None
    assert second is not None
    assert relaxed is not None
    assert first != second
    for candidate in (first, second, relaxed):
        assert max(bytes_lacking(problem, candidate)) == 0
        assert partitions.bound <= cost(schedule_of(instance_of(problem, candidate), HEURISTICS["list"]))


def test_stages_are_not_joined_where_their_layers_differ() -> None:
    layers = [replace(BLOCK, forward=10 + k % 2) for k in range(60)]
    problem = PlanningProblem(Model(tuple(layers)), Cluster((4,)), Batch(8))
    assert kind_of(configuration(problem, Placement("loop", 4, 3))) is None


def test_the_bound_is_exact_where_a_further_table_finds_candidates_again() -> None:
    """Each layer more in the first stage takes a tick longer to gather before the step begins."""
    layers = tuple(Layer(f"{k}", 1, 1, 1, parameters=2) for k in range(6))
    cluster = Cluster((1,), gradients=Gradients(2, gathered=Fraction(1)))
    space = SearchSpace(("loop",), objective=Objective.STEP)
    problem = PlanningProblem(Model(layers), cluster, Batch(1), space)
    taken_in_turn = list(taken(problem, Placement("loop", 1, 2)))
    assert [bound for bound, _ in taken_in_turn] == [19, 20, 21, 22, 23]
    assert [candidate.cuts[1] for _, candidate in taken_in_turn] == [1, 2, 3, 4, 5]


@given(cases())
@settings(max_examples=40)
def test_candidates_that_are_completed_at_once_are_the_same_ones(case: Case) -> None:
    """Of many beginnings with the least bound one is completed, which changes neither bounds nor what comes."""
    problem, placement = case
    asked = configuration(problem, placement)
    kind = kind_of(asked)
    if kind is None or asked.has_no_cuts:
        return
    at_once = Budget(params=params_from_dict({"plan": {"tied": 1}}))
    usual, quick = Tabled(asked, kind), Tabled(asked, kind)
    bounds: list[tuple[int, int]] = []
    found = [], []  # type: ignore[var-annotated]
    while True:
        bounds.append((usual.bound, quick.bound))
        one, other = usual.take(), quick.take(at_once)
        found[0].append(one)
        found[1].append(other)
        if one is None or other is None:
            break
    assert [a for a, _ in bounds] == [b for _, b in bounds]
    assert set(found[0]) == set(found[1])
