"""``program replay --noise``: tables, files, JSON, and both kinds of files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from helpers.command_line import SMALL, call, write

from tightpipe import load_schedule
from tightpipe.noise import Jitter, run_noisy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("noise")
    instance = write(path, SMALL, "i.json")
    for method in ("greedy-v", "v-half"):
        assert call("solve", instance, "--method", method, "-o", path / f"{method}.json").returncode == 0
    assert call("lower", path / "v-half.json", "-o", path / "program.json").returncode == 0
    return path


def test_figures_files_and_json_are_those_of_python(folder: Path) -> None:
    files = [folder / f"{name}.json" for name in ("greedy-v", "v-half")]
    found = run_noisy([load_schedule(file).schedule for file in files], (Jitter(0.2),), samples=50, seed=3)
    asked = ("--noise", "jitter:0.2", "--samples", "50", "--seed", "3", "--top", "2", "--json")
    written = ("-o", folder / "t.csv", "--costs", folder / "c.csv", "--figure", folder / "f.png")
    done = call("program", "replay", *files, *asked, *written)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    with (folder / "t.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    with (folder / "c.csv").open(newline="") as file:
        costs = list(csv.DictReader(file))
    assert (folder / "f.png").read_bytes().startswith(b"\x89PNG")
    assert len(costs) == 50
    for noisy, row, line in zip(found, data["schedules"], table, strict=True):
        assert row["mean"] == float(line["mean"]) == pytest.approx(noisy.distribution.mean, abs=0.06)
        assert row["p95"] == pytest.approx(noisy.distribution.p95, abs=0.06)
        assert row["planned"] == int(line["planned"]) == noisy.planned
        assert [float(c[row["schedule"]]) for c in costs] == pytest.approx(noisy.costs.tolist(), abs=0.001)
        assert len(row["critical"]) == 2
        most = max(noisy.delay.max(), noisy.message_delay.max())
        assert row["critical"][0]["delay"] == pytest.approx(most, abs=0.06)
    assert data["schedules"][0]["against_first"] == 0.0
    assert sum(row["wins"] for row in data["schedules"]) >= 1.0


def test_operations_of_slices_are_named_by_microbatch_and_slice(tmp_path: Path) -> None:
    sliced = {**SMALL, "placement": "linear", "slices": [{}, {"forward": 13}, {}]}
    path = tmp_path / "sliced.json"
    assert (
        call("solve", write(tmp_path, sliced, "i.json"), "--method", "seq-1f1b", "-o", path).returncode == 0
    )
    done = call(
        "program", "replay", path, "--noise", "jitter:0.1", "--samples", "20", "--top", "99", "--json"
    )
    named = {row["what"].split()[-1] for row in json.loads(done.stdout)["schedules"][0]["critical"]}
    instance = load_schedule(path).schedule.instance
    assert named <= {
        instance.name(op) for device in load_schedule(path).schedule.order.to_lists() for op in device
    }


def test_a_program_runs_as_the_schedule_that_it_was_lowered_from(folder: Path) -> None:
    asked = ("--noise", "stall:any:30", "--noise", "jitter:0.1", "--samples", "40", "--json")
    one, other = (
        json.loads(call("program", "replay", folder / name, *asked).stdout)["schedules"][0]
        for name in ("v-half.json", "program.json")
    )
    assert {**one, "schedule": ""} == {**other, "schedule": ""}


def test_schedules_of_different_instances_are_refused(folder: Path) -> None:
    other = write(folder, SMALL | {"forward": 11}, "o.json")
    assert call("solve", other, "--method", "greedy-v", "-o", folder / "other.json").returncode == 0
    done = call("program", "replay", folder / "greedy-v.json", folder / "other.json", "--noise", "jitter:0.1")
    assert done.returncode == 2
    assert "schedules must be of the same instance" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_text_has_the_table_and_what_is_critical(folder: Path) -> None:
    done = call(
        "program",
        "replay",
        folder / "greedy-v.json",
        "--noise",
        "slow-device:1:1.5",
        "--samples",
        "3",
        "--top",
        "3",
    )
    assert done.returncode == 0
    head, row = (line.split() for line in done.stdout.splitlines()[:2])
    assert head[:3] == ["schedule", "planned", "mean"]
    assert row[0] == "greedy-v"
    assert "where delays enter" in done.stdout
    assert done.stdout.count("100.0%") == 3
