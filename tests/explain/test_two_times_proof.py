"""The proof in words: numbers that a calculator gives, paths of the right length, and what it says if nothing follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.cases import instances, uniform
from helpers.command_line import call
from helpers.exact_cases import v_instance
from hypothesis import given, settings

from tightpipe import InputError, Instance, Memory, save_instance
from tightpipe.explain.two_times_proof import prove_by_two_times
from tightpipe.settings import load_settings


def test_the_proof_of_a_published_setting() -> None:
    """p = 16, n = 48, times 14407, 14380, 9676, messages 1610, memory for 32 forwards."""
    proof = prove_by_two_times(load_settings()["6.2B-16x48"].instance())
    first, second = 32 * 14407 + 15 * 14380 + 45 * 1610, 15 * 14407 + 32 * 14380 + 45 * 1610 + 9676
    assert [(run.kind, run.first, run.last) for run in proof.until_backward.runs] == [
        ("F", 0, 31),
        ("B", 31, 17),
    ]
    assert [(run.kind, run.first, run.last) for run in proof.after_forward.runs] == [
        ("F", 17, 31),
        ("B", 31, 1),
        ("BW", 0, 0),
    ]
    assert (proof.until_backward.ticks, proof.until_backward.messages) == (first, 45)
    assert (proof.after_forward.ticks, proof.after_forward.messages) == (second, 45)
    said = str(proof)
    assert said.startswith(
        "cost >= 3969197, by the work of device 15 between two times of the span of device 0\n"
    )
    assert f"t1 = {first}" in said
    assert "3692448 - 461024 - 769792 = 2461632 ticks of work lie between t1 and t2, which are only" in said
    assert f"{3969196 - second} - {first} = 2461631 ticks apart" in said


@settings(max_examples=200, deadline=None)
@given(instances())
def test_paths_take_as_long_as_the_bound_says(instance: Instance) -> None:
    """`prove_by_two_times` compares them for every placement, objective, link and kind of memory."""
    proof = prove_by_two_times(instance)
    numbers = proof.to_dict()
    assert numbers["bound"] == proof.times.cost
    assert numbers["until_backward"]["ticks"] == numbers["first_backward"]
    assert json.loads(json.dumps(numbers)) == json.loads(json.dumps(proof.to_dict()))
    assert ("That is impossible." in str(proof)) == proof.follows


@pytest.mark.parametrize("placement", ["linear", "wave", "bidirectional"])
@pytest.mark.parametrize("overlapped", [None, 19])
def test_other_placements_and_pairs_have_a_proof(placement: str, overlapped: int | None) -> None:
    instance = uniform(
        *(4, 8, (10, 12, 8)), comm=3, placement=placement, overlapped=overlapped, memory=Memory(2, -1, -1, 8)
    )
    assert prove_by_two_times(instance).times.cost >= instance.work(0)


def test_the_makespan_has_one_frame_for_all_devices() -> None:
    proof = prove_by_two_times(
        uniform(*(3, 6, (10, 12, 8)), comm=1, memory=Memory(2, -1, -1, 12), objective="makespan")
    )
    assert proof.times.frame is None
    assert "between two times of the span of all devices" in str(proof)


def test_without_a_memory_limit_the_work_is_all() -> None:
    free = v_instance(3, 4, (10, 12, 8, 1), Memory(2, -1, -1, None))
    assert str(prove_by_two_times(free)).startswith(
        f"cost >= {free.work(0)}: the work of device 0. The two times add"
    )


def test_the_command_prints_it_and_says_which_bound_is_larger(tmp_path: Path) -> None:
    path = tmp_path / "instance.json"
    save_instance(v_instance(3, 6, (10, 12, 8, 1), Memory(2, -1, -1, 12)), path)
    done = call("bound", "--by-hand", path)
    assert (done.returncode, done.stderr) == (0, "")
    proof = prove_by_two_times(v_instance(3, 6, (10, 12, 8, 1), Memory(2, -1, -1, 12)))
    assert done.stdout.startswith(str(proof))
    assert json.loads(call("bound", "--by-hand", path, "--json").stdout)["bound"] == proof.times.cost
    save_instance(v_instance(2, 1, (10, 1, 1, 50), Memory(2, -1, -1, 12)), path)
    assert "\nThe bound " in call("bound", "--by-hand", path).stdout
    save_instance(v_instance(3, 6, (10, 12, 8, 1), Memory(2, -1, -1, 2)), path)
    refused = call("bound", "--by-hand", path)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)


def test_where_time_and_not_memory_limits_the_first_forwards_the_proof_says_so() -> None:
    """t1 = 136, and the last device starts after two F's of 20 and two messages of 1."""
    said = str(prove_by_two_times(v_instance(3, 6, (20, 5, 4, 1), Memory(2, -1, -1, 12))))
    assert (
        "3. Until t1 device 2 runs only F's. The first of them starts at tick 42 or later: that leaves 94"
        in said
    )


def test_a_bound_below_the_work_proves_nothing_more() -> None:
    """With long W's the two times are far enough apart for what lies between them."""
    instance = v_instance(3, 6, (10, 10, 40, 0), Memory(2, -1, -1, 12))
    proof = prove_by_two_times(instance)
    assert proof.times.work > proof.times.before + proof.times.held
    assert str(proof).startswith(f"cost >= {instance.work(0)}: the work of device ")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"backward": [0, 12], "weight": [0, 8], "memory": Memory(2, [0, -1], [0, -1], 2)},
            "needs a B and a W at every stage",
        ),
        ({"fused": 5}, "fused = 5: the proof by hand knows no fused backward"),
    ],
)
def test_what_the_two_times_do_not_know_is_refused(more: dict[str, Any], message: str) -> None:
    """The paths count a B and a W where there is none, or where a BW is shorter: schedules may cost less."""
    costs: dict[str, Any] = {"forward": 10, "backward": 12, "weight": 8, "memory": Memory(2, -1, -1, 2)}
    with pytest.raises(InputError, match=message):
        prove_by_two_times(Instance.uniform(devices=2, microbatches=4, placement="linear", **costs | more))
