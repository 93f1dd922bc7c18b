"""A plan is found however short the time is: partitions are bounded only as long as there is time for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise

import pytest
from helpers.handmade_plans import alike, full
from helpers.random_models import cases, configuration
from helpers.small_models import known_plans, random_problem
from hypothesis import given

from tightpipe import Placement, Status, validate
from tightpipe.params.budget import UNLIMITED, Budget, TimeUpError
from tightpipe.params.solve_params import params_from_dict
from tightpipe.planning import Batch, Cluster, Layer, Model, PlanningProblem, SearchSpace, plan
from tightpipe.planning.candidate import instance_of
from tightpipe.planning.candidates_by_list import Listed, all_cuts
from tightpipe.planning.candidates_by_table import in_slices
from tightpipe.planning.device_bound_kernel import NEVER
from tightpipe.planning.model_arrays import RecomputeOptions
from tightpipe.planning.partitions import (
    Rushed,
    even_candidates,
    lacks_in_all,
    partitions_of,
    relaxed_candidate,
    rushed_candidate,
)

OVER = Budget(deadline=0.0)
BLOCK = Layer("block", 10, 12, 8, activation=8, weight_activation=1, recompute=full(10, 1), output=1)


def problem_of(layers: int, memory: int | None = None, recompute: bool = False) -> PlanningProblem:
    space = SearchSpace(recompute=("full",) if recompute else ())
    return PlanningProblem(Model((BLOCK,) * layers), Cluster((2,), memory, comm=1), Batch(4), space)


@pytest.mark.parametrize(("name", "chunks"), [("linear", 1), ("v", 2), ("loop", 2), ("wave", 4), ("loop", 3)])
def test_partitions_are_given_up_when_time_is_up(name: str, chunks: int) -> None:
    asked = configuration(problem_of(40, recompute=True), Placement(name, 2, chunks))
    found = partitions_of(asked, OVER)
    assert isinstance(found, Rushed)
    assert found.take(OVER) is not None
    assert found.take(OVER) is None


@given(cases())
def test_the_bound_of_a_rushed_configuration_is_no_larger_than_that_of_all_partitions(
    case: tuple[PlanningProblem, Placement],
) -> None:
    asked = configuration(*case)
    assert Rushed(asked).bound <= partitions_of(asked).bound


@given(cases())
def test_a_rushed_candidate_fits_the_memory(case: tuple[PlanningProblem, Placement]) -> None:
    problem, placement = case
    if placement.stages <= len(problem.model.layers):
        candidate = rushed_candidate(configuration(problem, placement))
        if candidate is not None:
            assert instance_of(problem, candidate).infeasibility() is None


@given(cases())
def test_where_all_devices_together_lack_memory_no_partition_fits(
    case: tuple[PlanningProblem, Placement],
) -> None:
    problem, placement = case
    asked = configuration(problem, placement)
    if lacks_in_all(asked) and placement.stages <= len(problem.model.layers):
        cuts = islice(all_cuts(len(problem.model.layers), placement.stages), 200)
        assert Listed(asked, cuts).bound == NEVER


@given(cases())
def test_a_rushed_candidate_is_found_where_memory_has_no_limit(
    case: tuple[PlanningProblem, Placement],
) -> None:
    """Then only stages without F, B or W are in the way."""
    problem, placement = case
    asked = configuration(replace(problem, cluster=replace(problem.cluster, memory=None)), placement)
    complete = (
        all(problem.model.is_possible(*stage) for stage in pairwise(cuts))
        for cuts in all_cuts(len(problem.model.layers), placement.stages)
    )
    assert (rushed_candidate(asked) is not None) == any(complete)


def test_recomputation_is_as_little_as_memory_allows() -> None:
    """A device has 4 layers of 8 bytes, or of 1 byte if recomputed, and then 7 bytes that B takes."""
    asked = configuration(problem_of(8, 4 * 8 - 2 * 7 + 7, recompute=True), Placement("linear", 2))
    found = rushed_candidate(asked)
    assert found is not None
    assert found.recomputed == alike(((0, 1), (4, 5)))


def test_even_candidates_recompute_as_little_as_fits_or_all() -> None:
    asked = configuration(problem_of(8, 4 * 8 - 2 * 7 + 7, recompute=True), Placement("linear", 2))
    least, every = even_candidates(asked)
    assert least == rushed_candidate(asked)
    assert every.cuts == least.cuts
    assert every.recomputed == alike(((0, 1, 2, 3), (4, 5, 6, 7)))


def test_cuts_are_shifted_until_they_fit() -> None:
    """The first four layers take little time and much memory, so that even work is too much for a device."""
    large = Layer("block", 1, 1, 1, activation=20, weight_activation=4, output=1)
    small = Layer("block", 30, 30, 30, activation=1, weight_activation=1, output=1)
    model = Model((large,) * 4 + (small,) * 4)
    problem = PlanningProblem(model, Cluster((2,), 50, comm=1), Batch(4), SearchSpace())
    found = rushed_candidate(configuration(problem, Placement("linear", 2)))
    assert found is not None
    assert found.cuts == (0, 2, 8)


def test_the_work_on_options_tables_and_relaxed_candidates_looks_at_the_clock() -> None:
    problem = problem_of(12, recompute=True)
    asked = configuration(problem, Placement("v", 2))
    with pytest.raises(TimeUpError):
        RecomputeOptions(problem, 12, OVER)
    with pytest.raises(TimeUpError):
        relaxed_candidate(asked, NEVER, 1.0, OVER)
    with pytest.raises(TimeUpError):
        partitions_of(asked).take(OVER)
    with pytest.raises(TimeUpError):
        in_slices(10, OVER, lambda begin, end: None)


def test_slices_cover_all_numbers_once() -> None:
    seen: list[int] = []
    in_slices(5000, UNLIMITED, lambda begin, end: seen.extend(range(begin, end)))
    assert seen == list(range(5000))


FITTING = [known.seed for known in known_plans() if known.cost is not None][:25]


@pytest.mark.parametrize("grace", [0.0, 0.5])
def test_a_plan_that_fits_is_found_without_any_time(grace: float) -> None:
    """Even if no partition is bounded at all, few problems whose memory is scarce are left without a plan."""
    params = params_from_dict({"plan.bounding_least": grace})
    left = []
    for seed in FITTING:
        problem = random_problem(seed)
        found = plan(problem, time_limit=0, workers=1, params=params)
        assert found.status is not Status.INFEASIBLE
        if found.schedule is None:
            left.append(seed)
        else:
            assert validate(found.schedule.instance, found.schedule) == []
    assert len(left) <= (0 if grace else len(FITTING) // 8), left


def test_one_device_with_many_stages_that_recompute_gets_a_plan_in_time() -> None:
    """Four stages with some ten ways to recompute each have too many ways in thousands of partitions."""
    space = SearchSpace(("wave",), recompute=("full",))
    layers = tuple(
        replace(BLOCK, name=f"block {k}", forward=100 + k, activation=80 + k, recompute=full(100 + k, 8))
        for k in range(34)
    )
    problem = PlanningProblem(Model(layers), Cluster((1,), 10_000, comm=1), Batch(4), space)
    found = plan(problem, time_limit=2, workers=1)
    assert found.schedule is not None
    assert found.seconds < 20  # a generous limit for a busy machine


def test_a_cluster_that_lacks_memory_is_recognised_without_any_time() -> None:
    problem = problem_of(12, memory=12, recompute=True)
    assert partitions_of(configuration(problem, Placement("wave", 2, 4)), OVER).bound < NEVER
    problem = problem_of(12, memory=5, recompute=True)
    assert partitions_of(configuration(problem, Placement("wave", 2, 4)), OVER).bound == NEVER
    assert plan(problem, time_limit=0).status is Status.INFEASIBLE


@pytest.mark.parametrize(("name", "chunks"), [("linear", 1), ("v", 2), ("loop", 2), ("wave", 4)])
def test_what_does_not_fit_is_named_however_short_the_time_is(name: str, chunks: int) -> None:
    """All devices together have memory enough, but none of them for the head."""
    head = replace(BLOCK, name="head", activation=205, weight_activation=0, recompute=())
    asked = problem_of(40, memory=200, recompute=True)
    asked = replace(
        asked, model=Model((BLOCK,) * 40 + (head,)), space=SearchSpace((name,), (chunks,), ("full",))
    )
    assert lacks_in_all(configuration(asked, Placement(name, 2, chunks))) == 0
    for seconds in (0, None):
        found = plan(asked, time_limit=seconds)
        assert found.schedule is None
        assert found.reason.count("\n") == 0
    assert found.status is Status.INFEASIBLE
    assert "the fullest device lacks " in found.reason
    assert "bytes to hold one microbatch (device " in found.reason
    assert "head)" in found.reason
