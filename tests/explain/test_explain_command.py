"""The command ``explain``."""

import json
from pathlib import Path

import pytest
from helpers.command_line import SMALL, call, write


@pytest.fixture
def solved(tmp_path: Path) -> Path:
    call("solve", write(tmp_path, SMALL), "--method", "greedy-v", "-o", tmp_path / "schedule.json")
    return tmp_path / "schedule.json"


def test_json_has_everything(solved: Path) -> None:
    done = call("explain", solved, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert sum(step["end"] - step["start"] for step in found["critical"]) == found["cost"]
    for device in found["devices"]:
        mine = [i for i in found["idle"] if i["device"] == device["device"]]
        assert sum(i["end"] - i["start"] for i in mine) == device["charged"] - device["busy"]
        assert sum(device["phases"].values()) == sum(device["reasons"].values()) == device["idle"]
    assert [r["name"] for r in found["relaxations"]][-1] == "memory +1 activation"


def test_text_has_a_table_for_each_question(solved: Path) -> None:
    done = call("explain", solved, "--longest", "3")
    assert done.returncode == 0
    for title in ("Idle time by device and phase", "what the device waits for", "(3 of", "Critical path"):
        assert title in done.stdout
    assert "greedy-v run anew" in done.stdout
    assert "weaker constraints" not in call("explain", solved, "--no-relax").stdout


def test_the_heuristics_run_anew_with_the_parameters_that_are_given(tmp_path: Path) -> None:
    params = write(tmp_path, {"list.rules": [[0, 0, 0, 1, 0, 0]]}, "params.json")
    made = tmp_path / "schedule.json"
    instance = write(tmp_path, {**SMALL, "devices": 4, "microbatches": 11, "backward": 17, "comm": 3})
    call("solve", instance, "--method", "list", "-o", made)
    usual, other = (
        json.loads(call("explain", made, "--json", *words).stdout) for words in ((), ("--params", params))
    )
    assert usual["relaxations"][-1]["unrelaxed"] == usual["cost"] < other["relaxations"][-1]["unrelaxed"]
    assert "params" not in usual
    assert other["params"] == {"list.rules": [[0.0, 0.0, 0.0, 1.0, 0.0, 0.0]]}
    assert "\nparameters: list.rules = " in call("explain", made, "--params", params).stdout


def test_an_invalid_schedule_is_not_explained(solved: Path, tmp_path: Path) -> None:
    data = json.loads(solved.read_text())
    data["devices"][0][0][2] += 1
    done = call("explain", write(tmp_path, data))
    assert (done.returncode, done.stdout) == (1, "")
    assert "invalid: " in done.stderr
    assert call("explain", tmp_path / "none.json").returncode == 2
