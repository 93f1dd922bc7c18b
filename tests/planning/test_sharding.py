"""State that pipelines share: bytes by hand, frontiers that fall, times of the step, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call, write
from helpers.handmade_plans import LAYERS
from helpers.handmade_plans import plan as plan_by_hand
from helpers.handmade_plans import problem as problem_by_hand

from tightpipe import InputError, Placement, plan
from tightpipe.export import export_text, read_split
from tightpipe.model.metrics import cost
from tightpipe.planning import (
    Batch,
    Candidate,
    Cluster,
    PlanningProblem,
    load_plan,
    problem_from_dict,
    problem_to_dict,
    save_plan,
    split_of,
)
from tightpipe.planning.candidate import bytes_lacking, instance_of
from tightpipe.planning.configuration import configurations_of
from tightpipe.planning.plan_table import device_points
from tightpipe.planning.planner import why_nothing_fits
from tightpipe.planning.sharding import NOT_SHARED, Sharding

BLOCK = {
    "name": "block",
    "forward": 10,
    "backward": 12,
    "weight": 8,
    "activation": 30,
    "output": 5,
    "parameters": 100,
}
FROZEN = {**BLOCK, "weight": 0, "parameters": 1000}


def file(*layers: dict[str, Any], search: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    """A model of four blocks on two devices, of four pipelines."""
    return {
        "layers": list(layers) or [{**BLOCK, "count": 4}],
        "cluster": {"devices": 2, **cluster},
        "batch": {"microbatches": 4, "data_parallel": 4},
        "search": search or {"placements": ["linear"]},
    }


def limits(data: dict[str, Any], cuts: tuple[int, ...] = (0, 2, 4), name: str = "linear") -> list[int]:
    """The bytes for activations on each device of 10,000 bytes."""
    problem = problem_from_dict({**data, "cluster": {**data["cluster"], "memory": 10000}})
    chunks = (len(cuts) - 1) // 2
    instance = instance_of(problem, Candidate(Placement(name, 2, chunks), cuts, ((),) * (len(cuts) - 1)))
    found = [instance.memory_limit(device) for device in range(2)]
    return [limit for limit in found if limit is not None]


# bytes


@pytest.mark.parametrize(
    ("kind", "each"),
    [
        ("none", 2 + 4 + 12),
        ("optimizer", 2 + 4 + Fraction(12, 4)),
        ("gradients", 2 + Fraction(4 + 12, 4) + 4),
        ("parameters", Fraction(4 + 12, 4) + 2 + 4),
    ],
)
def test_a_device_holds_its_part_and_what_is_whole(kind: str, each: Fraction) -> None:
    """Two blocks of 100 parameters on each device, in mixed precision over four pipelines."""
    assert limits(file(sharding=kind)) == [10000 - 200 * each] * 2


def test_only_the_largest_stages_that_stay_gathered_count() -> None:
    """A device has stages of one, two and three blocks; each block takes 100 x 2 bytes while it is gathered."""
    cuts = (0, 1, 2, 4, 6, 9, 12)
    always = 6 * 100 * (Fraction(16, 4) + 4)
    for resident, blocks in ((1, 3), (2, 3 + 2), (3, 6), (7, 6)):
        data = file({**BLOCK, "count": 12}, sharding="parameters", resident=resident)
        assert limits(data, cuts, "loop") == [10000 - always - blocks * 100 * 2] * 2


def test_frozen_layers_are_gathered_and_have_no_gradients() -> None:
    data = file({**FROZEN, "backward": 0}, {**BLOCK, "count": 3}, sharding="parameters")
    first = 1100 * (Fraction(16, 4) + 2) + 100 * 4
    assert limits(data) == [10000 - first, 10000 - 200 * (Fraction(16, 4) + 2 + 4)]


def test_the_table_of_bytes_changes_single_parts() -> None:
    data = file(sharding="parameters", bytes_per_parameter={"gradient": 2, "gathered": 1.5})
    assert limits(data) == [10000 - 200 * (Fraction(16, 4) + 1.5 + 2)] * 2
    assert limits(file(bytes_per_parameter={"gathered": 3})) == [10000 - 600] * 2


@pytest.mark.parametrize("resident", [1, 2])
def test_one_byte_less_does_not_fit(resident: int) -> None:
    """Loop with two stages of a block on each device: one microbatch holds 60 bytes, and state the rest."""
    whole = 60 + 200 * (4 + 4) + resident * 100 * 2
    candidate = Candidate(Placement("loop", 2), (0, 1, 2, 3, 4), ((),) * 4)
    for memory, lacking in ((whole, 0), (whole - 1, 1)):
        data = file(search={"placements": ["loop"]}, sharding="parameters", resident=resident, memory=memory)
        problem = problem_from_dict(data)
        assert bytes_lacking(problem, candidate) == [lacking] * 2
        found = plan(problem, time_limit=None, workers=1)
        assert (found.status == "infeasible") == bool(lacking)
        if found.memory is not None:
            assert [device.unsharded for device in found.memory] == [200 * 4 + resident * 100 * 2] * 2
            assert max(found.peak_memory or ()) <= memory


def test_the_frontier_falls_with_each_kind_of_sharding() -> None:
    """The least memory in which a plan with two stages per device fits falls; the gradients' kind saves nothing."""
    least = {}
    for kind, more in (
        ("none", {}),
        ("optimizer", {}),
        ("gradients", {}),
        ("parameters", {"resident": 2}),
        ("parameters", {}),
    ):
        low, high = 0, 10000
        while high - low > 1:
            middle = (low + high) // 2
            data = file(search={"placements": ["loop"]}, sharding=kind, memory=middle, **more)
            fits = plan(problem_from_dict(data), time_limit=None, workers=1).status != "infeasible"
            low, high = (low, middle) if fits else (middle, high)
        least[kind, *more] = high - 60  # a microbatch of two blocks
    assert list(least.values()) == [200 * 18, 200 * 9, 200 * 10, 200 * 10, 200 * 8 + 200]


def test_a_single_pipeline_shares_nothing() -> None:
    """So several numbers of devices can be compared on as many GPUs, down to one pipeline."""
    data = file({**BLOCK, "count": 8}, sharding="parameters", resident=2, reduce_bandwidth=10)
    many, alone = (point.problem.cluster for point in device_points(data, ["2", "8"]))
    assert (many.bytes_per_parameter, many.sharding) == (4, Sharding(Fraction(2), Fraction(4), 2))
    assert (alone.bytes_per_parameter, alone.sharding) == (18, NOT_SHARED)


# times


def test_gathers_and_reductions_are_those_of_a_step() -> None:
    """Of 4 pipelines, each sends three quarters: 4 bytes of gradients of 200 parameters, and 2 to gather them."""
    data = file(sharding="optimizer", reduce_bandwidth=10, reduce_latency=3, optimizer=0.02)
    candidate = Candidate(Placement("linear", 2), (0, 2, 4), ((), ()))
    for kind in ("optimizer", "gradients", "parameters"):
        data["cluster"]["sharding"] = kind
        step = instance_of(problem_from_dict(data), candidate).step
        assert step is not None
        assert (step.reduce, step.ready, step.optimizer) == ((63, 63), (33, 33), (1, 1))
    data["cluster"]["sharding"] = "none"  # all gradients to all pipelines: the same bytes twice
    step = instance_of(problem_from_dict(data), candidate).step
    assert step is not None
    assert (step.reduce, step.ready, step.optimizer) == ((123, 123), (0, 0), (4, 4))


def test_frozen_parameters_are_gathered_where_they_are_shared() -> None:
    layers = {**FROZEN, "backward": 0}, {**BLOCK, "count": 3}
    candidate = Candidate(Placement("linear", 2), (0, 2, 4), ((), ()))
    for kind, ready in (("optimizer", 15), ("parameters", 165)):
        problem = problem_from_dict(file(*layers, sharding=kind, reduce_bandwidth=10))
        step = instance_of(problem, candidate).step
        assert step is not None
        assert step.ready == (ready, 30)


# what plans, files and exports say


def shared(resident: int = 3, **more: Any) -> PlanningProblem:
    cluster = Cluster((2,), 4000, 70, Fraction(3), 1, sharding=Sharding(Fraction(2), Fraction(1), resident))
    return problem_by_hand(LAYERS, replace(cluster, **more))


def test_a_plan_says_what_is_gathered(tmp_path: Path) -> None:
    made = plan_by_hand(shared())
    assert made.gathers == [1] * 4
    assert "gathered      all of 2 stage(s) of a device, once in a step (fsdp_resh" in str(made)
    save_plan(made, tmp_path / "plan.json")
    assert load_plan(tmp_path / "plan.json") == made
    assert json.loads((tmp_path / "plan.json").read_text())["gathers"] == [1] * 4
    assert "unsharded" in str(made)
    assert "unsharded" not in str(plan_by_hand())
    assert plan_by_hand().gathers is None


def test_a_step_takes_at_least_as_long_as_the_exchanges_of_a_device() -> None:
    """On a slow network: by hand, 2 bytes per parameter and gather, 4 per reduction, three quarters of each."""
    data = file(search={"placements": ["loop"]}, sharding="parameters", resident=1, reduce_bandwidth=0.5)
    found = plan(problem_from_dict(data), time_limit=None, workers=1)
    assert found.gathers is not None
    assert found.schedule is not None
    gather, reduce = (100 * size * 3 // 4 * 2 for size in (2, 4))  # a block per stage
    stream = max(sum(gather * found.gathers[s] + reduce for s in (d, d + 2)) for d in (0, 1))
    assert found.cost >= stream
    assert found.status == "feasible"
    twice = replace(found.problem.cluster, sharding=replace(found.problem.cluster.sharding, resident=2))
    enough = plan(replace(found.problem, cluster=twice), time_limit=None, workers=1)
    assert enough.schedule is not None
    assert enough.cost == cost(enough.schedule) < stream


def test_torchtitan_is_told_to_keep_stages_gathered(tmp_path: Path) -> None:
    made = plan_by_hand(shared())
    text = export_text(split_of(made), "torchtitan")
    said = json.loads(text)["parallelism"]
    assert (said["data_parallel_shard_degree"], said["fsdp_reshard_after_forward"]) == (3, "never")
    (tmp_path / "titan.json").write_text(text)
    assert read_split(tmp_path / "titan.json", "torchtitan") == split_of(made)
    assert "data_parallel_shard_degree" not in export_text(split_of(plan_by_hand()), "torchtitan")
    with pytest.raises(InputError, match=r"cluster\.resident = 1: PyTorch keeps 3 stages"):
        export_text(split_of(plan_by_hand(shared(1))), "torchtitan")


@pytest.mark.parametrize("kind", ["none", "optimizer", "gradients", "parameters"])
def test_a_problem_is_written_and_read_again(kind: str) -> None:
    more = {"resident": 2} if kind == "parameters" else {}
    for exchange in ({}, {"reduce_bandwidth": 8, "optimizer": 0.25}):
        problem = problem_from_dict(file(sharding=kind, **more, **exchange))
        assert problem_from_dict(problem_to_dict(problem)) == problem
        assert (problem.cluster.sharding == NOT_SHARED) == (kind in ("none", "optimizer"))


# what is refused


ALONE: dict[str, Any] = {"microbatches": 4}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            file(sharding="zero-3"),
            "cluster.sharding = 'zero-3': must be one of none, optimizer, gradients, par",
        ),
        (file(sharding=3), "cluster.sharding = 3: must be one of none, optimizer"),
        (file(sharding="parameters", resident=0), "cluster.resident = 0: must be at least 1"),
        (file(resident=2), "cluster.resident = 2: needs cluster.sharding = 'parameters' beside it"),
        (
            file(sharding="optimizer", resident=2),
            "cluster.resident = 2: needs cluster.sharding = 'parameters'",
        ),
        (
            file(sharding="parameters") | {"batch": ALONE},
            "cluster.sharding = 'parameters': needs batch.data_parallel, the number of pipelines that share",
        ),
        (
            file(sharding="parameters", bytes_per_parameter=18),
            "cluster.bytes_per_parameter = 18: needs a table beside cluster.sharding, of replicated, sharded",
        ),
        (
            file(sharding="parameters", bytes_per_parameter={"gathered": -2}),
            "cluster.bytes_per_parameter.gathered = -2: must be from 0 to",
        ),
        (
            file(bytes_per_parameter={"gradient": "4"}),
            "cluster.bytes_per_parameter.gradient = '4': must be a number",
        ),
        (
            file(sharding="optimizer", optimizer=1),
            "cluster.optimizer = 1: needs cluster.reduce_bandwidth beside",
        ),
        (
            file(sharding="parameters", resident=1, search={"runtime": "torch"}),
            "cluster.resident = 1: must be 3 for PyTorch, which keeps so many stages gathered",
        ),
        (
            file(sharding="parameters", resident=1, search={"methods": ["dualpipe-v"], "placements": ["v"]}),
            "cluster.resident = 1: must be at least 2, the most stages of a device, where operations run in pairs",
        ),
    ],
)
def test_what_contradicts_sharding_is_one_line(data: dict[str, Any], message: str, tmp_path: Path) -> None:
    done = call("plan", write(tmp_path, data, "model.json"), "-o", tmp_path / "plan.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tightpipe: {tmp_path / 'model.json'}: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("cluster", "lacking", "helps"),
    [
        ({"sharding": "none"}, 60 + 200 * 18 - 2000, "with cluster.sharding = parameters it fits"),
        ({"sharding": "parameters", "resident": 2}, 60, "with cluster.resident = 1 it fits"),
    ],
)
def test_what_does_not_fit_says_whether_sharding_helps(
    cluster: dict[str, Any], lacking: int, helps: str
) -> None:
    problem = problem_from_dict(file(search={"placements": ["loop"]}, memory=2000, **cluster))
    why = why_nothing_fits(problem, configurations_of(problem))
    assert f"the fullest device lacks {lacking} bytes to hold one microbatch (device 0 with block 0, b" in why
    assert helps in why


def test_sharding_helps_nothing_where_there_is_one_pipeline() -> None:
    problem = problem_from_dict(file(search={"placements": ["loop"]}, memory=2000, bytes_per_parameter=18))
    alone = replace(
        problem, batch=Batch(4), cluster=replace(problem.cluster, bytes_per_parameter=Fraction(18))
    )
    assert "sharding" not in why_nothing_fits(alone, configurations_of(alone))


def test_methods_in_pairs_stay_where_every_stage_stays_gathered() -> None:
    for resident, there in ((1, False), (2, True)):
        data = file(search={"placements": ["v"]}, sharding="parameters", resident=resident)
        assert ("dualpipe-v" in problem_from_dict(data).methods_for()) == there
