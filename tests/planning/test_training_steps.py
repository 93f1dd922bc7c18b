"""Plans are made for a whole training step: fused backwards, frozen layers, reductions and a barrier at its end."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call, write
from helpers.handmade_plans import full
from helpers.random_models import cases, taken
from hypothesis import given

from tightpipe import InputError, Placement, Status, validate
from tightpipe.model.costs import Objective
from tightpipe.model.instance import Instance
from tightpipe.model.metrics import costs
from tightpipe.model.operation import OpKind
from tightpipe.model.schedule import Schedule
from tightpipe.planning import (
    Batch,
    Candidate,
    Cluster,
    Layer,
    Model,
    Plan,
    PlanningProblem,
    SearchSpace,
    load_problem,
    plan,
)
from tightpipe.planning.candidate import instance_of
from tightpipe.planning.problem_file import problem_from_dict, problem_to_dict

FROZEN, TRAINED = Layer("frozen", 3, 0, 0), Layer("trained", 1, 1, 1)
TWO_OF_EACH = Model((FROZEN, FROZEN, TRAINED, TRAINED))


def problem_of(model: Model, devices: int = 2, microbatches: int = 8, **space: Any) -> PlanningProblem:
    searched = SearchSpace(**{"placements": ("linear",), **space})
    return PlanningProblem(model, Cluster((devices,)), Batch(microbatches), searched)


def data_of(layers: list[dict[str, Any]], **cluster: Any) -> dict[str, Any]:
    return {
        "layers": layers,
        "cluster": {"devices": 2, **cluster},
        "batch": {"microbatches": 8},
        "search": {"placements": ["linear"]},
    }


BLOCK = {"name": "block", "count": 4, "forward": 10, "backward": 11, "weight": 9, "parameters": 100}


def step_of(schedule: Schedule) -> int:
    """Return when the last device has ended its step, from the operations and the instance alone."""
    instance, ends = schedule.instance, []
    step = instance.step
    for device in range(instance.devices):
        rows = schedule.order.rows(device)
        stages, end = schedule.order.operations[rows, 1].tolist(), schedule.end[rows].tolist()
        last: dict[int, int] = {}
        for stage, tick in zip(stages, end, strict=True):
            last[stage] = max(tick, last.get(stage, 0))
        free = 0
        for stage, tick in sorted(last.items(), key=lambda item: item[1]):
            free = max(free, tick) + (0 if step is None else step.reduce[stage])  # type: ignore[index]
        ends.append(max(free, *end) + (0 if step is None else step.optimizer[device]))  # type: ignore[index]
    return max(ends)


# frozen layers


@pytest.mark.parametrize(("objective", "cost"), [(None, 54), (Objective.DEVICE_SPAN, 48)])
def test_frozen_layers_are_cut_like_any_other(objective: Objective | None, cost: int) -> None:
    """Device 0 runs 8 x 6 ticks of F; the last microbatch then takes 6 ticks on device 1."""
    space = {} if objective is None else {"objective": objective}
    found = plan(problem_of(TWO_OF_EACH, **space), time_limit=None, workers=1)
    assert (found.status, found.cost) == (Status.OPTIMAL, cost)


def test_a_plan_of_a_model_with_adapters_has_stages_without_a_weight_gradient() -> None:
    """Frozen blocks pass the gradient on to the adapter before them."""
    model = Model((Layer("adapter", 2, 2, 2), *(Layer("block", 4, 4, 0),) * 3))
    found = plan(problem_of(model, devices=4), time_limit=None, workers=1)
    assert found.instance is not None
    has = [[found.instance.has(kind, s) for kind in (OpKind.B, OpKind.W)] for s in range(4)]
    assert has == [[True, True], [True, False], [True, False], [True, False]]


def test_a_layer_without_backward_is_no_stage_behind_one_that_needs_a_gradient() -> None:
    model = Model((TRAINED, Layer("norm", 1, 0, 0), TRAINED, TRAINED))
    found = plan(problem_of(model, devices=3), time_limit=None, workers=1)
    assert found.candidate is not None
    assert found.status is Status.OPTIMAL
    assert (1, 2) not in found.candidate.stages
    with pytest.raises(InputError, match="lacks an F, or a B that passes the gradient on"):
        instance_of(
            problem_of(model, devices=4), Candidate(Placement("linear", 4), (0, 1, 2, 3, 4), ((),) * 4)
        )


def test_a_model_that_cannot_be_cut_is_one_line(tmp_path: Path) -> None:
    layers = [{"forward": 1, "backward": 1, "weight": 1}, {"forward": 1, "backward": 0, "weight": 0}]
    done = call("plan", write(tmp_path, data_of(layers)))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "layers = 2: can be cut into at most 1 stages that have an F, and a B" in done.stderr


def test_a_frozen_stage_keeps_no_memory_and_recomputes_nothing() -> None:
    frozen, trained = (replace(each, activation=10, recompute=full(5, 1)) for each in (FROZEN, TRAINED))
    asked = problem_of(Model((frozen, frozen, trained)), recompute=("full",))
    asked = replace(asked, cluster=Cluster((2,), memory=25))
    linear = Placement("linear", 2)
    instance = instance_of(asked, Candidate(linear, (0, 2, 3), ((), ())))
    assert [instance.memory_while_running(s) for s in (0, 1)] == [20, 0]
    assert [instance.memory_delta(OpKind.F, s) for s in (0, 1)] == [0, 10]
    with pytest.raises(InputError, match="has no B in which layers could be recomputed"):
        instance_of(asked, Candidate(linear, (0, 2, 3), (((0, "full"),), ())))


# fused backwards


def test_fused_times_of_layers_add_up_where_a_layer_has_both_gradients() -> None:
    """Layers without one of the two take what they have, whatever `fused` says."""
    layers = (
        Layer("a", 5, 4, 3, fused=6),
        Layer("b", 5, 4, 0, fused=1),
        Layer("c", 5, 4, 3),
        Layer("d", 5, 6, 3, fused=8, activation=2, recompute=full(5, 0)),
    )
    asked = problem_of(Model(layers), recompute=("full",))
    instance = instance_of(asked, Candidate(Placement("linear", 2), (0, 2, 4), ((), ((3, "full"),))))
    assert [instance.duration(OpKind.BW, s) for s in (0, 1)] == [6 + 4, 7 + 8 + 5]
    assert [instance.duration(OpKind.B, s) for s in (0, 1)] == [8, 10 + 5]


def test_a_plan_fuses_where_that_is_cheaper() -> None:
    """One device runs 8 x (10 + 15) ticks if it fuses all backwards, and 8 x 30 if it splits them."""
    found = plan(
        problem_of(Model((Layer("block", 10, 11, 9, fused=15),)), devices=1), time_limit=None, workers=1
    )
    assert (found.status, found.cost) == (Status.OPTIMAL, 8 * 25)


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ({"fused": 0}, "layers[0].fused = 0: must be at least 1"),
        ({"fused": -3}, "layers[0].fused = -3: must be at least"),
        ({"fused": 1.5}, "layers[0].fused = 1.5: must be whole ticks; round it to 2"),
        ({"backward": -1}, "layers[0].backward = -1: must be at least 0"),
    ],
)
def test_a_wrong_entry_of_a_layer_is_one_line(tmp_path: Path, entry: dict[str, Any], line: str) -> None:
    done = call("plan", write(tmp_path, data_of([{**BLOCK, **entry}])))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr


# what comes after the operations


def reductions(**keys: Any) -> PlanningProblem:
    data = data_of([BLOCK], **keys)
    data["batch"]["data_parallel"] = 4
    return problem_from_dict(data)


def instance_with(**keys: Any) -> Instance:
    return instance_of(reductions(**keys), Candidate(Placement("linear", 2), (0, 1, 4), ((), ())))


def test_plain_data_parallelism_sends_each_gradient_twice() -> None:
    """Of N = 100 x 4 and 300 x 4 bytes, 3 of 4 shares are sent, twice, at 10 bytes per tick."""
    step = instance_with(reduce_bandwidth=10, reduce_latency=2, optimizer=0.5).step
    assert step is not None
    assert step.ready == (0, 0)
    assert step.reduce == (2 + 400 * 2 * 3 // 4 // 10, 2 + 1200 * 2 * 3 // 4 // 10)
    assert step.optimizer == (50, 150)


def test_a_sharded_optimizer_updates_its_share_and_gathers_parameters() -> None:
    step = instance_with(reduce_bandwidth=10, gather_bytes=2, reduce_bytes=4, optimizer=0.5).step
    assert step is not None
    assert step.ready == (200 * 3 // 4 // 10, 600 * 3 // 4 // 10)
    assert step.reduce == (400 * 3 // 4 // 10, ceil(1200 * 3 / 4 / 10))
    assert step.optimizer == (ceil(50 / 4), ceil(150 / 4))


def test_frozen_parameters_are_not_reduced_and_other_objectives_know_no_reduction() -> None:
    frozen = problem_from_dict(data_of([{**BLOCK, "weight": 0}], reduce_bandwidth=1, optimizer=1))
    step = instance_of(frozen, Candidate(Placement("linear", 2), (0, 1, 4), ((), ()))).step
    assert step is not None
    assert not any((*step.ready, *step.reduce, *step.optimizer))  # type: ignore[misc]
    asked = reductions(reduce_bandwidth=1)
    spanned = replace(asked, space=replace(asked.space, objective=Objective.DEVICE_SPAN))
    assert instance_of(spanned, Candidate(Placement("linear", 2), (0, 1, 4), ((), ()))).step is None


def test_the_keys_of_reductions_are_kept_in_files() -> None:
    for keys in ({"optimizer": 0.25}, {"reduce_bandwidth": 3, "gather_bytes": 2, "optimizer": 0.5}):
        asked = reductions(**keys)
        assert problem_from_dict(problem_to_dict(asked)) == asked


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"reduce_latency": 3}, "cluster.reduce_latency = 3: needs cluster.reduce_bandwidth beside it"),
        ({"reduce_bandwidth": 0}, "cluster.reduce_bandwidth = 0: must be above 0"),
        ({"optimizer": -1}, "cluster.optimizer = -1: must be from 0 to"),
        ({"gpus": 7}, "cluster.gpus = 7: must be a multiple of the devices of a pipeline, 2"),
        (
            {"gpus": 8, "devices": [2, 4]},
            "cluster.gpus = 8: needs one number in cluster.devices; plan --devices 2,4 ",
        ),
    ],
)
def test_a_wrong_entry_of_a_cluster_is_one_line(tmp_path: Path, keys: dict[str, Any], line: str) -> None:
    done = call("plan", write(tmp_path, data_of([BLOCK], **keys)))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr


def test_data_parallelism_follows_from_the_number_of_gpus() -> None:
    asked = problem_from_dict(data_of([BLOCK], gpus=16))
    assert asked.batch.data_parallel == 8
    with pytest.raises(InputError, match=r"contradicts cluster\.gpus: 16 GPUs are 8 pipelines"):
        problem_from_dict({**data_of([BLOCK], gpus=16), "batch": {"microbatches": 8, "data_parallel": 4}})


def test_a_frontier_over_devices_ranks_degrees_with_what_data_parallelism_takes(tmp_path: Path) -> None:
    """Four pipelines of one device reduce all parameters, one of four devices none."""
    slow = data_of([{**BLOCK, "parameters": 10**6}], gpus=4, reduce_bandwidth=2 * 10**4)
    degrees = {}
    for name, cluster in (("slow", {}), ("fast", {"reduce_bandwidth": 10**9})):
        data = {**slow, "cluster": {**slow["cluster"], **cluster}}
        folder = tmp_path / name
        answer = call(
            *("plan", write(tmp_path, data, f"{name}.json"), "--devices", "1,2,4", "--time-limit", "3"),
            *("--workers", "1", "-o", str(folder), "--json"),
        )
        rows = json.loads(answer.stdout)["rows"]
        assert [row["pipelines"] for row in rows] == [4, 2, 1]
        degrees[name] = next(int(row["devices"]) for row in rows if row["of_the_fastest"] == 1.0)
    assert degrees == {"slow": 4, "fast": 1}


# the cost that is printed


@given(cases())
def test_the_cost_of_a_step_follows_from_the_schedule(case: tuple[PlanningProblem, Placement]) -> None:
    from tightpipe.base.errors import NoScheduleError
    from tightpipe.heuristics import HEURISTICS
    from tightpipe.registry.starts import schedule_of

    problem, placement = case
    problem = replace(problem, space=replace(problem.space, objective=Objective.STEP))
    _, candidate = next(taken(problem, placement), (0, None))
    if candidate is None:
        return
    try:
        schedule = schedule_of(instance_of(problem, candidate), HEURISTICS["list"])
    except NoScheduleError:
        return
    assert not validate(schedule.instance, schedule)
    assert costs(schedule)["step"] == step_of(schedule)


def printed(found: Plan) -> dict[str, str]:
    return dict(
        line.split(maxsplit=1) for line in str(found).splitlines() if len(line.split(maxsplit=1)) == 2
    )


def test_a_plan_names_its_objective_and_the_costs_under_the_others() -> None:
    found = plan(problem_of(TWO_OF_EACH), time_limit=None, workers=1)
    assert found.schedule is not None
    assert not validate(found.schedule.instance, found.schedule)
    assert step_of(found.schedule) == found.cost == 54
    spans = [
        found.schedule.end[rows].max() - found.schedule.start[rows].min()
        for rows in map(found.schedule.order.rows, range(2))
    ]
    assert printed(found)["objective"] == f"step (the same schedule: device_span {max(spans)}, makespan 54)"


def test_the_default_objective_of_a_model_file_is_a_step_with_a_barrier() -> None:
    assert problem_from_dict(data_of([BLOCK])).space.objective is Objective.STEP


# models from the command line


@pytest.mark.parametrize(
    ("discount", "fused", "said"),
    [
        ("0.1", 0.9, "10.0% less than B and W, as stated"),
        ("measured", 0.86, "14.0% less than B and W, as PyTorch"),
    ],
)
def test_a_model_file_says_where_its_fused_times_come_from(
    tmp_path: Path, discount: str, fused: float, said: str
) -> None:
    path = tmp_path / "model.toml"
    assert call("costs", "model", "llama-2-7b", "--discount", discount, "-o", path).returncode == 0
    block = load_problem(path).model.layers[1]
    assert block.fused == round(fused * (block.backward + block.weight))
    assert said in path.read_text()
    assert 'objective = "step"' in path.read_text()


@pytest.mark.parametrize("discount", ["1", "-0.1", "much"])
def test_a_wrong_discount_is_one_line(discount: str) -> None:
    done = call("costs", "model", "llama-2-7b", "--discount", discount)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "discount" in done.stderr


# numbers that mean something else than they seem to


@pytest.mark.parametrize(
    ("layer", "cluster", "said"),
    [
        (
            {"output": 8},
            {"bandwidth": 50},
            "cluster.bandwidth 50 bytes per tick = 0.05 GB/s at 1 us",
        ),
        (
            {"output": 8},
            {"bandwidth": 10**5, "latency": 10**5},
            "cluster.latency 100000 ticks = 0.1 s at 1 us",
        ),
        ({}, {"optimizer": 1}, "= 1000 s for a billion parameters at 1 us"),
        ({"forward": 10**8}, {}, "forward 100000000 of layer 0 (block) = 100 s of a microbatch at 1 us"),
        (
            {"fused": 21},
            {},
            "fused 21 of layer 0 (block) is more than backward + weight, 20: fusing never pays",
        ),
        ({"fused": 10}, {}, "fused 10 of layer 0 (block) is less than the longer one of backward and weight"),
    ],
)
def test_an_unusual_number_is_explained(
    tmp_path: Path, layer: dict[str, Any], cluster: dict[str, Any], said: str
) -> None:
    path = write(tmp_path, data_of([{**BLOCK, **layer}], **cluster))
    done = call("plan", path, "--time-limit", "2", "--workers", "1", "--json")
    assert done.returncode in (0, 1)
    assert "tightpipe: warning: " in done.stderr
    assert said in done.stderr
    assert any(said in text for text in json.loads(done.stdout)["warnings"])


def test_usual_numbers_are_not_mentioned(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    call("costs", "model", "llama-2-7b", "-o", str(path))
    done = call("plan", path, "--time-limit", "1", "--workers", "1", "--json")
    assert "warning" not in done.stderr
    assert "warnings" not in json.loads(done.stdout)


def test_half_a_tick_of_a_discounted_network_is_exact() -> None:
    asked = reductions(reduce_bandwidth=0.1)
    assert asked.cluster.gradients is not None
    assert asked.cluster.gradients.bandwidth == Fraction(1, 10)
