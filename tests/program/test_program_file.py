"""Programs as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.cases import instances, random_order, serial_order
from hypothesis import given, settings
from hypothesis import strategies as st

from tightpipe import InputError, Instance, simulate
from tightpipe.program import load_program, lower, program_to_dict, save_program


@settings(deadline=None, max_examples=40)
@given(instances(), st.integers(0, 99), st.booleans())
def test_a_program_survives_its_file(
    tmp_path_factory: pytest.TempPathFactory, problem: Instance, seed: int, waits: bool
) -> None:
    program = lower(simulate(problem, random_order(problem, seed)), waits=waits)
    path = tmp_path_factory.mktemp("program") / "program.json"
    save_program(program, path)
    assert load_program(path).devices == program.devices


def content() -> dict[str, Any]:
    problem = Instance.uniform(devices=2, microbatches=1, forward=1, backward=1, weight=1)
    data: dict[str, Any] = json.loads(
        json.dumps(program_to_dict(lower(simulate(problem, serial_order(problem)))))
    )
    return data


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("nodes",), ["type"], "nodes = "),
        (("devices",), 3, "must be a list of node lists"),
        (("devices", 0, 0), ["F"], r"devices\[0\]\[0\] = "),
        (("devices", 0, 0, 0), "G", r"devices\[0\]\[0\]\.type = 'G'"),
        (("devices", 0, 0, 4), -1, r"devices\[0\]\[0\]\.start = -1"),
        (("devices", 0, 0, 8), 1, r"\.joined = 1: must be true or false"),
        (("devices", 0), [], "is missing"),
        (("instance", "devices"), 0, r"instance\.devices = 0"),
    ],
)
def test_bad_program_files(place: tuple[Any, ...], value: Any, message: str, tmp_path: Path) -> None:
    data = content()
    at: Any = data
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    path = tmp_path / "program.json"
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match=message) as error:
        load_program(path)
    assert str(error.value).startswith(str(path))
