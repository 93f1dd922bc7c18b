"""Layers of experts give plans the times of pairs; what runs pairs may use them, and bounds stay below."""

from __future__ import annotations

import json
import random
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call, write
from helpers.small_models import instances, optimum

from tightpipe import Placement, retime
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost
from tightpipe.planning import Batch, Candidate, Cluster, Layer, Model, PlanningProblem, SearchSpace, plan
from tightpipe.planning.alternatives import families_of
from tightpipe.planning.candidate import instance_of
from tightpipe.planning.configuration import configurations_of
from tightpipe.planning.layered_model import Recomputation
from tightpipe.planning.partitions import partitions_of
from tightpipe.planning.problem import RUNTIMES
from tightpipe.planning.problem_file import load_problem, problem_from_dict, problem_to_dict
from tightpipe.planning.runtimes import own_step, split_of
from tightpipe.settings import ExpertCosts, ExpertLayer
from tightpipe.settings.expert_parallel import ticks_together

PARTS = {
    "forward": {"attention": 7, "dispatch": 6, "experts": 8, "combine": 6},
    "backward": {"attention": 10, "dispatch": 6, "experts": 8, "combine": 6},
    "weight": {"attention": 4, "dispatch": 0, "experts": 8, "combine": 0},
}


def expert_layer(parts: dict[str, dict[str, int]] = PARTS, **other: Any) -> Layer:
    experts = ExpertLayer(**{key: ExpertCosts(**value) for key, value in parts.items()})
    ticks = {key: getattr(experts, key).ticks for key in PARTS}
    return Layer("block", **ticks, activation=4, weight_activation=1, experts=experts, **other)


KIND = {"name": "full", "ticks": 9, "activation": 0}
DENSE = Layer("block", 9, 11, 8, activation=3, weight_activation=1, recompute=(Recomputation("full", 9, 1),))


def problem_of(runtime: str, *layers: Layer, microbatches: int = 8, **space: Any) -> PlanningProblem:
    searched = SearchSpace(**{"placements": RUNTIMES[runtime].placements, "runtime": runtime, **space})
    return PlanningProblem(Model(layers), Cluster((2,), comm=1), Batch(microbatches), searched)


def data_of(layer: dict[str, Any], **search: Any) -> dict[str, Any]:
    batch = {"microbatches": 8}
    return {"layers": [{"count": 8, **layer}], "cluster": {"devices": 2}, "batch": batch, "search": search}


def test_a_pair_of_stages_takes_what_its_layers_take_in_turn() -> None:
    """The first layer of the F runs beside the last one of the BW; what is left over runs alone."""
    layers = (expert_layer(), DENSE, expert_layer(), DENSE, expert_layer())
    asked = problem_of("any", *layers)
    candidate = Candidate(Placement("loop", 2), (0, 2, 3, 4, 5), (((1, "full"),), (), (), ()))
    pairs = instance_of(asked, candidate).costs.pairs
    assert pairs is not None
    forward, backward = layers[0].chains()
    dense, again = (("gpu", 9),), (("gpu", 9 + 11 + 8),)
    crossed = ticks_together(forward, again) + ticks_together(dense, backward)
    assert pairs[0][0] == crossed
    assert pairs[0][2] == ticks_together(forward, (("gpu", 11 + 8),)) + 9
    assert pairs[3][3] == ticks_together(forward, backward) < layers[0].forward + layers[0].together
    assert pairs[0][1] == 0  # on another device


@pytest.mark.parametrize(("seed", "placement"), [(0, "linear"), (3, "loop")])
def test_no_plan_with_experts_is_cheaper_than_the_bound_and_the_best_one_is_found(
    seed: int, placement: str
) -> None:
    rng = random.Random(seed)
    parts = {
        key: {
            part: rng.randint(1, 5) * (key != "weight" or part in ("attention", "experts")) for part in each
        }
        for key, each in PARTS.items()
    }
    layers = [expert_layer(parts), replace(DENSE, forward=rng.randint(1, 9), backward=rng.randint(1, 9))]
    chosen = rng.choices(layers, k=3)
    asked = problem_of(
        "any", *chosen, layers[0], microbatches=3, placements=(placement,), recompute=("full",)
    )
    best = optimum(asked)
    found = plan(asked, time_limit=20, workers=1)
    assert best is not None
    assert found.cost == best
    assert found.bound is not None
    assert found.bound <= best


def test_the_bound_of_each_partition_holds_for_its_schedules_in_pairs() -> None:
    asked = problem_of("any", *(expert_layer(),) * 5, microbatches=6, placements=("v",))
    orders = ((one, HEURISTICS["dualpipe-v"].order(one)) for one in instances(asked))
    paired = [retime(*found) for found in orders]
    assert all(schedule.order.pairs.any() for schedule in paired)
    (configuration,) = configurations_of(asked)
    source = partitions_of(configuration)
    assert source.bound <= min(map(cost, paired))


def test_megatron_combines_where_layers_have_experts_and_its_export_says_so(tmp_path: Path) -> None:
    layers = (expert_layer(),) * 8
    asked = problem_of("megatron", *layers, placements=("loop",))
    assert "interleaved-overlap" in asked.methods_for()
    found = plan(asked, time_limit=None, workers=1)
    assert found.method == "interleaved-overlap"
    assert found.schedule is not None
    assert found.schedule.order.pairs.any()
    assert own_step(found, "megatron-layout") == found.cost
    assert split_of(found).combined
    plain = plan(replace(asked, space=replace(asked.space, methods=("interleaved-1f1b",))), time_limit=None)
    assert plain.cost is not None
    assert found.cost is not None
    assert found.cost < plain.cost
    model, planned, layout = (tmp_path / name for name in ("model.json", "plan.json", "layout"))
    model.write_text(json.dumps(problem_to_dict(asked)))
    assert call("plan", model, "--time-limit", "60", "-o", planned).returncode == 0
    done = call("export", planned, "--target", "megatron-layout", "-o", layout, "--layout-only", "--json")
    assert json.loads(done.stdout)["step"] == json.loads(planned.read_text())["cost"] == found.cost
    assert "--overlap-moe-expert-parallel-comm\n" in layout.read_text()


def test_megatron_does_not_combine_without_experts_nor_where_blocks_are_recomputed() -> None:
    dense, mixed = (problem_of("megatron", *layers, DENSE) for layers in ((), (expert_layer(),)))
    assert "interleaved-overlap" not in dense.methods_for()
    assert "interleaved-overlap" in mixed.methods_for()
    assert "interleaved-overlap" not in mixed.methods_for(recomputed=True)
    names = {
        (family.method, family.placement) for family in families_of(problem_of("megatron", *(DENSE,) * 8))
    }
    assert ("interleaved-overlap", "loop") not in names
    mixed = problem_of("megatron", *(expert_layer(),) * 8)
    assert ("interleaved-overlap", "loop") in {(one.method, one.placement) for one in families_of(mixed)}


def test_the_zero_bubble_runtime_runs_no_pairs() -> None:
    asked = problem_of("zero-bubble", *(expert_layer(),) * 4)
    instance = instance_of(asked, Candidate(Placement("linear", 2), (0, 2, 4), ((), ())))
    assert instance.costs.pairs is None
    assert asked.bounding_layers == asked.model.layers


def test_a_file_gives_experts_by_their_parts_and_is_written_again(tmp_path: Path) -> None:
    asked = problem_from_dict(data_of({"experts": PARTS}))
    assert (
        asked.model.layers == (replace(expert_layer(), name="layer", activation=0, weight_activation=0),) * 8
    )
    assert problem_from_dict(problem_to_dict(asked)) == asked


@pytest.mark.parametrize(
    ("layer", "line"),
    [
        ({"experts": PARTS, "forward": 9}, "layers[0].forward = 9: must be 27, as experts say"),
        ({"experts": PARTS, "fused": 9}, "layers[0].fused = 9: goes without experts"),
        ({"experts": PARTS, "recompute": [KIND]}, "layers[0].recompute = ['full']: goes without experts"),
        ({"experts": 3}, "layers[0].experts = 3: must be a table of keys and values"),
        ({"experts": {"forward": {}}}, "missing key 'backward' in layers[0].experts"),
        (
            {"experts": PARTS | {"forward": {"attention": 1}}},
            "missing key 'dispatch' in layers[0].experts.forward",
        ),
        (
            {"experts": PARTS | {"forward": PARTS["forward"] | {"attention": -1}}},
            "layers[0].experts.forward.attention = -1: must be at least 0",
        ),
        (
            {"experts": PARTS | {"weight": {"attention": 0, "dispatch": 1, "experts": 0, "combine": 0}}},
            "must compute in attention or experts",
        ),
    ],
)
def test_a_layer_of_experts_that_is_wrong_is_one_line(
    tmp_path: Path, layer: dict[str, Any], line: str
) -> None:
    done = call("plan", write(tmp_path, data_of(layer)))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr


def test_the_model_command_says_what_of_shared_experts_is_on_the_network(tmp_path: Path) -> None:
    path, whole = tmp_path / "model.toml", tmp_path / "whole.toml"
    options = ["costs", "model", "deepseek-moe-16b", "--data-parallel", "8", "--discount", "0.1"]
    assert call(*options, "-o", whole).returncode == 0
    done = call(*options, "--expert-parallel", "8", "-o", path)
    assert done.returncode == 0, done.stderr
    shared, alone = load_problem(path).model.layers, load_problem(whole).model.layers
    for one, other in zip(shared, alone, strict=True):
        if one.experts is None:
            assert one == other
            continue
        assert one.computing.forward == other.forward
        assert (one.computing.backward, one.weight) == (other.backward, other.weight)
        sent = 4096 * 6 * 2048 * 2 * 7 / 8  # bytes of a microbatch, from which 7 of 8 tokens leave
        assert one.experts.forward.dispatch == pytest.approx(sent / 450e9 * 1e6, abs=1)
        assert one.experts.weight.dispatch == 0
        assert one.parameters < other.parameters
    assert sum(one.experts is not None for one in shared) == 27
    text = tomllib.loads(path.read_text())
    assert set(asdict(shared[3].experts)) == set(text["layers"][2]["experts"])  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ["llama-2-7b", "--data-parallel", "8"],
            "expert_parallel = 8: must divide the 0 experts of llama-2-7b",
        ),
        (["deepseek-moe-16b"], "expert_parallel = 8: must divide data_parallel, 1"),
        (
            ["deepseek-moe-16b", "--data-parallel", "8", "--law", "v"],
            "expert_parallel = 8: must be 1 where costs are laws of lengths",
        ),
        (
            ["deepseek-moe-16b", "--data-parallel", "8", "--slices", "1,2"],
            "expert_parallel = 8: must be 1 where costs are laws of lengths",
        ),
    ],
)
def test_experts_that_cannot_be_shared_are_one_line(options: list[str], line: str, tmp_path: Path) -> None:
    done = call("costs", "model", *options, "--expert-parallel", "8", "-o", tmp_path / "model.toml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert line in done.stderr
