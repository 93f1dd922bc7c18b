"""Plans that choose into how many slices, and of which lengths, microbatches are cut."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call
from helpers.independent_model import optimal_schedule

from tightpipe import InputError, MicrobatchSlice, Placement, plan
from tightpipe.heuristics import HEURISTICS
from tightpipe.model.metrics import cost, peak_memory
from tightpipe.model.simulate import retime
from tightpipe.planning import Candidate, PlanningProblem, problem_from_dict, problem_to_dict, split_of
from tightpipe.planning.candidate import bytes_lacking, check_candidate, instance_of
from tightpipe.planning.candidates_by_list import all_cuts
from tightpipe.planning.configuration import configurations_of
from tightpipe.planning.partitions import partitions_of
from tightpipe.planning.plan_file import load_plan, save_plan
from tightpipe.planning.public_models import find_shape, load_gpus
from tightpipe.planning.shapes import Training, problem_of

BLOCK = {
    "count": 4,
    "forward": {"tokens": 0.5, "squares": 0.01},
    "backward": {"tokens": 0.5, "squares": 0.02},
    "weight": {"tokens": 0.5},
    "activation": {"tokens": 4},
    "weight_activation": {"tokens": 1},
}


def model(layers: list[dict[str, Any]] | None = None, **changed: Any) -> dict[str, Any]:
    tables = {
        "cluster": {"devices": 2, "comm": 1},
        "batch": {"microbatches": 2, "microbatch_size": 1, "sequence_length": 24},
        "search": {"placements": ["linear"], "slices": [1, 2, 3], "objective": "makespan"},
    }
    return {"layers": layers or [BLOCK], **{key: {**tables[key], **changed.get(key, {})} for key in tables}}


def candidates(
    problem: PlanningProblem, slicings: Iterable[tuple[int, ...]] | None = None
) -> list[Candidate]:
    (devices,) = problem.cluster.devices
    placement = Placement(problem.space.placements[0], devices)
    cuts = all_cuts(len(problem.model.layers), placement.stages)
    return [
        Candidate(placement, one, ((),) * placement.stages, k)
        for one, k in product(cuts, slicings or problem.slicings)
    ]


def least_of(problem: PlanningProblem, some: list[Candidate]) -> int | None:
    """Return the least cost of all schedules of some candidates; None if none of them fits."""
    found = None
    for candidate in some:
        try:
            instance = instance_of(problem, candidate)
        except InputError:  # no activation fits
            continue
        if instance.infeasibility() is None:
            least = cost(optimal_schedule(instance))
            found = least if found is None else min(found, least)
    return found


def random_problem(seed: int, **search: Any) -> PlanningProblem:
    rng = random.Random(seed)

    def law(*keys: str) -> dict[str, float]:
        return {key: rng.choice((0.05, 0.2, 0.5)) / (9 if key == "squares" else 1) for key in keys}

    layers = [
        {
            "forward": law("tokens", "squares"),
            "backward": law("tokens", "squares"),
            "weight": law("tokens"),
            "activation": {"tokens": 2},
            "weight_activation": {"tokens": 1},
        }
        for _ in range(rng.choice((3, 4)))
    ]
    memory = {"memory": rng.choice((60, 75, 100))} if rng.random() < 0.5 else {}
    return problem_from_dict(
        model(
            layers,
            cluster={"comm": rng.randint(0, 2), **memory},
            batch={"microbatches": rng.choice((1, 2)), "sequence_length": 10},
            search={
                "slices": [1, 2],
                "objective": rng.choice(("makespan", "device_span", "step")),
                **search,
            },
        )
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_plan_and_its_bound_are_those_of_the_best_cut_in_the_best_slices(seed: int) -> None:
    problem = random_problem(seed)
    best = least_of(problem, candidates(problem))
    answer = plan(problem, time_limit=None, workers=1)
    if best is None:
        assert answer.cost is None
    else:
        assert answer.cost is not None
        assert answer.bound is not None
        assert answer.bound <= best <= answer.cost <= 1.05 * best


@pytest.mark.parametrize("seed", range(3))
def test_bounds_hold_for_slices_of_any_lengths(seed: int) -> None:
    problem = random_problem(seed, equal=["nothing"])
    every = [(x, problem.sequence - x) for x in range(1, problem.sequence)]
    whole, sliced = (least_of(problem, candidates(problem, some)) for some in ([()], every))
    for configuration in configurations_of(problem):
        best = sliced if configuration.slices else whole
        assert best is None or partitions_of(configuration).bound <= best
    best = min((one for one in (whole, sliced) if one is not None), default=None)
    answer = plan(problem, time_limit=None, workers=1)
    if best is not None:
        assert answer.cost is not None
        assert answer.bound is not None
        assert answer.bound <= best <= answer.cost <= 1.05 * best


def test_a_search_finds_better_lengths_than_equal_ones() -> None:
    data = model(
        batch={"microbatches": 1, "sequence_length": 60}, search={"slices": [3], "methods": ["seq-1f1b"]}
    )
    data["layers"] = [{**BLOCK, "backward": {"tokens": 0.5, "squares": 0.05}}]
    equal, free = (
        plan(problem_from_dict(data | {"search": data["search"] | more}), time_limit=None, workers=1)
        for more in ({}, {"equal": ["nothing"]})
    )
    assert equal.cost is not None
    assert free.cost is not None
    assert free.cost < equal.cost
    assert free.candidate is not None
    assert sum(free.candidate.slices) == 60
    check_candidate(free.problem, free.candidate)
    with pytest.raises(InputError, match=r"slices = .* as the problem has it"):
        check_candidate(equal.problem, free.candidate)


def test_few_microbatches_are_cut_and_many_stay_whole() -> None:
    """Launching kernels takes a fixed time for each slice, which only a short pipeline's bubble is worth."""
    fixed = {**BLOCK, "forward": {"tokens": 0.5, "fixed": 2}, "backward": {"tokens": 0.5, "fixed": 2}}
    few, many = (
        plan(
            problem_from_dict(model([fixed], batch={"microbatches": n, "sequence_length": 60})),
            time_limit=None,
            workers=1,
        )
        for n in (1, 12)
    )
    assert few.candidate is not None
    assert len(few.candidate.slices) in (2, 3)
    assert sum(few.candidate.slices) == 60
    assert many.candidate is not None
    assert many.candidate.slices == ()


def test_a_plan_in_slices_survives_its_file(tmp_path: Path) -> None:
    data = model(batch={"microbatches": 1}, search={"slices": [3]}, cluster={"memory": 1000})
    problem = problem_from_dict(data)
    assert problem_from_dict(json.loads(json.dumps(problem_to_dict(problem)))) == problem
    answer = plan(problem, time_limit=None, workers=1)
    save_plan(answer, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert (again.candidate, again.cost, again.peak_memory) == (
        answer.candidate,
        answer.cost,
        answer.peak_memory,
    )
    assert again.candidate is not None
    assert len(again.candidate.slices) == 3
    assert "slices        3 of " in str(again)
    with pytest.raises(InputError, match="slices = 3: must be left out: another program needs whole"):
        split_of(again)
    content = json.loads((tmp_path / "plan.json").read_text())
    content["slices"] = [20, 4]
    (tmp_path / "plan.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"slices = .* as the problem has it"):
        load_plan(tmp_path / "plan.json")


def test_a_device_holds_all_slices_of_a_microbatch_with_their_keys_and_values() -> None:
    problem = problem_from_dict(model(cluster={"memory": 10**6}, search={"slices": [3]}))
    for candidate in candidates(problem):
        instance = instance_of(problem, candidate)
        schedule = retime(instance, HEURISTICS["seq-1f1b"].order(instance))
        assert min(peak_memory(schedule)) >= 4 * 24 * 1  # a layer's activation of 24 tokens
        for size in (90, 100, 200, 300):
            scarce = replace(problem, cluster=replace(problem.cluster, memory=size))
            lacks = any(bytes_lacking(scarce, candidate))
            try:
                assert (instance_of(scarce, candidate).infeasibility() is not None) == lacks
            except InputError:  # not even one slice
                assert lacks


def test_slices_of_a_public_model_add_up_to_its_microbatches_and_are_as_equal_as_asked() -> None:
    shape = find_shape("llama-2-7b")
    training = Training(load_gpus()["h100"], sequence=32768, discount=0.1)
    problem = problem_of(shape, training, devices=2, microbatches=1, slices=(1, 4))
    plain = problem_of(shape, training, devices=2, microbatches=1).model
    for one, other in zip(problem.model.layers, plain.layers, strict=True):
        assert replace(one, fused=None) == replace(other, fused=None)
        assert one.fused == pytest.approx(other.fused, abs=1)  # of times that are rounded before or after
    whole, *slicings = (problem.units(slices) for slices in problem.slicings)
    assert whole == (problem.model,)
    for units, keys in zip(slicings, ((), ("forward",), ("forward", "backward", "weight")), strict=True):
        for key in ("forward", "backward", "weight", "fused", "activation"):
            parts = [getattr(unit.layers[3], key) for unit in units]
            assert sum(parts) == pytest.approx(getattr(problem.model.layers[3], key), abs=4)
        times = [sum(getattr(layer, key) for layer in unit.layers for key in keys) for unit in units]
        assert max(times) <= 1.001 * min(times)
    assert problem.slicings[1] == (8192,) * 4
    assert all(list(slices) == sorted(slices, reverse=True) for slices in problem.slicings[1:])


def test_every_slice_has_a_token_however_unequal_their_times_are() -> None:
    steep = {**BLOCK, "forward": {"squares": 1}, "backward": {"squares": 1}, "weight": {"squares": 1}}
    problem = problem_from_dict(model([steep], batch={"sequence_length": 5}, search={"slices": [5]}))
    assert problem.slicings == ((1,) * 5,)


WRONG = [
    (
        model([{"count": 4, "forward": 3, "backward": 3, "weight": 3}]),
        "search.slices = [1, 2, 3]: needs layers whose costs are laws",
    ),
    (model(search={"slices": [25]}), "search.slices = [25]: must be at most the tokens of a sequence, 24"),
    (model(search={"slices": [0]}), "search.slices[0] = 0: must be at least 1"),
    (model(search={"slices": "two"}), "search.slices = 'two': must be an integer"),
    (
        model(search={"equal": ["words"]}),
        "search.equal[0] = 'words': must be one of tokens, forward, all, nothing",
    ),
    (
        model(search={"runtime": "torch"}),
        "search.slices = [1, 2, 3]: must be 1 for PyTorch, which runs whole microbatches",
    ),
    (
        model([{**BLOCK, "forward": {"tokens": 1, "fixed": -9}}], search={"slices": [4]}),
        "layers[0] (layer) forward = -3.0: must be above 0: the law at 6 tokens",
    ),
    (
        model([{**BLOCK, "activation": {"tokens": 2, "fixed": -15}}], search={"slices": [4]}),
        "layers[0] (layer) activation = -3.0: must be 0 or more: the law at 6 tokens",
    ),
    (
        model([{**BLOCK, "weight_activation": {"tokens": 5}}]),
        "layers[0] (layer) weight_activation = 120: must be at most activation, 96",
    ),
    (
        model([{**BLOCK, "forward": {"words": 3}}]),
        "words = 3: unknown key in layers[0].forward; known are fixed, tokens, squares",
    ),
    (
        model([{**BLOCK, "backward": {"tokens": "3"}}]),
        "layers[0].backward.tokens = '3': must be a number, or a law",
    ),
]


@pytest.mark.parametrize(("data", "said"), WRONG)
def test_what_slices_cannot_be_is_said_in_one_line(data: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        problem_from_dict(data)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_laws_need_the_tokens_of_a_microbatch() -> None:
    data = model()
    data["batch"] = {"microbatches": 2}
    with pytest.raises(InputError, match="missing key 'sequence_length' in batch"):
        problem_from_dict(data)


def test_the_commands_write_and_plan_a_model_in_slices(tmp_path: Path) -> None:
    call(
        *("costs", "model", "llama-2-7b", "--devices", "4", "--microbatches", "4", "--sequence", "16384"),
        *("--slices", "1,4", "-o", "long.toml"),
        cwd=tmp_path,
    )
    with (tmp_path / "long.toml").open("a") as file:
        file.write('placements = ["linear"]\nmethods = ["1f1b", "seq-1f1b"]\n')
    done = call("plan", "long.toml", "--time-limit", "2", "-o", "plan.json", "--json", cwd=tmp_path)
    assert len(json.loads(done.stdout)["slices"]) == 4
    refused = call("costs", "model", "llama-2-7b", "--slices", "1,x", cwd=tmp_path)
    assert refused.returncode == 2
    rule = "must be numbers with commas between them, e.g. 1,2,4,8"
    assert refused.stderr == f"tightpipe: slices = '1,x': {rule}\n"


def test_a_slice_has_its_own_fused_backward() -> None:
    problem = problem_from_dict(model([{**BLOCK, "fused": {"tokens": 0.75, "squares": 0.02}}]))
    instance = instance_of(problem, next(c for c in candidates(problem) if len(c.slices) == 2))
    assert len(instance.slices) == 2
    for one, slice_end in zip(instance.slices, (12, 24), strict=True):
        assert isinstance(one, MicrobatchSlice)
        squares = slice_end**2 - (slice_end - 12) ** 2
        assert one.fused[0] == round(0.75 * 12 + 0.02 * squares)  # type: ignore[index]  # one layer
