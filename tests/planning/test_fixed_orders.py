"""Where schedules have fixed orders, bounds use what these say, and a candidate's cost is that of its orders."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import pytest
from helpers.random_models import cases, taken
from helpers.small_models import all_cuts, recomputable
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import Placement
from tightpipe.base.errors import InputError, NoScheduleError
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.costs import Objective
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import cost
from tightpipe.model.orders import accepted, order_of
from tightpipe.model.simulate import retime
from tightpipe.planning import Batch, Candidate, Cluster, Layer, Model, PlanningProblem, SearchSpace, plan
from tightpipe.planning.candidate import instance_of
from tightpipe.planning.candidate_pool import CandidatePool
from tightpipe.planning.cluster import FULL_SPEED, Gradients, Speed
from tightpipe.planning.fixed_orders import fixed_orders, orders_of, ramps_of
from tightpipe.planning.gathers import step_ticks, with_gathers
from tightpipe.planning.sharding import Sharding

METHODS = {"linear": "1f1b", "loop": "interleaved-1f1b"}
KINDS = [("linear", 1), ("linear", 2), ("loop", 2), ("loop", 3)]


def in_fixed_orders(problem: PlanningProblem, placement: Placement) -> PlanningProblem:
    return replace(problem, space=replace(problem.space, methods=(METHODS[placement.name],)))


def by_method(instance: Instance) -> int | None:
    """The cost of an instance by the method of its placement, if that has a schedule."""
    if instance.infeasibility() is None:
        with suppress(NoScheduleError):
            order = order_of(instance, HEURISTICS[METHODS[instance.placement.name]].order)
            return cost(retime(instance, order))
    return None


SPEEDS = st.lists(st.sampled_from((FULL_SPEED, (Fraction(1, 2), Fraction(2, 3), Fraction(1, 4)))), max_size=3)


@given(cases(most_layers=7, kinds=KINDS), SPEEDS)
@settings(deadline=None)
def test_no_schedule_costs_less_than_the_bound_of_the_partitions_with_its_cuts(
    case: tuple[PlanningProblem, Placement], speeds: list[Speed]
) -> None:
    problem, placement = in_fixed_orders(*case), case[1]
    if len(speeds) == placement.devices:
        problem = replace(problem, cluster=replace(problem.cluster, speeds=tuple(speeds)))
    bounds = defaultdict[tuple[int, ...], list[int]](list)
    for bound, candidate in taken(problem, placement):
        bounds[candidate.cuts].append(bound)
    for cuts in all_cuts(len(problem.model.layers), placement.stages):
        for recomputed in product(*(recomputable(problem, *stage) for stage in pairwise(cuts))):
            found = None
            with suppress(InputError):
                candidate = Candidate(placement, cuts, recomputed)
                found = by_method(instance_of(problem, candidate))
            if found is not None:
                assert min(bounds[cuts]) <= found


@given(cases(kinds=KINDS))
@settings(deadline=None)
def test_the_least_cost_of_the_orders_is_that_of_the_schedule(
    case: tuple[PlanningProblem, Placement],
) -> None:
    problem, placement = in_fixed_orders(*case), case[1]
    for _, candidate in zip(range(3), (found for _, found in taken(problem, placement)), strict=False):
        instance = instance_of(problem, candidate)
        found = by_method(replace(instance, memory=None))
        least = fixed_orders(problem, instance)[0].ticks
        assert least == (0 if problem.space.objective is Objective.DEVICE_SPAN else found)


BLOCK = Layer("block", 2, 2, 2, activation=3)


def four_devices(**more: object) -> PlanningProblem:
    space = SearchSpace(("linear",), methods=("1f1b",), objective=Objective.MAKESPAN)
    return replace(
        PlanningProblem(Model((BLOCK,) * 8), Cluster((4,)), Batch(6), space),
        **more,  # type: ignore[arg-type]
    )


def test_one_f_one_b_says_what_is_in_flight_on_each_device() -> None:
    ramps = ramps_of(four_devices(), Placement("linear", 4))
    assert ramps is not None
    assert ramps.flight.tolist() == ramps.first.tolist() == ramps.last.tolist() == [[4], [3], [2], [1]]
    assert ramps.turn.tolist() == ramps.wind.tolist() == [[3], [2], [1], [0]]


def test_interleaved_orders_fill_the_first_stage_before_the_second_one() -> None:
    space = SearchSpace(("loop",), methods=("interleaved-1f1b",))
    ramps = ramps_of(four_devices(space=space, batch=Batch(8)), Placement("loop", 4, 2))
    assert ramps is not None
    assert ramps.flight.tolist() == [[7, 4], [5, 4], [4, 3], [4, 1]]


@pytest.mark.parametrize("methods", [None, ("1f1b", "best"), ("list",)])
def test_no_order_is_fixed_where_another_method_may_schedule(methods: tuple[str, ...] | None) -> None:
    asked = four_devices(space=SearchSpace(("linear",), methods=methods))
    assert orders_of(asked, Placement("linear", 4)) == ()


def test_a_bound_of_equal_stages_is_the_cost_of_one_f_one_b() -> None:
    found = plan(four_devices(), time_limit=None)
    assert (found.cost, found.bound) == (6 * 12 + 3 * 12, 6 * 12 + 3 * 12)


def test_a_candidate_is_closed_only_once_all_its_methods_have_scheduled_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With long messages GPipe, if it counts as a fixed order too, takes less than 1F1B."""
    gpipe = HEURISTICS["gpipe"]
    fixed = replace(gpipe, name="gpipe-fixed", fixed=lambda instance: [order_of(instance, gpipe.order)])
    monkeypatch.setitem(HEURISTICS, "gpipe-fixed", fixed)
    space = SearchSpace(("linear",), methods=("1f1b", "gpipe-fixed"), objective=Objective.MAKESPAN)
    asked = four_devices(space=space, cluster=Cluster((4,), comm=5))
    pool = CandidatePool(asked, [], lambda entry: None)
    candidate = Candidate(Placement("linear", 4), (0, 2, 4, 6, 8), ((),) * 4)
    found = pool.look_at(candidate, ["1f1b"])
    assert found is not None
    cheaper = cost(retime(found.instance, order_of(found.instance, gpipe.order)))
    assert (found.bound, found.cost, found.method) == (cheaper, cheaper, "gpipe-fixed")


def test_gathers_decide_among_the_sizes_of_groups() -> None:
    """Without them the smallest groups are the best ones; these change the stage most often."""
    gradients, sharding = Gradients(2, gathered=Fraction(4)), Sharding(Fraction(4), resident=1)
    cluster = Cluster((4,), gradients=gradients, sharding=sharding)
    space = SearchSpace(("loop",), chunks=(2,), methods=("interleaved-1f1b",))
    layers = (Layer("block", 10, 10, 10, parameters=50),) * 8
    asked = PlanningProblem(Model(layers), cluster, Batch(11, data_parallel=2), space)
    found = plan(asked, time_limit=None, workers=1)
    assert found.candidate is not None
    instance = instance_of(asked, found.candidate)
    costs = [
        step_ticks(asked, found.candidate, with_gathers(asked, found.candidate, accepted(instance, order)))
        for order in orders_of(asked, found.candidate.placement)
    ]
    assert (found.cost, found.status) == (min(costs), "optimal")
    assert costs[0] > min(costs)


def test_an_order_is_tried_as_it_is_where_its_counterpart_with_all_operations_does_not_fit() -> None:
    """The F of the frozen layer needs its memory before the other stage has any."""
    layers = (Layer("frozen", 3, 0, 0, activation=10), *(Layer("block", 1, 1, 1, activation=5),) * 3)
    space = SearchSpace(("loop",), chunks=(2,), methods=("interleaved-1f1b",))
    asked = PlanningProblem(Model(layers), Cluster((2,), memory=(10, 15)), Batch(2), space)
    assert plan(asked, time_limit=None, workers=1).status == "optimal"


def test_what_is_in_flight_has_to_fit() -> None:
    """Four microbatches of six bytes are in flight on the first device; no other cut takes fewer."""
    scarce = Cluster((4,), memory=24)
    assert plan(four_devices(cluster=scarce), time_limit=None).cost == 108
    found = plan(four_devices(cluster=replace(scarce, memory=11)), time_limit=None)
    assert (found.status, found.cost) == ("infeasible", None)
