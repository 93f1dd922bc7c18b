"""Orders and schedules: text and files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.cases import instances, random_order, serial_order, uniform
from hypothesis import given

from tightpipe import (
    InputError,
    Instance,
    Memory,
    Operation,
    Order,
    Schedule,
    load_schedule,
    save_schedule,
    simulate,
)
from tightpipe.model.schedule_file import schedule_to_dict

INSTANCE = uniform(2, 2, (4, 5, 3), comm=1, placement="linear", memory=Memory(2, -1, -1, 4))
SCHEDULE = simulate(INSTANCE, serial_order(INSTANCE))


@pytest.mark.parametrize("text", ["F0.0", "B7.3", "W12.345", "BW1.1"])
def test_operations_round_trip(text: str) -> None:
    assert str(Operation.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "F", "F0", "G0.0", "F0.0xyz", "f0.0", "F-1.0", "F0.0 ", "F٣.0", "WB1.1"]
)
def test_other_text_is_no_operation(text: str) -> None:
    with pytest.raises(InputError, match="an operation is"):
        Operation.parse(text)


@given(instances())
def test_orders_round_trip_through_text(instance: Instance) -> None:
    order = random_order(instance, 7)
    assert Order.parse(str(order)) == order
    assert hash(Order.parse(str(order))) == hash(order)
    assert Order.from_lists(order.to_lists()) == order


@pytest.mark.parametrize("wrong", [("F", 0, 0), (0, 0), (0, 0, 10**30), (0, None, 0), (0.5, 0, 0)], ids=str)
def test_lists_of_anything_else_are_no_order(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match=r"operation = .*must be three integers") as error:
        Order.from_lists([[(0, 0, 0)], [wrong]])
    assert error.value.value == wrong


def test_orders_and_schedules_are_frozen() -> None:
    with pytest.raises(ValueError, match="read-only"):
        SCHEDULE.order.operations[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        SCHEDULE.start[0] = 1
    mine = np.zeros(len(SCHEDULE.order), np.int64)
    copy = Schedule(INSTANCE, SCHEDULE.order, mine, mine)
    mine[0] = 9
    assert copy.start[0] == 0


def test_schedules_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    save_schedule(SCHEDULE, path, method="serial", bound=7)
    content = load_schedule(path)
    assert content.schedule == SCHEDULE
    assert (content.method, content.bound, content.cost) == ("serial", 7, 46)
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]


def test_the_times_are_the_order_however_the_file_lists_it(tmp_path: Path) -> None:
    data = schedule_to_dict(SCHEDULE)
    data["devices"] = [device[::-1] for device in data["devices"]]
    (tmp_path / "s.json").write_text(json.dumps(data))
    assert load_schedule(tmp_path / "s.json").schedule == SCHEDULE


def test_pairs_round_trip(tmp_path: Path) -> None:
    instance = Instance.uniform(
        devices=1,
        microbatches=4,
        forward=4,
        backward=5,
        weight=3,
        placement="linear",
        overlapped=10,
        iterations=2,
    )
    order = Order.parse("F0.0 F0.1+BW0.0 BW0.1 F0.2 F0.3+B0.2 W0.2 BW0.3")
    assert str(order) == "F0.0 F0.1+BW0.0 BW0.1 F0.2 F0.3+B0.2 W0.2 BW0.3"
    schedule = simulate(instance, order)
    save_schedule(schedule, tmp_path / "s.json")
    assert load_schedule(tmp_path / "s.json").schedule == schedule
    assert order != Order.parse(str(order).replace("+", " "))


def test_an_invalid_schedule_is_not_written(tmp_path: Path) -> None:
    broken = Schedule(INSTANCE, SCHEDULE.order, SCHEDULE.start + 1, SCHEDULE.end)
    with pytest.raises(ValueError, match="invalid: duration"):
        save_schedule(broken, tmp_path / "s.json")
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        save_schedule(SCHEDULE, tmp_path / "none" / "s.json")


def drop_one(data: dict[str, Any]) -> None:
    data["devices"][1].pop()


def repeat_one(data: dict[str, Any]) -> None:
    data["devices"][0].append(data["devices"][0][0])


def invent_one(data: dict[str, Any]) -> None:
    data["devices"][0].append(["F0.2", 90, 94])


def invent_stage(data: dict[str, Any]) -> None:
    data["devices"][0].append(["F5.0", 90, 94])


def spoil_text(data: dict[str, Any]) -> None:
    data["devices"][0][0][0] = "F0,0"


def float_time(data: dict[str, Any]) -> None:
    data["devices"][0][0][1] = 0.5


def lose_device(data: dict[str, Any]) -> None:
    data["devices"].pop()


def no_device_list(data: dict[str, Any]) -> None:
    data["devices"][1] = {"F1.0": 3}


def no_instance(data: dict[str, Any]) -> None:
    del data["instance"]


def bad_instance(data: dict[str, Any]) -> None:
    data["instance"]["memory"]["limit"] = 1


def unknown_key(data: dict[str, Any]) -> None:
    data["colour"] = "red"


def text_cost(data: dict[str, Any]) -> None:
    data["cost"] = "48"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (drop_one, "W1.1 is missing"),
        (repeat_one, "F0.0 runs 2 times"),
        (invent_one, "devices[0][6] = 'F0.2': the instance has stages 0..1, microbatches 0..1"),
        (invent_stage, "devices[0][6] = 'F5.0': the instance has stages 0..1"),
        (spoil_text, "devices[0][0] = 'F0,0': an operation is"),
        (float_time, "devices[0][0] = 0.5: must be an integer"),
        (lose_device, "devices = 1: must be a list of 2 devices"),
        (no_device_list, "devices[1] = {'F1.0': 3}: must be a list"),
        (no_instance, "missing key 'instance'"),
        (bad_instance, "instance.memory.limit = 1: must hold one forward activation: at least 2"),
        (unknown_key, "colour = 'red': unknown key"),
        (text_cost, "cost = '48': must be an integer"),
    ],
)
def test_bad_schedule_files_are_named(spoil: Any, words: str, tmp_path: Path) -> None:
    data = schedule_to_dict(SCHEDULE)
    spoil(data)
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError) as error:
        load_schedule(path)
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)
