"""Plans with empty stages: the best of all, devices with fewer stages where that pays, files and layouts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.clock import counted_time
from helpers.command_line import call, write
from helpers.small_models import TooHardError, optimum, random_problem

from tightpipe import InputError, plan
from tightpipe.export import export_text, read_split
from tightpipe.planning import (
    Plan,
    PlanningProblem,
    load_plan,
    problem_from_dict,
    problem_to_dict,
    save_plan,
    split_of,
)
from tightpipe.planning.candidate import check_candidate, instance_of

BLOCK = {"name": "block", "count": 6, "forward": 3, "backward": 3, "weight": 3, "parameters": 7, "output": 1}
EMBEDDING = {"name": "embedding", "forward": 1, "backward": 0, "weight": 1, "parameters": 9, "output": 1}
HEAD = {"name": "head", "forward": 13, "backward": 13, "weight": 13, "parameters": 9}


def heavy_head(**search: Any) -> dict[str, Any]:
    """Four devices in a loop, and a head that takes as long as four blocks and more."""
    return {
        "layers": [EMBEDDING, BLOCK, HEAD],
        "cluster": {"devices": 4, "latency": 0, "bandwidth": 1},
        "batch": {"microbatches": 8},
        "search": {"placements": ["loop"], "runtime": "megatron", **search},
    }


@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_a_plan_is_the_best_of_all_partitions_with_empty_stages(seed: int) -> None:
    small = random_problem(seed)
    model = replace(small.model, layers=small.model.layers[:4])
    asked = replace(small, model=model, space=replace(small.space, empty=True, recompute=()))
    try:
        best = optimum(asked)
    except TooHardError:
        pytest.skip("no optimum in the time")
    found = plan(asked, time_limit=None, workers=1)
    assert best is None or found.bound is None or found.bound <= best
    assert (found.cost is None) == (best is None)
    assert best is None or found.cost >= best
    assert found.status != "optimal" or found.cost == best


@pytest.fixture(scope="module")
def found() -> Plan:
    return plan(problem_from_dict(heavy_head(empty=True)), time_limit=None, workers=1)


def test_a_device_with_a_long_head_needs_no_second_stage(found: Plan) -> None:
    """Without empty stages the last device has a block and the head, 16 ticks of F in place of 13."""
    without = plan(problem_from_dict(heavy_head(empty=False)), time_limit=None, workers=1)
    assert found.candidate is not None
    assert found.candidate.stages[3][0] == found.candidate.stages[3][1]
    assert found.cost < without.cost
    assert without.cost >= 8 * 3 * 16


def test_a_plan_with_empty_stages_is_exported_and_read_again(found: Plan, tmp_path: Path) -> None:
    save_plan(found, tmp_path / "plan.json")
    again = load_plan(tmp_path / "plan.json")
    assert (again.candidate, again.cost, again.problem) == (found.candidate, found.cost, found.problem)
    assert ": -" in str(again)
    split = split_of(again)
    assert "" in split.parts
    (tmp_path / "layout.args").write_text(export_text(split, "megatron-layout"))
    assert read_split(tmp_path / "layout.args", "megatron-layout").parts == split.parts
    with pytest.raises(InputError, match="has parameters for an optimizer at every stage"):
        export_text(split, "torchtitan")


def test_an_empty_stage_sends_what_the_layer_before_it_sends(found: Plan) -> None:
    assert found.candidate is not None
    instance = instance_of(found.problem, found.candidate)
    assert [instance.comm(d, (d + 1) % 4) for d in range(4)] == [1] * 4


def test_empty_stages_need_the_key(found: Plan) -> None:
    assert found.candidate is not None
    with pytest.raises(InputError, match=r"stages\[\d\] = .*: must have a layer: only with search.empty"):
        check_candidate(problem_from_dict(heavy_head()), found.candidate)


def test_the_key_is_written_and_read_again() -> None:
    asked = problem_from_dict(heavy_head(empty=True))
    assert asked.space.empty
    assert problem_from_dict(problem_to_dict(asked)) == asked


def more_stages_than_layers() -> PlanningProblem:
    return problem_from_dict(heavy_head(empty=True, chunks=3))


def test_there_may_be_more_stages_than_layers() -> None:
    with counted_time():
        found = plan(more_stages_than_layers(), time_limit=3, workers=1)
    assert found.candidate is not None
    assert len(found.candidate.stages) == 12 > len(found.problem.model.layers)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        ({"empty": 1}, "search.empty = 1: must be true or false"),
        ({"empty": True, "runtime": "torch"}, "search.empty = True: must be false for PyTorch"),
        ({"empty": True, "runtime": "zero-bubble"}, "must be false for the zero-bubble runtime"),
    ],
)
def test_what_excludes_empty_stages_is_one_line(search: dict[str, Any], message: str, tmp_path: Path) -> None:
    placements = ["linear"] if "runtime" in search else ["loop"]
    path = write(tmp_path, heavy_head() | {"search": {"placements": placements, **search}})
    done = call("plan", path, "--time-limit", "1")
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
