"""A plan for Megatron-LM recomputes what it can be told: one kind, and one number of blocks for all stages."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.clock import counted_time
from helpers.command_line import call

from tightpipe import Placement
from tightpipe.export.layouts import write_megatron
from tightpipe.planning import (
    Batch,
    Candidate,
    Cluster,
    Layer,
    Model,
    PlanningProblem,
    Recomputation,
    SearchSpace,
    plan,
)
from tightpipe.planning.problem_file import problem_to_dict
from tightpipe.planning.runtimes import runnable, split_of

KINDS = (Recomputation("full", 20, 1), Recomputation("mlp", 6, 6))
BLOCK = Layer("block", 20, 20, 20, activation=10, recompute=KINDS)
MODEL = Model((Layer("embedding", 1, 0, 1), *(BLOCK,) * 8, Layer("head", 9, 9, 9, activation=4)))
SPACE = SearchSpace(("linear", "loop"), recompute=("full", "mlp"), runtime="megatron")


def asked(memory: int, **more: object) -> PlanningProblem:
    space = replace(SPACE, **more)  # type: ignore[arg-type]
    return PlanningProblem(MODEL, Cluster((4,), memory=memory), Batch(8), space)


LINEAR = Candidate(Placement("linear", 4), (0, 3, 5, 7, 10), (((1, "full"),), (), ((5, "mlp"),), ()))


@pytest.mark.parametrize(
    ("memory", "blocks"),
    [
        (80, [[0, 0, 0, 0]]),  # four microbatches of 20 bytes on the first device
        (53, [[1, 1, 1, 1], [2, 2, 2, 2]]),  # 44 and 9 that come back; 48 and 4
        (50, [[2, 2, 2, 2]]),  # all of both kinds would need 17 or 52
    ],
)
def test_least_blocks_that_fit_are_recomputed_in_each_kind(memory: int, blocks: list[list[int]]) -> None:
    found = list(dict.fromkeys(ways[0] for ways in runnable(asked(memory), LINEAR) if ways))
    assert [list(map(len, each.recomputed)) for each in found] == blocks
    assert all(len({kind for stage in each.recomputed for _, kind in stage}) <= 1 for each in found)


def test_the_next_way_is_tried_where_the_first_one_holds_more_than_what_is_in_flight() -> None:
    """Without recomputation 800 bytes are in flight on the first device, and soon after 900 are held."""
    kinds = (Recomputation("full", 1, 10),)
    first, others = (Layer("block", 1, 1, 1, activation=held, recompute=kinds) for held in (200, 100))
    space = SearchSpace(("loop",), chunks=(2,), recompute=("full",), runtime="megatron")
    cluster = Cluster((2,), memory=(850, 1000))
    found = plan(
        PlanningProblem(Model((first, *(others,) * 3)), cluster, Batch(4), space), time_limit=None, workers=1
    )
    assert found.status == "optimal"
    assert found.candidate is not None
    assert list(map(len, found.candidate.recomputed)) == [1, 1, 1, 1]


def test_other_runtimes_recompute_any_layers() -> None:
    assert runnable(asked(50, runtime="any"), LINEAR) == ((LINEAR,),)


@pytest.mark.parametrize("memory", [53, 50, 30])
def test_a_plan_with_recomputation_can_be_written_for_megatron(memory: int) -> None:
    with counted_time():
        found = plan(asked(memory), time_limit=3, workers=1)
    assert found.candidate is not None
    assert any(found.candidate.recomputed)
    assert "--recompute-granularity" in write_megatron(split_of(found))


def test_a_kind_that_megatron_does_not_know_is_refused(tmp_path: Path) -> None:
    problem = asked(50, runtime="any")
    data = problem_to_dict(problem)
    data["search"] |= {"recompute": ["mlp"], "runtime": "megatron"}
    text = json.dumps(data).replace('"mlp"', '"some"')
    (tmp_path / "model.json").write_text(text, encoding="utf-8")
    done = call("plan", tmp_path / "model.json")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "search.recompute[0] = 'some': Megatron-LM recomputes whole blocks, the kind full" in done.stderr
