"""Instances: expansion, files, and every kind of bad input."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import instances, uniform, wide_instances
from hypothesis import given
from hypothesis import strategies as st

from tightpipe import InputError, Instance, Memory, load_instance, save_instance
from tightpipe.model.costs import Costs, Step
from tightpipe.model.instance_file import instance_from_dict, instance_to_dict
from tightpipe.model.operation import OpKind
from tightpipe.model.placement import Placement

PAPER: dict[str, Any] = {
    "devices": 8,
    "microbatches": 24,
    "placement": "v",
    "forward": 29718,
    "backward": 29444,
    "weight": 19927,
    "comm": 527,
    "memory": {"forward": 303104, "backward": -172032, "weight": -131072, "limit": 4849664},
    "objective": "device_span",
}
MATRIX = [[0, 1], [2, 0]]


def test_the_contract_example_loads_from_json_and_toml(tmp_path: Path) -> None:
    as_json, as_toml = tmp_path / "i.json", tmp_path / "i.toml"
    as_json.write_text(json.dumps(PAPER))
    plain = {key: value for key, value in PAPER.items() if key != "memory"}
    lines = [f"{key} = {json.dumps(value)}" for key, value in plain.items()]
    lines += ["[memory]", *(f"{key} = {value}" for key, value in PAPER["memory"].items())]
    as_toml.write_text("\n".join(lines))
    instance = load_instance(as_json)
    assert instance == load_instance(as_toml)
    assert instance.stages == 16
    assert instance.duration(OpKind.BW, 15) == 29444 + 19927
    assert instance.memory_limit(7) == 4849664
    assert instance.work(0) == 2 * 24 * (29718 + 29444 + 19927)
    assert instance_to_dict(instance) == PAPER


@given(st.one_of(instances(), wide_instances()))
def test_files_round_trip(instance: Instance) -> None:
    data = json.loads(json.dumps(instance_to_dict(instance)))
    back = instance_from_dict(data)
    assert instance_to_dict(back) == data
    assert back == instance


def test_save_and_load(tmp_path: Path) -> None:
    instance = instance_from_dict(
        PAPER | {"devices": 2, "comm": MATRIX, "placement": "loop", "forward": [1] * 6}
    )
    save_instance(instance, tmp_path / "i.json")
    assert load_instance(tmp_path / "i.json") == instance
    assert instance.placement.chunks == 3


def test_optional_keys_have_the_defaults_of_python() -> None:
    bare = {key: PAPER[key] for key in ("devices", "microbatches", "forward", "backward", "weight")}
    instance = instance_from_dict(bare)
    assert instance == Instance.uniform(**bare)
    assert (instance.placement.name, instance.objective, instance.memory) == ("v", "device_span", None)


def test_fused_backwards_as_long_as_b_and_w_are_the_default() -> None:
    apart = uniform(2, 4, (3, 4, 2), placement="linear")
    assert uniform(2, 4, (3, 4, 2), placement="linear", fused=6) == apart
    assert "fused" not in instance_to_dict(apart)
    partly = uniform(2, 4, (3, 4, 2), placement="linear", fused=[6, 5])
    assert instance_to_dict(partly)["fused"] == [6, 5]
    assert instance_from_dict(instance_to_dict(partly)) == partly != apart


def test_the_work_of_bidirectional_counts_both_directions() -> None:
    instance = Instance.uniform(
        devices=2, microbatches=4, forward=[1, 10], backward=1, weight=1, placement="bidirectional"
    )
    assert [instance.device(0, m) for m in range(4)] == [0, 0, 1, 1]
    assert [instance.work(d) for d in range(2)] == [2 * (1 + 10) + 8, 2 * (1 + 10) + 8]


def test_the_smallest_limit_holds_one_microbatch() -> None:
    instance = Instance.uniform(
        devices=2,
        microbatches=4,
        forward=1,
        backward=1,
        weight=1,
        memory=Memory([1, 2, 3, 4], [-1, -2, -3, -4], 0, 4),
    )
    assert [instance.smallest_limit(d) for d in range(2)] == [5, 5]
    assert "at least 5" in (instance.infeasibility() or "")


BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"devices": 0}, ["devices = 0", "at least 1"]),
    ({"devices": "8"}, ["devices = '8'", "integer"]),
    ({"devices": True}, ["devices = True", "integer"]),
    ({"devices": 10**9}, ["devices = 1000000000", "at most"]),
    ({"microbatches": 0}, ["microbatches = 0", "at least 1"]),
    ({"microbatches": 2.5}, ["microbatches = 2.5", "integer"]),
    ({"microbatches": 10**6}, ["microbatches = 1000000", "operations"]),
    ({"forward": 0}, ["forward = 0", "at least 1"]),
    ({"backward": -3}, ["backward = -3", "at least 0"]),
    ({"weight": None}, ["weight = None", "integer"]),
    ({"weight": 1.5}, ["weight = 1.5", "integer"]),
    ({"weight": 10**15}, ["weight = 1000000000000000", "at most"]),
    ({"forward": [1, 2]}, ["forward = [1, 2]", "16"]),
    ({"forward": [1] * 15 + [0]}, ["forward[15] = 0", "at least 1"]),
    ({"forward": {}}, ["forward = {}", "integer"]),
    ({"comm": -1}, ["comm = -1", "at least 0"]),
    ({"comm": [[0, 1]]}, ["comm", "one per device: 8"]),
    ({"comm": [[0] * 8] * 7 + [[0] * 7]}, ["comm[7]", "8"]),
    ({"comm": [1] * 8}, ["comm[0] = 1", "row"]),
    ({"comm": [[0] * 8] * 4 + [[0] * 4 + [5] + [0] * 3] * 4}, ["comm[4][4] = 5", "must be 0"]),
    ({"placement": "vee"}, ["placement = 'vee'", "linear, v, loop"]),
    ({"placement": ["v"]}, ["placement", "linear, v, loop"]),
    (
        {"placement": "bidirectional", "devices": 7},
        ["placement = 'bidirectional'", "even number of devices, not 7"],
    ),
    ({"placement": "bidirectional", "microbatches": 7}, ["microbatches = 7", "even"]),
    ({"placement": "wave", "chunks": 3}, ["placement = 'wave'", "even number of stages"]),
    ({"chunks": 3}, ["placement = 'v'", "2 stages per device, not 3"]),
    ({"objective": "time"}, ["objective = 'time'", "device_span, makespan, step"]),
    ({"objective": 3}, ["objective = 3", "device_span, makespan, step"]),
    ({"backward": [0, 1] * 8}, ["backward[2] = 0", "the gradient passes on to stage 0"]),
    ({"forward": 0, "backward": 0, "weight": 0}, ["forward = 0", "must be at least 1 at one stage or more"]),
    ({"backward": 0}, ["backward = 0", "stage 0, which has a B or a W"]),
    ({"weight": 0}, ["memory.weight = -131072", "must be 0 at stage 0, which has no weight"]),
    ({"step": 5}, ["step = 5", "table"]),
    ({"step": {"steps": 5}}, ["steps = 5", "unknown key in step"]),
    ({"step": {"ready": -1}}, ["step.ready = -1", "at least 0"]),
    ({"step": {"reduce": [1, 2]}}, ["step.reduce = [1, 2]", "one per stage: 16"]),
    ({"step": {"optimizer": [1, 2]}}, ["step.optimizer = [1, 2]", "one per device: 8"]),
    ({"step": {"optimizer": 1}, "iterations": 2}, ["iterations = 2", "must be 1 where `step` is given"]),
    ({"fused": 0}, ["fused = 0", "at least 1"]),
    ({"fused": [1, 2]}, ["fused = [1, 2]", "one per stage: 16"]),
    ({"overlapped": 0}, ["overlapped = 0", "at least 1"]),
    ({"overlapped": [1, 2]}, ["overlapped = [1, 2]", "one per device: 8"]),
    ({"pairs": 9}, ["pairs = 9", "a row for the F of each stage: 16"]),
    ({"pairs": [[9]]}, ["pairs = [[9]]", "has 1 rows", "16"]),
    ({"pairs": [9] * 16}, ["pairs[0] = 9", "a row of 16 integers"]),
    ({"pairs": [[9] * 16] * 15 + [[9, 9]]}, ["pairs[15] = [9, 9]", "one per stage: 16"]),
    ({"pairs": [[0] * 16] * 16}, ["pairs[0][0] = 0", "at least 1"]),
    ({"pairs": [[9] * 16] * 16, "overlapped": 9}, ["overlapped = ", "left out where `pairs` are given"]),
    ({"link_occupancy": -1}, ["link_occupancy = -1", "at least 0"]),
    ({"link_occupancy": [1]}, ["link_occupancy = [1]", "integer"]),
    ({"iterations": 5}, ["microbatches = 24", "multiple of 5"]),
    ({"iterations": 0}, ["iterations = 0", "at least 1"]),
    ({"flush": 1}, ["flush = 1", "true or false"]),
    ({"extra": 1}, ["extra = 1", "unknown key"]),
    ({"": 1}, ['"" = 1', "unknown key"]),
    ({" ": 1}, ['" " = 1', "unknown key"]),
    ({"memory": PAPER["memory"] | {"": 1}}, ['"" = 1', "unknown key in memory"]),
    ({"memory": 5}, ["memory = 5", "table"]),
    ({"memory": PAPER["memory"] | {"peak": 1}}, ["peak = 1", "unknown key in memory"]),
    ({"memory": PAPER["memory"] | {"weight": -131071}}, ["memory = (303104, -172032, -131071)", "sum to 0"]),
    ({"memory": PAPER["memory"] | {"limit": 303103}}, ["memory.limit = 303103", "at least 303104"]),
    (
        {"memory": PAPER["memory"] | {"limit": [4849664] * 7 + [1]}},
        ["memory.limit[7] = 1", "at least 303104"],
    ),
    ({"memory": PAPER["memory"] | {"limit": [4849664] * 7}}, ["memory.limit", "one per device: 8"]),
    ({"memory": PAPER["memory"] | {"limit": "much"}}, ["memory.limit = 'much'", "integer"]),
    (
        {"memory": {"forward": 1, "backward": 2, "weight": -3, "limit": None}},
        ["memory.backward = 2", "at most 0"],
    ),
    (
        {"memory": {"forward": -1, "backward": 0, "weight": 1, "limit": None}},
        ["memory.forward = -1", "at least 0"],
    ),
]


@pytest.mark.parametrize(("change", "words"), BAD, ids=lambda v: str(v)[:40])
def test_bad_entries_are_named(change: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(PAPER | change))
    with pytest.raises(InputError) as error:
        load_instance(path)
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert all(word in text for word in words), text


@pytest.mark.parametrize("key", ["devices", "microbatches", "forward", "backward", "weight"])
def test_missing_keys_are_named(key: str) -> None:
    with pytest.raises(InputError, match=f"missing key '{key}'"):
        instance_from_dict({k: v for k, v in PAPER.items() if k != key})


@pytest.mark.parametrize("key", ["forward", "backward", "weight", "limit"])
def test_missing_memory_keys_are_named(key: str) -> None:
    memory = {k: v for k, v in PAPER["memory"].items() if k != key}
    with pytest.raises(InputError, match=f"missing key '{key}' in memory"):
        instance_from_dict(PAPER | {"memory": memory})


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("none.json", None, "no such file"),
        ("cut.json", b'{"devices": 8, "micro', "not JSON, or truncated"),
        ("empty.json", b"", "not JSON, or truncated"),
        ("list.json", b"[1, 2]", "must be a table"),
        ("twice.json", b'{"devices": 8, "devices": 9}', "key 'devices' stands twice"),
        ("bytes.json", b"\xff\xfe\x00", "not a text file"),
        ("deep.json", b"[" * 100_000, "nested too deeply"),
        ("long.json", b'{"devices": ' + b"9" * 5000 + b"}", "digits"),
        ("nan.json", b'{"devices": NaN}', "missing key"),
        ("cut.toml", b"devices = ", "not TOML, or truncated"),
        ("empty_key_twice.json", b'{"": 8, "": 9}', "key '' stands twice"),
        ("empty_key.toml", b'"" = 3', '"" = 3: unknown key'),
    ],
)
def test_bad_files_are_named(name: str, content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as error:
        load_instance(path)
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)


WRONG_TYPES: tuple[Any, ...] = (
    *(16, -1, 1.5, True, "x", b"x", [], [[1]], {}, {"forward": 1}, object(), int, 1j, range(3)),
    *(np.float64(2), np.array([1.5]), np.array([[1, 2], [3, 4]]), np.array(["a"])),
)
TYPES = {
    "devices": int,
    "microbatches": int,
    "forward": int,
    "backward": int,
    "weight": int,
    "comm": int,
    "placement": str,
    "chunks": int,
    "memory": Memory,
    "objective": str,
    "fused": int,
    "overlapped": int,
    "pairs": list,
    "link_occupancy": int,
    "iterations": int,
    "flush": bool,
    "step": Step,
}


def refused(action: Callable[[], Any], *names: str) -> None:
    """Assert that an action ends with one line that names one of the keys."""
    with pytest.raises(InputError) as error:
        action()
    text = str(error.value)
    assert "\n" not in text
    assert any(name in text for name in names), text


@pytest.mark.parametrize("key", TYPES)
def test_values_of_wrong_types_are_named(key: str) -> None:
    plain: dict[str, Any] = {"devices": 2, "microbatches": 4, "forward": 1, "backward": 1, "weight": 1}
    for value in WRONG_TYPES:
        if type(value) is not TYPES[key]:
            refused(lambda value=value: Instance.uniform(**{**plain, key: value}), key)


@pytest.mark.parametrize("key", ["placement", "costs", "memory"])
def test_parts_of_wrong_types_are_named(key: str) -> None:
    parts: dict[str, Any] = {"placement": Placement("v", 2), "microbatches": 4, "costs": Costs(1, 1, 1)}
    for value in WRONG_TYPES:
        refused(lambda value=value: Instance(**{**parts, key: value}), f"{key} = ")


@pytest.mark.parametrize("key", ["forward", "backward", "weight", "limit"])
def test_memory_of_wrong_types_is_named(key: str) -> None:
    plain: dict[str, Any] = {"devices": 2, "microbatches": 4, "forward": 1, "backward": 1, "weight": 1}
    for value in WRONG_TYPES:
        if type(value) is not int:
            memory = Memory(**{"forward": 2, "backward": -1, "weight": -1, "limit": 8, key: value})
            refused(lambda memory=memory: Instance.uniform(**plain, memory=memory), f"memory.{key}")


def test_a_number_is_no_memory() -> None:
    with pytest.raises(InputError) as error:
        Instance.uniform(devices=2, microbatches=4, forward=1, backward=1, weight=1, memory=16)  # type: ignore[arg-type]
    assert str(error.value) == "memory = 16: must be a Memory(forward, backward, weight, limit)"


def test_a_flush_that_is_off_survives_its_file() -> None:
    for iterations in (1, 2):
        instance = Instance.uniform(
            devices=2, microbatches=4, forward=1, backward=1, weight=1, iterations=iterations, flush=False
        )
        assert instance_from_dict(instance_to_dict(instance)) == instance


def test_a_folder_is_no_instance(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_instance(tmp_path)


def test_an_instance_is_the_same_in_another_process() -> None:
    """Hashes of texts differ between processes, so that of an instance must not travel with it."""
    code = (
        "import pickle, sys\n"
        "from tightpipe.model.instance_file import instance_from_dict, instance_to_dict\n"
        "there = pickle.load(sys.stdin.buffer)\n"
        "print(hash(there) == hash(instance_from_dict(instance_to_dict(there))))\n"
    )
    instance = Instance.uniform(devices=2, microbatches=3, forward=1, backward=2, weight=3)
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(instance), capture_output=True)
    assert done.stdout == b"True\n", done.stderr
