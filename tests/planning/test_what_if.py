"""What changes of a problem would give: answers with a bound and a plan, or why there is none."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise

import pytest
from helpers.clock import counted_time
from helpers.handmade_plans import CLUSTER, EMBEDDING, LAYERS, SPACE, alike, plan, problem

from tightpipe import Placement
from tightpipe.params.budget import Allowance
from tightpipe.planning import Candidate, Plan
from tightpipe.planning.cluster import Network
from tightpipe.planning.search import layers_moved
from tightpipe.planning.what_if import WhatIf, what_ifs

ALLOWANCE = Allowance(0.5, 1)
TWO = replace(CLUSTER, devices=(2,))
V = replace(SPACE, placements=("v",), chunks=(2,))


def answers(made: Plan) -> dict[str, WhatIf]:
    with counted_time(per_look=0.0005):
        return {found.change: found for found in what_ifs(made, ALLOWANCE, lambda _: lambda entry: None)}


@pytest.fixture(scope="module")
def found() -> dict[str, WhatIf]:
    """Changes of a plan in which nothing is optimal: slow messages and an uneven cut."""
    asked = problem(cluster=replace(TWO, comm=12), space=V)
    return answers(plan(asked, cuts=(0, 2, 5, 7, 10), recomputed=((), (), (), ())))


def test_every_change_has_an_answer(found: dict[str, WhatIf]) -> None:
    assert list(found) == [
        *("as it is", "1 GB more memory per device", "more chunks", "half the communication"),
        "one layer moved",
    ]
    assert [answer.reason for answer in found.values()] == [""] * 5


def test_a_found_plan_is_not_below_its_bound(found: dict[str, WhatIf]) -> None:
    now = found["as it is"].cost
    assert now is not None
    for answer in found.values():
        assert answer.cost is not None
        assert answer.bound is not None
        assert answer.bound <= answer.cost, answer.change
        assert answer.saved == now - answer.cost


def test_a_weaker_constraint_never_costs_more(found: dict[str, WhatIf]) -> None:
    for change in ("1 GB more memory per device", "half the communication"):
        saved = found[change].saved
        assert saved is not None
        assert saved >= 0


def test_one_layer_less_on_the_longest_stage_saves_time(found: dict[str, WhatIf]) -> None:
    assert found["one layer moved"].saved is not None
    assert found["one layer moved"].saved > 0


def test_what_cannot_be_changed_says_why() -> None:
    asked = problem(LAYERS, replace(TWO, memory=None, comm=0), space=V)
    found = answers(plan(asked))
    assert found["1 GB more memory per device"].reason == "the cluster has no memory limit"
    assert found["half the communication"].reason == "messages take no time"
    whole = problem(space=replace(SPACE, placements=("linear",), chunks=(1,)))
    alone = plan(whole, Placement("linear", 1), cuts=(0, 10), recomputed=((),))
    assert answers(alone)["one layer moved"].reason.startswith("no other partition with one layer moved")


def test_half_of_a_network_is_half_its_latency_and_twice_its_bandwidth() -> None:
    layers = [replace(layer, output=100) for layer in LAYERS]
    slow = Network(Fraction(9), Fraction(20), 1, Fraction(3), Fraction(40))
    half = Network(Fraction(9, 2), Fraction(40), 1, Fraction(3, 2), Fraction(80))
    asked = problem(layers, replace(TWO, comm=slow), space=V)
    found = answers(plan(asked))["half the communication"]
    direct = plan(problem(layers, replace(TWO, comm=half), space=V))
    assert direct.cost is not None
    assert found.cost is not None
    assert found.cost <= direct.cost


def test_all_ways_to_move_a_layer() -> None:
    cuts = (0, 2, 3, 6, 10)
    candidate = Candidate(Placement("v", 2), cuts, alike(((0, 1), (2,), (5,), (6, 9))))
    sizes = (2, 1, 3, 4)
    expected = set()
    for inner in combinations(range(1, 10), 3):
        other = (0, *inner, 10)
        change = sorted(b - a - size for (a, b), size in zip(pairwise(other), sizes, strict=True))
        if change == [-1, 0, 0, 1]:
            expected.add(other)
    moved = list(layers_moved(candidate, empty=False))
    assert {c.cuts for c in moved} == expected
    assert len(moved) == len(expected)
    for other in moved:
        assert sorted(layer for layers in other.recomputed for layer, _ in layers) == [0, 1, 2, 5, 6, 9]
        for (first, end), layers in zip(other.stages, other.recomputed, strict=True):
            assert all(first <= layer < end for layer, _ in layers)


def test_a_stage_without_time_is_no_way_to_move_a_layer() -> None:
    # the embedding alone has no B, so the first stage keeps its block
    asked = problem((EMBEDDING, *LAYERS[1:4]), replace(TWO, memory=None), space=SPACE)
    made = plan(asked, Placement("linear", 2), cuts=(0, 2, 4), recomputed=((), ()))
    moved = answers(made)["one layer moved"]
    assert moved.cost is not None
