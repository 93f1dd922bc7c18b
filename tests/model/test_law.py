"""Cost laws: fits, batches of lengths, packing, and the instances that follow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import call
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import InputError, Memory, OpKind, Placement, load_instance, solve
from tightpipe.model.instance_file import law_from_dict, law_to_dict, load_law, load_lengths, save_law
from tightpipe.model.law import CostLaw, Law, fit, microbatches_of, squares_of

BATCH: dict[str, Any] = {
    "devices": 2,
    "placement": "linear",
    "forward": {"fixed": 5, "tokens": 2, "squares": 0.01},
    "backward": [{"tokens": 3}, {"tokens": 4}],
    "weight": {"tokens": 1.5},
    "comm": {"fixed": 1, "tokens": 0.1},
    "memory": {
        "forward": {"tokens": 2},
        "backward": {"tokens": -1.5},
        "weight": {"tokens": -0.5},
        "limit": 900,
    },
    "lengths": [10, [20, 30], 10, 40],
}
LAW = law_from_dict(BATCH)


def test_a_batch_file_is_an_instance_with_a_class_for_each_kind_of_microbatch(tmp_path: Path) -> None:
    """A packed microbatch takes time for the squares of each sequence, not of their sum."""
    (tmp_path / "b.json").write_text(json.dumps(BATCH))
    instance = load_instance(tmp_path / "b.json")
    assert instance.class_counts == (2, 1, 1)
    assert [instance.mb_class(m) for m in range(4)] == [0, 1, 0, 2]
    assert [instance.duration(OpKind.F, 0, c) for c in range(3)] == [26, 118, 101]
    assert [instance.duration(OpKind.B, 1, c) for c in range(3)] == [40, 200, 160]
    assert [instance.memory_delta(OpKind.B, 0, c) for c in range(3)] == [-15, -75, -60]
    assert instance.comm(0, 1) == 4  # of the mean microbatch, which has 27.5 tokens
    assert instance.memory_limit(1) == 900


def test_lengths_are_read_from_lists_and_tables(tmp_path: Path) -> None:
    files = {
        "a.csv": "length\n10\n20\n\n30\n",
        "b.csv": "10\n20\n30\n",
        "c.csv": "microbatch, length\nx,10\ny,20\nx,30\n",
        "d.json": "[10, 20, 30]",
        "e.toml": "lengths = [[10, 30], 20]\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    plain, packed = ((10,), (20,), (30,)), ((10, 30), (20,))
    found = {name: load_lengths(tmp_path / name) for name in files}
    assert found == {"a.csv": plain, "b.csv": plain, "c.csv": packed, "d.json": plain, "e.toml": packed}
    (tmp_path / "b.json").write_text(json.dumps({**BATCH, "lengths": "a.csv", "tokens": 40}))
    assert load_instance(tmp_path / "b.json") == LAW.instance([(10, 30), 20])


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40))
def test_packing_loses_no_sequence_and_keeps_to_the_tokens(lengths: list[int]) -> None:
    packed = microbatches_of(lengths, 50)
    assert sorted(length for one in packed for length in one) == sorted(lengths)
    assert max(map(sum, packed)) <= 50
    # two microbatches that are half empty would have been one
    assert sum(sum(one) <= 25 for one in packed) <= 1


@given(st.permutations(range(4)))
def test_microbatches_keep_their_numbers_whatever_their_sequence(sequence: list[int]) -> None:
    lengths = [10, 20, 10, 40]
    instance = LAW.instance([lengths[i] for i in sequence])
    for number, i in enumerate(sequence):
        alone = LAW.instance([lengths[i]])
        for kind in OpKind:
            for stage in (0, 1):
                mb_class = instance.mb_class(number)
                assert instance.duration(kind, stage, mb_class) == alone.duration(kind, stage)
                assert instance.memory_delta(kind, stage, mb_class) == alone.memory_delta(kind, stage)


@given(st.lists(st.integers(1, 5000), min_size=3, max_size=8, unique=True), st.randoms(use_true_random=False))
def test_a_law_is_found_again_from_its_values(lengths: list[int], rng: Any) -> None:
    law = Law(rng.choice([0, 100.0]), rng.choice([0, 0.7]), 1e-3)
    samples = [((length,), law.at(length, length**2)) for length in lengths]
    found, error = fit(samples)
    assert error < 1e-6
    for length in (1, 700, 9000):
        assert found.at(length, length**2) == pytest.approx(law.at(length, length**2), rel=1e-3, abs=1e-3)


def test_a_fitted_law_is_never_negative_however_values_scatter() -> None:
    """A parabola through these three points is below 0 at length 1."""
    law, error = fit([((100,), 10.0), ((200,), 90.0), ((300,), 150.0)])
    assert min(law.fixed, law.tokens, law.squares) >= 0 < error
    assert law.at(1, 1) > 0


def test_a_law_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    law = replace(LAW, fused=(Law(1, 4), Law(2, 5)))
    save_law(law, tmp_path / "law.json")
    assert load_law(tmp_path / "law.json") == law
    assert law_from_dict(law_to_dict(law)) == law


def test_what_a_stage_lacks_it_lacks_at_all_lengths() -> None:
    none = (Law(), Law())
    forward = (Law(0, 1), Law(0, 1))
    memory = (forward, none, none)
    frozen = CostLaw(Placement("linear", 2), forward, none, none, memory=memory, limit=100)
    instance = frozen.instance([5, 9])
    assert not instance.has(OpKind.B, 1, 0)
    assert instance.memory == Memory((5, 5), (0, 0), (0, 0), (100, 100))
    trained_last = replace(frozen, weight=(Law(), Law(0, 2)), memory=(forward, none, (Law(), Law(0, -1))))
    assert trained_last.instance([5, 9]).memory_delta(OpKind.W, 1, 1) == -9


def test_all_methods_take_a_batch_of_equal_lengths_as_one_class() -> None:
    instance = LAW.instance([10] * 5)
    assert instance.classes == ()
    assert solve(instance, "1f1b").schedule is not None


WRONG = {
    "a law below 0": (
        {"forward": {"fixed": -5, "tokens": 0.1}},
        "forward = -4.0: must be above 0: the law of stage 0 at a microbatch of 10 tokens",
    ),
    "a law that becomes 0": (
        {"weight": {"fixed": -20, "tokens": 2}},
        "weight = 0.0: must be above 0: the law of stage 0 at a microbatch of 10 tokens",
    ),
    "memory below 0": (
        {"memory": {"forward": {"fixed": -99}, "backward": {"fixed": 99}, "weight": 0, "limit": None}},
        "memory.forward = -99.0: must be 0 or more: the law of stage 0 at a microbatch of 10 tokens",
    ),
    "memory that is not freed": (
        {"memory": {"forward": {"tokens": 2}, "backward": {"tokens": -1}, "weight": 0, "limit": None}},
        "memory = (2, -1, 0.0): the tokens of forward, backward and weight must sum to 0 at stage 0",
    ),
    "a length of 0": ({"lengths": [3, 0]}, "lengths[1] = 0: must be at least 1"),
    "a length of 0 in a pack": ({"lengths": [[3, 0]]}, "lengths[0][1] = 0: must be at least 1"),
    "no length": ({"lengths": []}, "lengths = []: must be a list of at least one length"),
    "an empty pack": ({"lengths": [[]]}, "lengths[0] = []: must be at least one length"),
    "a fraction": ({"lengths": [2.5]}, "lengths[0] = 2.5: must be an integer"),
    "too long to pack": ({"tokens": 15, "lengths": [9, 16]}, "lengths[1] = 16: must be at most tokens = 15"),
    "packs that are packed": ({"tokens": 15}, "lengths[1] = [20, 30]: must be an integer"),
    "an unknown coefficient": ({"forward": {"cubes": 1}}, "cubes = 1: unknown key in forward; known are"),
    "a text": ({"weight": "ten"}, "weight = 'ten': must be a number, or a law: a table of numbers"),
    "another number of stages": (
        {"weight": [1, 2, 3]},
        "weight = 3: has 3 entries, must have one per stage: 2",
    ),
    "no such table": ({"lengths": "none.csv"}, "none.csv: "),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_batch_file_is_one_line(case: str, tmp_path: Path) -> None:
    changed, line = WRONG[case]
    (tmp_path / "b.json").write_text(json.dumps({**BATCH, **changed}))
    done = call("solve", "b.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert line in said


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "is empty"),
        ("length\n", "must be a list of at least one length"),
        ("tokens\n3\n", "line 1 = 'tokens': must begin with length, or with microbatch,length"),
        ("length\n3\n0\n", "line 3: length = 0: must be at least 1"),
        ("3\n-4\n", "line 2 = '-4': must be a row of length, with a length in whole tokens"),
        ("microbatch,length\n1\n", "line 2 = '1': must be a row of microbatch,length"),
    ],
)
def test_a_wrong_table_of_lengths_is_one_line(text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text(text)
    with pytest.raises(InputError) as error:
        load_lengths(tmp_path / "l.csv")
    assert line in str(error.value)
    assert "l.csv" in str(error.value)


def test_a_law_without_lengths_is_no_instance(tmp_path: Path) -> None:
    (tmp_path / "law.json").write_text(json.dumps({k: v for k, v in BATCH.items() if k != "lengths"}))
    with pytest.raises(InputError, match="missing key 'lengths': the costs are laws"):
        load_instance(tmp_path / "law.json")


def test_squares_are_those_of_each_sequence() -> None:
    assert squares_of((3, 4)) == 25
