"""The checker and the package read the same files: what one of them refuses, the other one refuses as well."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from certificates.proofs import content_of, training_step, wide_instance
from helpers.copied_cases import copied_case
from helpers.small_instances import small_instance

from tightpipe import Instance, load_instance, load_schedule, solve
from tightpipe.base.errors import InputError
from tightpipe.certificates import check_proof
from tightpipe.certificates.check_proof import CheckError, Problem, check
from tightpipe.model.instance_file import instance_to_dict
from tightpipe.model.schedule_file import schedule_to_dict

ROUNDS = 150
LARGEST = 10**12
VALUES: tuple[Any, ...] = (
    *(0, 1, 2, 3, 4, 5, 8, -1, -2, 40, LARGEST, LARGEST + 1, -LARGEST, 10**15, 10**40),
    *(None, True, False, 1.0, 2.5, 1e300, float("nan"), float("inf"), "", "4", "v", "loop", "wave", "linear"),
    *(
        "bidirectional",
        "makespan",
        "device_span",
        "step",
        "span",
        [],
        {},
        [1],
        [[]],
        [None],
        [True],
        [1, 2],
        [[0]],
    ),
    *([0, [1, 0]], [[0, 1], [1, 0]], [[0, 1], 1], [[1, 1], [1, 0]], {"forward": 1}, {"": 1}),
    *({"ready": 3}, {"reduce": [1, 2]}, {"ready": -1}, {"optimizer": None}),
    *([{"count": 4}], [{"count": 1}, {"count": 3, "forward": 2, "fused": 3}], [{"count": 4, "weight": 0}]),
    *([{"count": 4, "memory": None}], [{"count": 2, "backward": [0, 1]}, {"count": 2}], [{"count": 0}]),
    *({"memory": m, "out": 2, "back": b} for m, b in ((0, 0), (1, 3), ([1, 0], [2, "x"]), ([0, 2, 0, 1], 1))),
    *({"memory": m, "out": 1, "back": 1, "duplex": False} for m in (0, 1, [1, 1])),
    *(
        {"memory": 1, "out": 0, "back": 1},
        {"memory": 1, "out": 1},
        {"memory": 1, "out": 1, "back": 1, "in": 1},
    ),
    *([{"count": 4, "memory": {"forward": 2, "backward": -1, "weight": -1}}], [{"count": 4, "comm": 1}]),
)
KEYS = (
    *("devices", "microbatches", "forward", "backward", "weight", "placement", "chunks", "comm", "memory"),
    *("objective", "fused", "overlapped", "link_occupancy", "iterations", "flush", "step", "classes"),
    "offload",
)
MADE = small_instance, training_step, wide_instance, copied_case
MEMORY = ("forward", "backward", "weight", "limit")


def mutated(data: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A copy with one to three changes of values, entries, lengths and keys."""
    changed = copy.deepcopy(data)
    for _ in range(rng.choice((1, 1, 2))):
        memory = changed.get("memory")
        inside = isinstance(memory, dict) and rng.random() < 0.3
        place, known = (memory, MEMORY) if inside else (changed, KEYS)
        assert isinstance(place, dict)
        key = rng.choice(known)
        what = rng.choice(("value", "near", "near", "entry", "length", "list", "drop", "new"))
        if what == "drop":
            place.pop(key, None)
        elif what == "new":
            place[rng.choice(("", " ", "Forward", "time", "memory.limit"))] = 1
        elif what in ("entry", "length") and isinstance(place.get(key), list) and place[key]:
            at = rng.randrange(len(place[key]))
            place[key][at : at + 1] = [rng.choice(VALUES)] * (1 if what == "entry" else rng.choice((0, 2)))
        elif what == "list":
            place[key] = [place.get(key, 1)] * rng.choice((1, 2, 3, 4, 8))
        elif what == "near":
            place[key] = near(place.get(key), rng)
        else:
            place[key] = rng.choice(VALUES)
    return changed


def near(value: Any, rng: random.Random) -> Any:
    """The same value with numbers that differ by little or not at all, which is often right as well."""
    if isinstance(value, dict):
        return {key: near(entry, rng) for key, entry in value.items()}
    if isinstance(value, list):
        return [near(entry, rng) for entry in value]
    return value + rng.choice((-1, 0, 0, 1)) if type(value) is int else value


def checkers(path: Path) -> dict[str, Any] | None:
    """The instance of a file in the checker's form; None if the checker refuses it."""
    try:
        return vars(Problem(check_proof.read(str(path))))
    except check_proof.InputError:
        return None


def ours(path: Path) -> Instance | None:
    try:
        return load_instance(path)
    except InputError:
        return None


def is_left_out(instance: Instance) -> bool:
    """Whether the checker leaves a rule of the instance out, and so refuses every certificate for it."""
    return instance.slices != () or instance.costs.pairs is not None


def agree(path: Path) -> bool:
    """Assert that both read the same instance or none; return whether they read one."""
    theirs, instance = checkers(path), ours(path)
    if instance is not None and is_left_out(instance):
        assert theirs is None, path.read_text()
        return False
    assert (theirs is None) == (instance is None), path.read_text()
    if instance is not None:
        assert theirs == vars(Problem(instance_to_dict(instance)))
    return instance is not None


@pytest.mark.parametrize("seed", range(20))
def test_changed_instances_are_read_alike(seed: int, tmp_path: Path) -> None:
    rng, path, read = random.Random(seed), tmp_path / "instance.json", 0
    for k in range(ROUNDS):
        data = instance_to_dict(MADE[k % len(MADE)](ROUNDS * seed + k))
        path.write_text(json.dumps(mutated(data, rng)))
        read += agree(path)
    assert ROUNDS // 10 < read < ROUNDS * 9 // 10  # each answer was put to the test


@pytest.mark.parametrize("key", KEYS)
def test_every_value_of_a_key_is_read_alike(key: str, tmp_path: Path) -> None:
    data, path = instance_to_dict(small_instance(2)), tmp_path / "instance.json"
    for value in VALUES:
        path.write_text(json.dumps({**data, key: value}))
        agree(path)


PLAIN = '{"devices": 2, "microbatches": 4, "forward": 1, "backward": 1, "weight": 1}'
TEXTS = {
    "plain": (PLAIN.encode(), True),
    "white space": (b"\r\n\t " + PLAIN.encode() + b"\n", True),
    "an escaped key": (PLAIN.replace("forward", "f\\u006frward").encode(), True),
    "a key twice": (PLAIN.replace("}", ', "devices": 2}').encode(), False),
    "an escaped key twice": (PLAIN.replace("}", ', "device\\u0073": 2}').encode(), False),
    "an inner key twice": (PLAIN.replace("}", ', "memory": {"limit": 1, "limit": 1}}').encode(), False),
    "an empty key": (PLAIN.replace("}", ', "": 2}').encode(), False),
    "a byte order mark": (b"\xef\xbb\xbf" + PLAIN.encode(), True),
    "16 bits per character": (PLAIN.encode("utf-16"), False),
    "32 bits per character": (PLAIN.encode("utf-32-le"), False),
    "no UTF-8": (PLAIN.replace("1", '"\xe9"').encode("latin-1"), False),
    "two values": ((PLAIN + PLAIN).encode(), False),
    "a comma too many": (PLAIN.replace("}", ",}").encode(), False),
    "a number that is none": (PLAIN.replace("4", "NaN").encode(), False),
    "more digits than Python converts": (PLAIN.replace("4", "4" * 5000).encode(), False),
    "many digits": (PLAIN.replace("4", "4" * 4000).encode(), False),
    "a leading zero": (PLAIN.replace("4", "04").encode(), False),
    "an exponent": (PLAIN.replace("4", "4e0").encode(), False),
    "a negative zero": (PLAIN.replace("}", ', "comm": -0}').encode(), True),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_are_read_alike(name: str, tmp_path: Path) -> None:
    content, good = TEXTS[name]
    path = tmp_path / "instance.json"
    path.write_bytes(content)
    assert (checkers(path) is not None) == good
    assert (ours(path) is not None) == good


def test_keys_that_stand_twice_are_named(tmp_path: Path) -> None:
    path = tmp_path / "proof.json"
    path.write_text(f'{{"format": 1, "instance": {PLAIN}, "bound": 1, "bound": 2, "proof": {{}}}}')
    with pytest.raises(check_proof.InputError, match=r"proof\.json: .*keys stand twice: \['bound'\]"):
        check_proof.read(str(path))


def test_the_claims_of_a_schedule_are_read_alike(tmp_path: Path) -> None:
    instance = Instance.uniform(devices=1, microbatches=2, forward=3, backward=3, weight=3)
    schedule = solve(instance, "list").schedule
    assert schedule is not None
    proof, data, path = content_of(instance, 36), schedule_to_dict(schedule), tmp_path / "schedule.json"
    read = 0
    for key in ("method", "cost", "bound", "more"):
        for value in (*VALUES, 10**15 + 1, -(10**15), -(10**15) - 1):
            path.write_text(json.dumps({**data, key: value}))
            try:
                load_schedule(path)
                good = True
            except InputError:
                good = False
            try:
                check(proof, check_proof.read(str(path)))
                assert good, (key, value)
            except check_proof.InputError:
                assert not good, (key, value)
            except CheckError:
                pytest.fail("the schedule is valid and as cheap as the bound")
            read += good
    assert read > 30
