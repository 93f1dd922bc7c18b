"""Kinds of recomputation: their ticks and bytes by hand, what more kinds are worth, and what files say of them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from helpers.command_line import call, write
from helpers.handmade_plans import BLOCK
from helpers.small_models import optimum, random_problem

from tightpipe import Placement, Status, solve, validate
from tightpipe.model.operation import OpKind
from tightpipe.planning import (
    Batch,
    Candidate,
    Cluster,
    Layer,
    Model,
    Plan,
    PlanningProblem,
    Recomputation,
    SearchSpace,
    load_plan,
    plan,
    problem_to_dict,
    save_plan,
    split_of,
)
from tightpipe.planning.candidate import StageNumbers, instance_of, stage_numbers
from tightpipe.planning.model_arrays import RecomputeOptions

KINDS = (
    Recomputation("selective", 2, 22, weight_activation=6, transient=3),  # F keeps 22 of 30 bytes, W 6 of 8
    Recomputation("full", 10, 5),  # the 8 bytes that W needs stay, not 5
)
LAYER = replace(BLOCK, recompute=KINDS)
BOTH = SearchSpace(("linear", "v"), recompute=("selective", "full"))


def asked(memory: int | None = None, layers: int = 8, space: SearchSpace = BOTH) -> PlanningProblem:
    return PlanningProblem(Model((LAYER,) * layers), Cluster((2,), memory), Batch(6), space)


def test_the_ticks_and_bytes_of_a_stage_by_hand() -> None:
    """One block as it is, two selective and one full one: 30 + 2 x 22 + 8 bytes, and 8 + 2 x 6 + 8 after B."""
    found = stage_numbers(asked(), 0, 4, ((1, "selective"), (2, "full"), (3, "selective")))
    assert found == StageNumbers(
        forward=40,
        backward=44 + 2 + 10 + 2,
        weight=36,
        fused=80 + 2 + 10 + 2,
        held=30 + 22 + 8 + 22,
        freed_by_backward=82 - (8 + 6 + 8 + 6),
        freed_by_weight=8 + 6 + 8 + 6,
        transient=30 - 8,  # of the full one; selective ones say 3
        static=0,
        output=0,
        parameters=400,
        trained=400,
    )


def test_without_a_w_the_bytes_that_it_would_need_do_not_stay() -> None:
    frozen = replace(LAYER, weight=0)
    found = stage_numbers(replace(asked(), model=Model((LAYER, frozen))), 1, 2, ((1, "full"),))
    assert (found.held, found.freed_by_backward, found.freed_by_weight, found.transient) == (5, 5, 0, 25)


def test_of_equal_layers_only_the_counts_of_each_kind_are_ways() -> None:
    """Of the ten multisets, one full block is beaten: three selective ones save 24 bytes in 6 ticks, it 22 in 10."""
    options = RecomputeOptions(asked(layers=3), 3)
    ways = options.layers[options.first[3] : options.first[4]]
    counts = [tuple(sum(kind == name for _, kind in way) for name in ("selective", "full")) for way in ways]
    every = [(s, f) for s in range(4) for f in range(4 - s)]
    assert sorted(counts) == sorted(set(every) - {(0, 1)})


@pytest.mark.parametrize("seed", [3, 47, 53])
def test_a_plan_is_the_best_of_all_kinds_and_counts(seed: int) -> None:
    known = random_problem(seed)
    kinds = (Recomputation("half", 1, 2, 0), Recomputation("full", 4, 0, transient=0))
    sizes = {"activation": 6, "weight_activation": 2, "recompute": kinds}
    layers = tuple(replace(layer, **sizes) for layer in known.model.layers[:6])  # type: ignore[arg-type]
    memory = known.cluster.static_bytes(sum(layer.parameters for layer in layers)) + 9 * len(layers)
    cluster = replace(known.cluster, memory=memory // known.cluster.devices[0] + known.cluster.reserve + 8)
    space = replace(known.space, recompute=("half", "full"))
    small = replace(known, model=Model(layers), cluster=cluster, space=space)
    best, found = optimum(small), plan(small, time_limit=None, workers=1)
    assert (found.cost, found.status is Status.INFEASIBLE) == (best, best is None)
    assert found.bound is None or found.bound <= (best or 0)


def test_a_kind_that_is_added_never_makes_the_best_plan_slower() -> None:
    """Memory for little: the more kinds there are to choose from, the sooner a step ends."""
    costs = []
    for kinds in [("full",), ("selective",), ("selective", "full")]:
        space = replace(BOTH, recompute=kinds)
        few = replace(asked(60, 4, space), batch=Batch(2))
        found = plan(few, time_limit=None, workers=1)
        assert found.status is Status.OPTIMAL
        assert found.cost is not None
        costs.append(found.cost)
    full, selective, both = costs
    assert both <= min(full, selective)
    assert both < full


@pytest.fixture
def mixed() -> Plan:
    """A plan in which a stage recomputes in both kinds."""
    candidate = Candidate(
        Placement("linear", 2), (0, 4, 8), (((0, "selective"), (1, "full"), (2, "full")), ())
    )
    found = solve(instance_of(asked(), candidate), "list", time_limit=1)
    return Plan(
        *(asked(), found.status, candidate, found.schedule, found.method, found.bound, found.proof, 0.0)
    )


def test_a_plan_of_several_kinds_is_read_as_it_was_written(mixed: Plan, tmp_path: Path) -> None:
    save_plan(mixed, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == mixed


def test_the_text_counts_each_kind(mixed: Plan) -> None:
    lines = str(mixed).splitlines()
    assert "recomputed    1+2 of 8 layers (selective + full)" in lines
    assert [line.split()[4] for line in lines[-2:]] == ["1+2", "0+0"]


def test_of_equal_layers_the_first_ones_are_recomputed_in_each_kind(mixed: Plan) -> None:
    last = (((1, "full"), (3, "selective")), ())
    assert mixed.candidate is not None
    split = split_of(replace(mixed, candidate=replace(mixed.candidate, recomputed=last)))
    assert sorted(kind for _, kind in split.recomputed[0]) == ["full", "selective"]
    assert [index for index, _ in split.recomputed[0]] == [1, 2]  # behind the embedding


def test_a_schedule_takes_the_bytes_of_the_kinds(mixed: Plan) -> None:
    assert mixed.schedule is not None
    instance = mixed.schedule.instance
    assert validate(instance, mixed.schedule) == []
    assert instance.duration(OpKind.B, 0) == 44 + 2 + 20


def test_what_does_not_fit_names_the_device_the_bytes_and_what_would_help(tmp_path: Path) -> None:
    """Two blocks on each device keep 60 bytes; full ones keep 16 and take 22 more for a while."""
    file = write(tmp_path, problem_to_dict(asked(50, 4, SearchSpace(("linear",), (1,)))), "model.json")
    done = call("plan", file)
    assert done.returncode == 1
    reason = "the fullest device lacks 10 bytes to hold one microbatch (device 0 with block 0-1)"
    assert reason in done.stderr
    assert "with search.recompute = [selective, full] it fits" in done.stderr
    assert done.stderr.count("\n") == 1


def test_more_chunks_help_where_layers_of_unequal_size_follow_each_other() -> None:
    """On one stage for each device, one has the large layers; with two, each has a large and a small one."""
    large, small = (Layer("layer", 1, 1, 1, activation=size) for size in (20, 2))
    model, space = Model((large, large, small, small)), SearchSpace(("linear",), (1,))
    found = plan(PlanningProblem(model, Cluster((2,), 23), Batch(2), space), time_limit=None, workers=1)
    assert found.status is Status.INFEASIBLE
    assert "with search.placements = [v] and search.chunks = 2 it fits" in found.reason


def test_two_remedies_together_are_named_where_each_alone_is_not_enough() -> None:
    """Two full blocks take 16 + 22 bytes, one that does not leave 30, and a selective one of them 22 + 3."""
    found = plan(asked(27, 4, SearchSpace(("v",))), time_limit=None, workers=1)
    assert "the fullest device lacks 33 bytes" in found.reason
    assert "with search.recompute = [selective, full] it lacks 11 bytes" in found.reason
    assert (
        "with offload (layers.offload = true, over a cluster.host_bandwidth) it lacks 3 bytes" in found.reason
    )
    assert "with all of these it fits" in found.reason
    assert "parameters alone" not in found.reason


def test_parameters_that_take_more_than_the_memory_are_named() -> None:
    scarce = asked(150, 4, SearchSpace(("linear",)))
    heavy = replace(scarce, cluster=replace(scarce.cluster, bytes_per_parameter=Fraction(1), reserve=10))
    found = plan(heavy, time_limit=None, workers=1)
    assert "the fullest device lacks 120 bytes" in found.reason
    assert "its parameters alone take 200 bytes" in found.reason
