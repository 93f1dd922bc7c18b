"""The uniform split: equally many blocks on each stage, and as few of them recomputed as the memory allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.handmade_plans import BLOCK, CLUSTER, EMBEDDING, HEAD, LAYERS, SPACE, alike, problem

from tightpipe import InputError, Instance, Placement, Result, Status
from tightpipe.params.budget import Allowance
from tightpipe.planning import Layer, Model, PlanningProblem, alternatives
from tightpipe.planning.alternatives import Family, uniform_candidates, uniform_cuts, uniform_plan

MOE = Layer("moe", 20, 21, 19)


@pytest.mark.parametrize(
    ("layers", "stages", "cuts"),
    [
        (LAYERS, 4, (0, 3, 5, 7, 10)),
        (LAYERS, 3, (0, 4, 7, 10)),
        (LAYERS, 1, (0, 10)),
        ((BLOCK,) * 6, 3, (0, 2, 4, 6)),
        ((EMBEDDING, BLOCK, MOE, MOE, BLOCK, HEAD), 2, (0, 3, 6)),
        ((EMBEDDING, BLOCK, BLOCK, Layer("final norm", 1, 1, 1), HEAD), 2, (0, 2, 5)),
        ((replace(BLOCK, kind="embedding"), BLOCK, BLOCK, replace(BLOCK, kind="norm")), 2, (0, 2, 4)),
        ((EMBEDDING, replace(BLOCK, name="body"), BLOCK, HEAD), 2, (0, 2, 4)),
        ((EMBEDDING, HEAD), 2, (0, 1, 2)),
    ],
)
def test_each_stage_has_equally_many_blocks(
    layers: tuple[Layer, ...], stages: int, cuts: tuple[int, ...]
) -> None:
    assert uniform_cuts(Model(layers), stages) == cuts


def test_fewer_blocks_than_stages_are_refused() -> None:
    with pytest.raises(InputError, match="has 8 blocks, fewer than the 9 stages"):
        uniform_cuts(Model(LAYERS), 9)


def test_every_stage_recomputes_equally_many_of_its_first_blocks() -> None:
    found = list(uniform_candidates(problem(), Placement("v", 2)))
    each = [((), (), (), ()), ((1,), (3,), (5,), (7,)), ((1, 2), (3, 4), (5, 6), (7, 8))]
    assert [c.recomputed for c in found] == list(map(alike, each))
    off = problem(space=replace(SPACE, recompute=()))
    assert [c.recomputed for c in uniform_candidates(off, Placement("v", 2))] == [((), (), (), ())]


def family(method: str, asked: PlanningProblem, placement: str = "v") -> Family:
    space = replace(asked.space, placements=(placement,), chunks=None)
    cluster = replace(asked.cluster, devices=(2,))
    return Family(method, placement, replace(asked, space=space, cluster=cluster))


def test_recomputation_begins_where_the_memory_ends() -> None:
    tight = problem(cluster=replace(CLUSTER, memory=1800))
    roomy = uniform_plan(family("v-half", problem()), Allowance())
    forced = uniform_plan(family("v-half", tight), Allowance())
    assert roomy.candidate is not None
    assert forced.candidate is not None
    assert sum(map(len, roomy.candidate.recomputed)) == 0
    assert sum(map(len, forced.candidate.recomputed)) > 0
    assert forced.peak_memory is not None
    assert max(forced.peak_memory) <= 1800
    assert forced.bound is None


def test_of_several_numbers_of_devices_the_fastest_counts() -> None:
    several = family("1f1b", problem(), "linear")
    cluster = replace(several.problem.cluster, devices=(1, 3, 9))  # 9 devices are more than there are blocks
    found = uniform_plan(replace(several, problem=replace(several.problem, cluster=cluster)), Allowance())
    assert found.candidate is not None
    assert found.candidate.placement.devices == 3
    assert found.considered == 2  # a schedule was searched for on 1 and on 3 devices
    assert found.schedule is not None


def test_the_device_that_lacks_memory_is_named() -> None:
    # device 1 holds 4 blocks: 3 x 400 bytes of parameters, 70 in reserve, and of each block's activation
    # the 8 bytes that stay, and 22 for a while
    small = problem(cluster=replace(CLUSTER, memory=1300))
    found = uniform_plan(family("1f1b", small, "linear"), Allowance())
    assert found.schedule is None
    static, held = 3 * (4 * 100 + 60), 4 * 8 + 20
    assert found.reason == f"device 1 lacks {static + held + 70 + 22 - 1300} bytes to hold one microbatch"


def test_a_signal_ends_the_search_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def interrupted(instance: Instance, method: str, **_: object) -> Result:
        asked.append(instance)
        return Result(instance, method, Status.UNKNOWN, None, None, 0.0, reason="interrupted")

    monkeypatch.setattr(alternatives, "solve", interrupted)
    with pytest.raises(KeyboardInterrupt):
        uniform_plan(family("v-half", problem()), Allowance())
    assert len(asked) == 1  # and not with a block recomputed
