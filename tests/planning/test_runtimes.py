"""A plan for a runtime is one that this runtime runs, and exports say what a step of it takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call, write

from tightpipe import InputError, NoScheduleError, Placement, validate
from tightpipe.export import export, import_order, with_torch_stage0
from tightpipe.model.costs import Objective
from tightpipe.model.metrics import costs
from tightpipe.model.operation import OpKind
from tightpipe.params.budget import Allowance
from tightpipe.planning import Batch, Candidate, Cluster, Layer, Model, PlanningProblem, SearchSpace, plan
from tightpipe.planning.alternatives import families_of, uniform_plan
from tightpipe.planning.candidate import instance_of
from tightpipe.planning.problem import RUNTIMES
from tightpipe.planning.problem_file import problem_from_dict, problem_to_dict
from tightpipe.planning.runtimes import megatron_schedule, own_step, split_of

LAYERS = (
    Layer("embedding", 2, 0, 4),
    *(Layer("block", 10, 12, 9, activation=5, weight_activation=2),) * 8,
    Layer("head", 14, 13, 12),
)


def problem_of(runtime: str, microbatches: int = 8, **space: Any) -> PlanningProblem:
    searched = SearchSpace(**{"placements": RUNTIMES[runtime].placements, "runtime": runtime, **space})
    return PlanningProblem(Model(LAYERS), Cluster((4,), comm=1), Batch(microbatches), searched)


def data_of(**search: Any) -> dict[str, Any]:
    block = {"name": "block", "count": 8, "forward": 10, "backward": 12, "weight": 9}
    return {"layers": [block], "cluster": {"devices": 4}, "batch": {"microbatches": 8}, "search": search}


@pytest.mark.parametrize("microbatches", [4, 6, 8])
def test_a_plan_for_megatron_is_what_megatron_runs(microbatches: int) -> None:
    found = plan(problem_of("megatron", microbatches), time_limit=None, workers=1)
    assert found.schedule is not None
    assert found.candidate is not None
    assert found.method in ("1f1b", "interleaved-1f1b")
    assert found.candidate.placement.name in ("linear", "loop")
    split = split_of(found)
    assert found.schedule.order == megatron_schedule(found.schedule.instance, split.group).order
    kinds = set(found.schedule.order.operations[:, 0].tolist())
    assert OpKind.B not in kinds
    split_stages = found.schedule.order.operations[found.schedule.order.operations[:, 0] == OpKind.W, 1]
    assert set(split_stages.tolist()) <= {0}  # the embedding alone has no B


def test_a_uniform_cut_for_megatron_has_a_schedule_that_megatron_runs() -> None:
    for family in families_of(problem_of("megatron")):
        made = uniform_plan(family, Allowance(5.0, 1))
        assert made.method in ("1f1b", "interleaved-1f1b")
        best = plan(family.problem, time_limit=None, workers=1)
        assert best.bound is not None
        assert made.cost is not None
        assert best.bound <= made.cost


def test_the_cut_for_megatron_suits_the_schedule_of_megatron() -> None:
    """What the exported layout takes is what the plan says, and no more than on the cut of another plan."""
    ours = plan(problem_of("megatron"), time_limit=None, workers=1)
    other = plan(problem_of("any", placements=("loop",)), time_limit=None, workers=1)
    assert own_step(ours, "megatron-layout") == ours.cost
    theirs = own_step(other, "megatron-layout")
    assert theirs is not None
    assert ours.cost is not None
    assert ours.cost <= theirs


def test_a_plan_for_pytorch_has_no_b_at_stage_0_and_takes_what_its_export_takes(tmp_path: Path) -> None:
    found = plan(problem_of("torch", placements=("linear",)), time_limit=None, workers=1)
    assert found.schedule is not None
    assert found.candidate is not None
    instance = found.schedule.instance
    assert not instance.has(OpKind.B, 0)
    usual = instance_of(problem_of("any", placements=("linear",)), found.candidate)
    assert instance.duration(OpKind.W, 0) == usual.duration(OpKind.BW, 0)
    assert costs(with_torch_stage0(found.schedule)) == costs(found.schedule)
    export(found.schedule, "torch-csv", tmp_path / "torch.csv", torch_stage0=True)
    assert import_order(tmp_path / "torch.csv", "torch-csv", instance) == found.schedule.order
    free = plan(problem_of("any", placements=("linear",)), time_limit=None, workers=1)
    assert free.cost is not None
    assert found.cost is not None
    assert found.bound is not None
    assert free.cost <= found.cost
    assert found.bound <= found.cost


def test_a_plan_for_pytorch_has_a_backward_at_every_stage(tmp_path: Path) -> None:
    """With LoRA on the last layers only, a device with the frozen ones would have none."""
    frozen = Layer("block", 10, 0, 0)
    layers = (frozen, frozen, Layer("block", 10, 0, 3), Layer("block", 10, 8, 3), Layer("block", 10, 8, 3))
    asked = problem_of("torch", placements=("linear",))
    asked = replace(asked, model=Model(layers), cluster=Cluster((2,), comm=1))
    found = plan(asked, time_limit=None, workers=1)
    assert found.schedule is not None
    export(found.schedule, "torch-csv", tmp_path / "torch.csv", torch_stage0=True)
    asked = replace(asked, cluster=Cluster((4,), comm=1))
    none = plan(asked, time_limit=None, workers=1)
    assert none.schedule is None
    assert none.reason == "every plan is proven not to fit, or to have a stage that PyTorch does not run"


def test_a_plan_for_the_zero_bubble_runtime_fuses_all_backwards_of_a_microbatch_or_none(
    tmp_path: Path,
) -> None:
    layers = tuple(replace(layer, fused=layer.weight + layer.backward - 4) for layer in LAYERS[1:9])
    found = plan(replace(problem_of("zero-bubble"), model=Model(layers)), time_limit=None, workers=1)
    assert found.schedule is not None
    export(found.schedule, "megatron-json", tmp_path / "m.json")
    assert import_order(tmp_path / "m.json", "megatron-json") == found.schedule.order


@pytest.mark.parametrize("runtime", ["torch", "zero-bubble"])
def test_a_plan_for_another_runtime_stays_in_its_placements(runtime: str) -> None:
    found = plan(problem_of(runtime), time_limit=None, workers=1)
    assert found.candidate is not None
    assert found.schedule is not None
    assert found.candidate.placement.name in RUNTIMES[runtime].placements
    assert not validate(found.schedule.instance, found.schedule)
    assert runtime != "zero-bubble" or not found.schedule.order.pairs.any()


@pytest.mark.parametrize(
    ("search", "line"),
    [
        ({"runtime": "jax"}, "search.runtime = 'jax': must be one of any, torch, megatron, zero-bubble"),
        (
            {"runtime": "megatron", "placements": ["v"]},
            "search.placements = 'v': Megatron-LM runs linear, loop only",
        ),
        (
            {"runtime": "megatron", "methods": ["zb-h1"]},
            "search.methods = 'zb-h1': Megatron-LM runs 1f1b, interleaved-1f1b, interleaved-overlap",
        ),
        (
            {"runtime": "megatron", "objective": "device_span"},
            "search.objective = 'device_span': Megatron-LM runs step only",
        ),
        (
            {"runtime": "megatron", "placements": ["linear"], "chunks": 2},
            "search.chunks = 2: no placement of linear allows so many; several stages on a device need a loop",
        ),
        (
            {"runtime": "zero-bubble", "placements": ["linear"], "chunks": 2},
            "search.chunks = 2: no placement of linear allows so many; several stages on a device need another",
        ),
        (
            {"runtime": "zero-bubble", "placements": ["linear", "wave"]},
            "search.placements = 'wave': the zero-bubble runtime runs v, linear only",
        ),
    ],
)
def test_what_a_runtime_does_not_run_is_one_line(tmp_path: Path, search: dict[str, Any], line: str) -> None:
    done = call("plan", write(tmp_path, data_of(**search)))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr


def test_several_stages_on_a_device_need_as_many_microbatches_as_devices_in_megatron() -> None:
    few = problem_of("megatron", 3)
    assert {c.placement.name for c in [plan(few, time_limit=None, workers=1).candidate] if c} == {"linear"}
    with pytest.raises(InputError, match="runs none of them on 4 devices; several stages on a device need"):
        plan(problem_of("megatron", 3, placements=("loop",)))


def test_without_placements_those_of_the_runtime_are_searched() -> None:
    asked = problem_from_dict(data_of(runtime="megatron"))
    assert asked.space.placements == ("linear", "loop")
    assert problem_from_dict(problem_to_dict(asked)) == asked


def test_the_families_of_a_runtime_are_those_that_it_runs() -> None:
    names = {(family.method, family.placement) for family in families_of(problem_of("megatron"))}
    assert names == {("1f1b", "linear"), ("interleaved-1f1b", "loop"), ("best", "linear"), ("best", "loop")}


def test_an_export_prints_the_step_of_the_framework(tmp_path: Path) -> None:
    """Megatron-LM runs interleaved 1F1B on a cut that was made for another schedule."""
    layers = [
        {"name": "embedding", "forward": 2, "backward": 0, "weight": 4},
        {"name": "block", "count": 8, "forward": 10, "backward": 12, "weight": 9},
        {"name": "head", "forward": 14, "backward": 13, "weight": 12},
    ]
    data = {**data_of(placements=["loop"]), "layers": layers}
    planned = tmp_path / "plan.json"
    assert call("plan", write(tmp_path, data), "--time-limit", "60", "-o", planned).returncode == 0
    done = call("export", planned, "--target", "megatron-layout", "-o", tmp_path / "layout", "--json")
    answer = json.loads(done.stdout)
    schedule = json.loads(planned.read_text())
    assert answer["planned"] == schedule["cost"]
    cuts = (0, *(end for _, end in schedule["stages"]))
    candidate = Candidate(Placement("loop", 4), cuts, ((),) * 8)
    instance = instance_of(problem_from_dict(data), candidate)
    assert answer["step"] == costs(megatron_schedule(instance))["step"]
    done = call("export", planned, "--target", "torch-csv", "-o", tmp_path / "torch.csv", "--json")
    assert json.loads(done.stdout)["step"] == schedule["costs"]["step"]


def test_a_schedule_of_megatron_that_takes_too_much_memory_is_refused() -> None:
    asked = replace(problem_of("megatron"), cluster=Cluster((4,), memory=14))
    instance = instance_of(asked, Candidate(Placement("linear", 4), (0, 3, 5, 7, 10), ((),) * 4))
    assert instance.objective is Objective.STEP
    with pytest.raises(NoScheduleError):
        megatron_schedule(instance)


@pytest.mark.parametrize(("microbatches", "size"), [(8, 4), (10, 5)])
def test_an_interleaved_plan_is_exported_with_the_groups_of_its_schedule(
    microbatches: int, size: int, tmp_path: Path
) -> None:
    asked = problem_of("megatron", microbatches, placements=("loop",), methods=("interleaved-1f1b",))
    found = plan(asked, time_limit=None, workers=1)
    split = split_of(found)
    assert split.group == size
    for target in ("megatron-layout", "torchtitan"):
        export(split, target, tmp_path / target)
    argument = "--microbatch-group-size-per-virtual-pipeline-stage"
    assert (argument in (tmp_path / "megatron-layout").read_text()) == (size != 4)


def test_the_zero_bubble_runtime_runs_the_plan_that_is_made_for_it(tmp_path: Path) -> None:
    """An embedding alone would have no B. The cut is another one, and the schedule is exported."""
    found = plan(problem_of("zero-bubble"), time_limit=None, workers=1)
    assert found.schedule is not None
    assert found.schedule.instance.complete
    export(found.schedule, "megatron-json", tmp_path / "megatron.json")


def test_an_export_that_is_refused_names_its_file(tmp_path: Path) -> None:
    instance = {"devices": 2, "microbatches": 4, "forward": 3, "backward": [0, 3], "weight": 3}
    problem = write(tmp_path, instance | {"placement": "linear"})
    assert call("solve", problem, "--method", "list", "-o", tmp_path / "s.json").returncode == 0
    done = call("export", tmp_path / "s.json", "--target", "megatron-json", "-o", tmp_path / "m.json")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "s.json: backward, weight = 0: the zero-bubble runtime computes both gradients" in done.stderr
