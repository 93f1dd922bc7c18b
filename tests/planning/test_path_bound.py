"""Paths bound all cuts of fixed orders: compared with all candidates of tiny models, and with a formula."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from helpers.random_models import cases, configuration
from helpers.small_models import all_cuts, recomputable
from hypothesis import given, settings

from tightpipe import Placement
from tightpipe.base.errors import InputError, NoScheduleError
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost
from tightpipe.model.orders import order_of
from tightpipe.model.simulate import retime
from tightpipe.params.budget import Allowance
from tightpipe.planning import Batch, Candidate, Cluster, Layer, Model, PlanningProblem, SearchSpace
from tightpipe.planning.candidate import instance_of
from tightpipe.planning.device_bound_kernel import NEVER
from tightpipe.planning.fixed_orders import order_for_paths
from tightpipe.planning.path_bound import PathBound, longest_path

METHODS = {"linear": "1f1b", "loop": "interleaved-1f1b"}
KINDS = [("linear", 1), ("loop", 2)]


def in_fixed_orders(problem: PlanningProblem, placement: Placement) -> PlanningProblem:
    space = replace(problem.space, methods=(METHODS[placement.name],), placements=(placement.name,))
    return replace(problem, space=space)


def least_cost(problem: PlanningProblem, placement: Placement) -> int:
    """The least cost of all candidates, by enumeration; `NEVER` if none has a schedule."""
    least, method = NEVER, HEURISTICS[METHODS[placement.name]]
    for cuts in all_cuts(len(problem.model.layers), placement.stages):
        for recomputed in product(*(recomputable(problem, *stage) for stage in pairwise(cuts))):
            with suppress(InputError, NoScheduleError):
                instance = instance_of(problem, Candidate(placement, cuts, recomputed))
                if instance.infeasibility() is None:
                    least = min(least, cost(retime(instance, order_of(instance, method.order))))
    return least


def raised(problem: PlanningProblem, placement: Placement, goal: int, steps: int = 30) -> PathBound | None:
    order = order_for_paths(problem, placement)
    if order is None:
        return None
    budget, found = Allowance(10, 1, 0).begin(), PathBound(configuration(problem, placement), order)
    while steps and found.may_rise and found.bound < goal:
        found.step(goal, budget)
        steps -= 1
    return found


@given(cases(most_layers=6, kinds=KINDS))
@settings(deadline=None, max_examples=15)
def test_no_candidate_costs_less_than_the_bound_of_paths(case: tuple[PlanningProblem, Placement]) -> None:
    """The goal is a fifth above the optimum, so that a wrong bound would pass it."""
    problem, placement = in_fixed_orders(*case), case[1]
    least = least_cost(problem, placement)
    if least < NEVER:
        found = raised(problem, placement, least + least // 5 + 2)
        assert found is None or found.bound <= least


def three_devices(methods: str, devices: int = 3) -> PlanningProblem:
    layers = (Layer("embedding", 1, 0, 1), *(Layer("block", 4, 4, 4),) * 7, Layer("head", 5, 5, 5))
    space = SearchSpace(("linear" if methods == "1f1b" else "loop",), methods=(methods,))
    return PlanningProblem(Model(layers), Cluster((devices,)), Batch(6), space)


@pytest.mark.parametrize(("method", "placement"), [("1f1b", "linear"), ("interleaved-1f1b", "loop")])
def test_the_bound_of_paths_reaches_the_least_cost_of_all_cuts(method: str, placement: str) -> None:
    problem, where = three_devices(method), Placement(placement, 3)
    least = least_cost(problem, where)
    found = raised(problem, where, least)
    assert found is not None
    assert found.bound == least


def test_the_longest_path_of_equal_stages_goes_through_all_devices() -> None:
    problem, placement = three_devices("1f1b"), Placement("linear", 3)
    order = order_for_paths(problem, placement)
    assert order is not None
    found = PathBound(configuration(problem, placement), order)
    times = np.full(3, 10), np.full(3, 20)
    length, path = longest_path(found._instance, found._order, *times)
    assert length == (6 + 2) * 30
    assert path.forwards @ times[0] + path.backwards @ times[1] + path.messages == length


@pytest.mark.parametrize(
    "change",
    [{"cluster": Cluster((3,), comm=2)}, {"batch": Batch(3)}],
)
def test_messages_and_short_batches_are_part_of_paths(change: dict[str, object]) -> None:
    problem = replace(three_devices("1f1b"), **change)  # type: ignore[arg-type]
    least = least_cost(problem, Placement("linear", 3))
    found = raised(problem, Placement("linear", 3), least)
    assert found is not None
    assert found.bound == least


def test_other_methods_have_no_order_of_paths() -> None:
    problem = replace(three_devices("1f1b"), space=SearchSpace(("linear",), methods=None))
    assert order_for_paths(problem, Placement("linear", 3)) is None
