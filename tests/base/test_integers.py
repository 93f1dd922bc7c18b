"""Integers of numpy and pandas are accepted wherever an integer or a sequence of integers is."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from helpers.cases import serial_order

from tightpipe import Costs, InputError, Instance, Memory, Placement, simulate, solve
from tightpipe.model.instance_file import instance_to_dict
from tightpipe.params.budget import Allowance

PLAIN: dict[str, Any] = {
    "devices": 2,
    "microbatches": 4,
    "forward": [3, 4, 5, 6],
    "backward": [4, 4, 4, 5],
    "weight": 2,
    "comm": [[0, 1], [2, 0]],
    "chunks": 2,
    "pairs": [[9, 9, 9, 8]] * 4,
    "fused": [5, 6, 5, 6],
    "link_occupancy": 1,
    "iterations": 2,
}
MEMORY: dict[str, Any] = {"forward": [2] * 4, "backward": -1, "weight": [-1] * 4, "limit": [16, 18]}


def of(convert: Any) -> Instance:
    numbers = {key: convert(value) for key, value in PLAIN.items()}
    return Instance.uniform(**numbers, memory=Memory(**{key: convert(v) for key, v in MEMORY.items()}))


@pytest.mark.parametrize(
    "convert",
    [
        np.array,  # of a number it makes an array without axes
        lambda value: np.int32(value) if isinstance(value, int) else np.array(value, np.int32),
        lambda value: pd.Series(value) if isinstance(value, list) and isinstance(value[0], int) else value,
        lambda value: [np.array(v) for v in value] if isinstance(value, list) else np.int8(value),
    ],
    ids=["array", "int32", "series", "list of scalars and rows"],
)
def test_an_instance_of_them_is_that_of_plain_integers(convert: Any) -> None:
    instance, expected = of(convert), of(lambda value: value)
    assert instance == expected
    assert hash(instance) == hash(expected)
    assert json.dumps(instance_to_dict(instance)) == json.dumps(instance_to_dict(expected))


def test_stages_per_device_come_from_an_array_as_from_a_list() -> None:
    times = np.array([1, 2, 3, 4, 5, 6])
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=times, backward=times, weight=times, placement="loop"
    )
    assert instance.placement == Placement("loop", 2, 3)


def test_data_holds_plain_values_from_its_birth() -> None:
    costs = Costs(np.array([1, 2]), np.int64(3), 4)
    assert costs == Costs([1, 2], 3, 4)
    assert type(costs.backward) is int
    placement = Placement("v", np.int64(4), np.int16(2))
    assert (type(placement.devices), type(placement.chunks)) == (int, int)


def test_options_of_a_solve() -> None:
    instance = Instance.uniform(devices=2, microbatches=np.int64(4), forward=3, backward=4, weight=2)
    options = {"time_limit": np.int64(5), "workers": np.int32(1), "seed": np.uint8(3)}
    assert solve(instance, "list", **options).schedule is not None
    assert Allowance(**options) == Allowance(5, 1, 3)


@pytest.mark.parametrize("release", [[7, 3], np.array([7, 3], np.int32), pd.Series([7, 3])], ids=type)
def test_release_of_a_simulation(release: Any) -> None:
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=3, backward=4, weight=2, placement="linear"
    )
    schedule = simulate(instance, serial_order(instance), release)
    assert schedule.start[0] == 7


@pytest.mark.parametrize("release", [[1], [1.0, 2.0], [True, False], 3, [[1, 2]], ["a", "b"]], ids=str)
def test_other_releases_are_refused(release: Any) -> None:
    instance = Instance.uniform(
        devices=2, microbatches=2, forward=3, backward=4, weight=2, placement="linear"
    )
    with pytest.raises(InputError, match=r"release = .*: must be one integer per device: 2"):
        simulate(instance, serial_order(instance), release)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"forward": np.float64(3)}, "forward = 3.0: must be an integer or one integer per stage"),
        ({"forward": np.array([1.0, 2.0, 3.0, 4.0])}, "forward[0] = 1.0: must be an integer"),
        ({"backward": np.array([True, True, True, True])}, "backward[0] = True: must be an integer"),
        ({"weight": np.bool_(True)}, "weight = True: must be an integer or one integer per stage"),
        ({"weight": np.array([1, 2])}, "weight = [1, 2]: has 2 entries, must have one per stage: 4"),
        ({"devices": np.float32(2)}, "devices = 2.0: must be an integer"),
        ({"microbatches": np.bool_(True)}, "microbatches = True: must be an integer"),
        ({"comm": np.array([[0, 1]])}, "comm = [[0, 1]]: has 1 rows, must have one per device: 2"),
        ({"comm": np.array([[0.0, 1.0], [1.0, 0.0]])}, "comm[0][0] = 0.0: must be an integer"),
    ],
    ids=str,
)
def test_other_numbers_are_refused_as_plain_ones_are(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        Instance.uniform(**PLAIN | change)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2.5,), "devices = 2.5: must be an integer"),
        ((0,), "devices = 0: must be at least 1"),
        ((2, np.float64(2)), "chunks = 2.0: must be an integer"),
    ],
)
def test_a_placement_checks_its_integers(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError) as error:
        Placement("v", *arguments)
    assert str(error.value) == message
