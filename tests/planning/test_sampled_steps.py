"""Plans for many steps, whose batches are sampled from a distribution of lengths."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.clock import counted_time
from helpers.command_line import call

from tightpipe import InputError, Placement, StepPlanner, load_law, plan, solve, validate
from tightpipe.model.instance_file import law_from_dict, law_to_dict
from tightpipe.model.metrics import cost
from tightpipe.planning import Candidate, problem_from_dict, problem_to_dict
from tightpipe.planning.candidates_by_list import all_cuts
from tightpipe.planning.many_steps import StepsPlan, law_of_stages, least_cost, plan_steps
from tightpipe.planning.problem_file import load_problem

LAYERS = [
    {
        "name": f"block {i}",
        "forward": {"tokens": forward, "squares": 0.002},
        "backward": {"tokens": forward, "squares": 0.004},
        "weight": {"tokens": forward},
        "activation": {"tokens": 4},
        "weight_activation": {"tokens": 2},
    }
    for i, forward in enumerate((1, 1, 2, 1, 3, 1))
]
BATCH = {"lengths": {"median": 60, "sigma": 0.8, "most": 400}, "sequences": 6, "steps": 3, "seed": 5}


def model(layers: Any = None, **changed: Any) -> dict[str, Any]:
    tables = {
        "cluster": {"devices": 2, "comm": 3, "memory": 20000},
        "batch": BATCH,
        "search": {"placements": ["linear", "v"], "objective": "makespan"},
    }
    return {"layers": layers or LAYERS, **{key: {**tables[key], **changed.get(key, {})} for key in tables}}


@pytest.fixture(scope="module")
def answer() -> StepsPlan:
    with counted_time():
        return plan_steps(problem_from_dict(model()), time_limit=3, workers=1)


def test_the_figures_are_those_of_validated_schedules_of_the_sampled_batches(answer: StepsPlan) -> None:
    assert answer.candidate is not None
    sampling = answer.problem.batch.sampling
    assert sampling is not None
    law = law_of_stages(answer.problem, answer.candidate)
    assert len(answer.results) == len(sampling.batches) == 3
    for batch, result in zip(sampling.batches, answer.results, strict=True):
        assert result.schedule is not None
        assert result.schedule.instance == law.instance(batch)
        assert validate(result.schedule.instance, result.schedule) == []
    costs = [cost(result.schedule) for result in answer.results if result.schedule is not None]
    assert answer.mean == np.mean(costs)
    assert answer.percentile == np.quantile(costs, 0.95)
    assert answer.bound_of_orders is not None
    assert answer.bound <= answer.bound_of_orders + 1e-9 <= np.mean(costs) + 1e-9


def test_no_cut_has_a_lower_mean_than_the_bound_and_few_a_lower_one_than_the_plan(answer: StepsPlan) -> None:
    problem = answer.problem
    assert problem.batch.sampling is not None
    batches = problem.batch.sampling.batches
    means = []
    for name in ("linear", "v"):
        placement = Placement(name, 2)
        for cuts in all_cuts(6, placement.stages):
            law = law_of_stages(problem, Candidate(placement, cuts, ((),) * placement.stages))
            found = [solve(law.instance(batch), "list", time_limit=0, workers=1) for batch in batches]
            assert all(one.bound is not None for one in found)
            for batch, one in zip(batches, found, strict=True):
                assert one.cost is None or one.cost >= least_cost(problem, batch)
            if all(one.cost is not None for one in found):
                means.append(np.mean([one.cost for one in found if one.cost is not None]))
    assert min(means) >= answer.bound
    assert answer.mean is not None
    assert answer.mean <= min(means) * 1.05


def test_the_bound_holds_where_layers_round_down() -> None:
    tiny = [{key: {"tokens": 0.49} for key in ("forward", "backward", "weight")} for _ in range(4)]
    data = model(tiny, batch={"lengths": [1], "sequences": 3}, cluster={"devices": 2, "memory": None})
    del data["cluster"]["memory"]
    problem = problem_from_dict(data)
    law = law_of_stages(problem, Candidate(Placement("linear", 2), (0, 2, 4), ((), ())))
    assert law_from_dict(law_to_dict(law)).limit is None
    found = solve(law.instance([1, 1, 1]), "best", effort=2, workers=1)
    assert found.cost is not None
    assert least_cost(problem, ((1,),) * 3) <= found.cost


def test_a_cut_for_the_sampled_batches_is_no_worse_than_that_for_their_mean(answer: StepsPlan) -> None:
    problem = answer.problem
    assert problem.batch.sampling is not None
    with counted_time():
        mean = plan(replace(problem, batch=replace(problem.batch, sampling=None)), time_limit=1, workers=1)
        assert mean.candidate is not None
        planner = StepPlanner(law_of_stages(problem, mean.candidate))
        costs = [planner.order(batch, time_limit=0.3).cost or 0 for batch in problem.batch.sampling.batches]
    assert answer.mean is not None
    assert answer.mean <= np.mean(costs) * 1.05


def test_all_plans_run_the_same_batches() -> None:
    one, again, other = (
        problem_from_dict(model(batch={**BATCH, "seed": seed})).batch.sampling for seed in (1, 1, 2)
    )
    assert one is not None
    assert again is not None
    assert other is not None
    assert one.batches == again.batches != other.batches
    assert max(length for batch in one.batches for (length,) in batch) <= 400


def test_lengths_of_a_file_are_packed_into_microbatches(tmp_path: Path) -> None:
    (tmp_path / "lengths.csv").write_text("length\n30\n50\n70\n")
    data = model(batch={"lengths": "lengths.csv", "tokens": 100, "sequences": 20})
    (tmp_path / "model.json").write_text(json.dumps(data))
    problem = load_problem(tmp_path / "model.json")
    assert problem.batch.sampling is not None
    batches = problem.batch.sampling.batches
    assert {length for batch in batches for one in batch for length in one} == {30, 50, 70}
    assert max(sum(one) for batch in batches for one in batch) <= 100
    assert sum(len(one) for one in batches[0]) == 20
    assert problem_from_dict(json.loads(json.dumps(problem_to_dict(problem)))) == problem
    mean = np.mean([len(batch) for batch in batches])
    assert problem.batch.microbatches == round(mean)


def test_recomputed_layers_have_the_laws_of_their_kind() -> None:
    kind = {"name": "full", "ticks": {"tokens": 1}, "activation": {"tokens": 3}}
    layers = [{**layer, "recompute": [kind], "fused": {"tokens": 2}} for layer in LAYERS]
    problem = problem_from_dict(model(layers, search={"recompute": ["full"]}))
    assert problem_from_dict(problem_to_dict(problem)) == problem
    placement = Placement("linear", 2)
    plain, again = (
        law_of_stages(problem, Candidate(placement, (0, 3, 6), (chosen, ())))
        for chosen in ((), ((1, "full"),))
    )
    assert plain.memory is not None
    assert again.memory is not None
    assert again.memory[0][0].tokens == plain.memory[0][0].tokens - 1
    assert again.backward[0].tokens == plain.backward[0].tokens + 1
    assert plain.fused is not None
    assert again.fused is not None
    assert again.fused[0].tokens == plain.fused[0].tokens + 1
    assert isinstance(again.limit, tuple)
    assert isinstance(plain.limit, tuple)
    assert again.limit[0] < plain.limit[0]  # B takes the rest back while it runs


def test_the_limit_leaves_room_for_what_recomputation_takes_at_the_most_squares_as_well() -> None:
    """Of 100 tokens ten rows of ten have 1,000 squares, and one row of 99 tokens has 9,801."""
    kind = {"name": "full", "ticks": {"tokens": 1}, "activation": 1}
    layers = [{**layer, "activation": {"tokens": 1, "squares": 1}, "recompute": [kind]} for layer in LAYERS]
    layers = [{**layer, "weight_activation": 1} for layer in layers]
    lengths = {"lengths": [10, 99], "tokens": 100, "sequences": 11}
    problem = problem_from_dict(
        model(layers, batch=lengths, cluster={"memory": 100_000}, search={"recompute": ["full"]}) | {}
    )
    assert problem.batch.sampling is not None
    found = Candidate(Placement("linear", 2), (0, 3, 6), (((1, "full"),), ()))
    law = law_of_stages(problem, found)
    assert isinstance(law.limit, tuple)
    largest = max(tokens + squares for tokens, squares in problem.batch.sampling.points)
    assert law.limit[0] <= 100_000 - (largest - 1)


def test_sampled_steps_do_not_take_methods() -> None:
    with pytest.raises(InputError, match=r"search\.methods = \['1f1b'\]: must be left out"):
        problem_from_dict(model(search={"methods": ["1f1b"]}))


def test_the_table_counts_recomputed_layers_by_kind(answer: StepsPlan) -> None:
    kinds = [{"name": name, "ticks": 1, "activation": 2} for name in ("half", "full")]
    layers = [{**layer, "recompute": kinds} for layer in LAYERS]
    problem = problem_from_dict(model(layers, search={"recompute": ["half", "full"]}))
    chosen = ((0, "full"), (1, "half"), (2, "full"))
    found = Candidate(Placement("linear", 2), (0, 3, 6), (chosen, ()))
    table = str(replace(answer, problem=problem, candidate=found)).splitlines()
    assert [line.split()[-1] for line in table[-2:]] == ["1+2", "0+0"]


def test_the_command_writes_the_law_of_the_stages_for_the_planner_of_steps(tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps(model()))
    done = call("plan", "model.json", "--time-limit", "1", "-o", "law.json", "--json", cwd=tmp_path)
    figures = json.loads(done.stdout)
    assert figures["bound"] <= figures["mean"] <= figures["percentile"]
    law = load_law(tmp_path / "law.json")
    assert (law.placement.name, law.placement.stages) == (figures["placement"], len(figures["stages"]))
    assert json.loads((tmp_path / "law.json").read_text())["stages"] == figures["stages"]
    (tmp_path / "step.csv").write_text("length\n90\n20\n40\n")
    call("solve", "law.json", "--lengths", "step.csv", "--method", "list", cwd=tmp_path)


@pytest.mark.parametrize("option", ["--alternatives", "--memory", "--devices"])
def test_tables_of_plans_refuse_sampled_steps(option: str, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_text(json.dumps(model()))
    value = () if option == "--alternatives" else ("2",)
    done = call("plan", "model.json", option, *value, cwd=tmp_path)
    assert done.returncode == 2
    assert "must be left out with --alternatives, --memory and --devices" in done.stderr


def test_a_microbatch_that_fits_nowhere_is_named() -> None:
    with counted_time(per_look=0):
        answer = plan_steps(problem_from_dict(model(cluster={"memory": 2000})), time_limit=1, workers=1)
    assert answer.mean is None
    assert re.match(r"a sampled batch (does not fit|has no schedule): memory.limit", answer.reason)


WRONG = [
    ({"lengths": [0]}, "batch.lengths[0] = 0: must be at least 1"),
    ({"lengths": []}, "batch.lengths = []: must be a list of lengths, a CSV file of them, or { median"),
    ({"lengths": [90], "tokens": 80}, "batch.lengths[0] = 90: must be at most 80"),
    ({"lengths": {"median": 0, "sigma": 1}}, "batch.lengths.median = 0: must be a number from 1 to"),
    ({"lengths": {"median": 9, "sigma": -1}}, "batch.lengths.sigma = -1: must be a number from 0 to 10"),
    ({"lengths": {"median": 9, "sigma": 1, "most": 0}}, "batch.lengths.most = 0: must be at least 1"),
    ({"lengths": {"median": 9}}, "missing key 'sigma' in batch.lengths; required are median, sigma"),
    ({"sequences": 0}, "batch.sequences = 0: must be at least 1"),
    ({"steps": 10**6}, "batch.steps = 1000000: must be at most 1000"),
    ({"steps": 11, "sequences": 10**4}, "batch.steps = 11: must be at most 10: all steps have at most"),
    ({"microbatches": 4}, "microbatches = 4: unknown key in batch; known are lengths, sequences, tokens"),
]


@pytest.mark.parametrize(("changed", "said"), WRONG)
def test_what_a_distribution_cannot_be_is_said_in_one_line(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        problem_from_dict(model(batch={**BATCH, **changed}))
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_distributions_need_laws_that_give_times_and_whole_microbatches() -> None:
    plain = [{"count": 6, "forward": 3, "backward": 3, "weight": 3}]
    negative = [{**LAYERS[0], "count": 6, "forward": {"tokens": 1, "fixed": -30}}]
    for data, said in (
        (model(plain), "batch.lengths: needs layers whose costs are laws"),
        (model(negative), r"layers\[0\] \(block 0\) forward = -.*: must be above 0: the law at .* tokens"),
        (model(search={"slices": [2]}), r"search.slices = \[2\]: must be 1 where batch.lengths says"),
        (model(search={"runtime": "torch"}), "batch.lengths: must be left out for PyTorch"),
    ):
        with pytest.raises(InputError, match=said):
            problem_from_dict(data)
    with pytest.raises(InputError, match=r"batch\.lengths: needs plan_steps"):
        plan(problem_from_dict(model()))
    whole = model()
    whole["batch"] = {"microbatches": 4, "microbatch_size": 1, "sequence_length": 50}
    with pytest.raises(InputError, match="missing key 'lengths' in batch"):
        plan_steps(problem_from_dict(whole))


def test_several_rows_of_layers_and_placements_are_bounded_by_the_least(answer: StepsPlan) -> None:
    problem = answer.problem
    assert problem.batch.sampling is not None
    batch = problem.batch.sampling.batches[0]
    bounds = [
        least_cost(replace(problem, space=replace(problem.space, placements=names)), batch)
        for names in (("linear",), ("v",), ("linear", "v"))
    ]
    assert bounds[2] == min(bounds[:2])
