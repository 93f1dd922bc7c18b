"""``export`` of published settings, and ``import`` of other programs' schedules."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.command_line import SMALL, Done, call, write

from tightpipe import Instance, load_instance, load_schedule, save_schedule, solve, validate
from tightpipe.experiments.experiment import choose_settings
from tightpipe.experiments.presets import FITTING, Comparison, published_instance, tasks_of_settings
from tightpipe.model.metrics import costs
from tightpipe.params.budget import Allowance
from tightpipe.settings import load_settings


def exported(folder: Path, *options: str) -> Instance:
    path = folder / "exported.json"
    done = call("export", "1.5B-8x24", "--target", "instance", *options, "-o", path)
    assert done.returncode == 0, done.stderr
    return load_instance(path)


def imported(folder: Path, name: str, out: str, *more: str, target: str = "torch-csv") -> Done:
    words = ("program", "import", name, "--target", target, "--instance", "instance.json", "-o", out)
    return call(*words, *more, cwd=folder)


@pytest.mark.parametrize(("memory", "method"), [("2p", "greedy-v"), ("3p", "greedy-v"), ("1p", "1f1b")])
def test_an_exported_setting_is_the_instance_of_compare(memory: str, method: str, tmp_path: Path) -> None:
    settings = choose_settings("1.5B-8x24")
    (task,) = tasks_of_settings(settings, Comparison((memory,), (method,), "makespan", Allowance()))
    options = ("--memory", memory, "--placement", task.row.placement, "--objective", "makespan")
    assert exported(tmp_path, *options) == task.instance


def test_usual_values_are_those_of_the_papers(tmp_path: Path) -> None:
    assert exported(tmp_path) == load_settings()["1.5B-8x24"].instance()


def test_every_setting_has_an_instance_in_every_placement_that_fits() -> None:
    for name in load_settings():
        for placement in FITTING:
            assert published_instance(name, placement=placement).placement.name == placement


def test_settings_are_listed_in_help_and_error(tmp_path: Path) -> None:
    shown = "".join(call("export", "--help").stdout.split())
    refused = call("export", "1.5B", "--target", "instance", "-o", tmp_path / "x.json")
    assert refused.returncode == 2
    assert refused.stderr.startswith("tightpipe: setting = '1.5B': must be one of 1.5B-8x24, ")
    for name in load_settings():
        assert name in shown
        assert name in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_schedule_s_instance_is_exported_as_it_is(tmp_path: Path) -> None:
    call("solve", write(tmp_path, SMALL), "--method", "list", "-o", tmp_path / "s.json")
    done = call("export", tmp_path / "s.json", "--target", "instance", "-o", tmp_path / "i.json")
    assert done.returncode == 0
    assert load_instance(tmp_path / "i.json") == load_instance(tmp_path / "instance.json")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("toy-4x8 --memory 1q", "memory = '1q': must be 2p, 0.5x, smallest, longest, none"),
        ("toy-4x8 --placement wave", "placement = 'wave': must be one of linear, v, loop, bidirectional"),
        ("toy-4x8 --objective speed", "objective = 'speed': must be one of device_span, makespan"),
        ("toy-4x8 --merge", "merge = True: instance has no such option; it takes memory, placement"),
        ("instance.json", "is an instance file, must be a schedule file"),
        ("s.json --memory 2p", "memory = '2p': goes with the name of a setting, not with a schedule file"),
        ("s.json --target csv --memory 2p", "memory = '2p': csv has no such option; it takes none"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: str, message: str, tmp_path: Path) -> None:
    call("solve", write(tmp_path, SMALL), "--method", "list", "-o", tmp_path / "s.json")
    source, *options = words.split()
    target = [] if "--target" in options else ["--target", "instance"]
    done = call("export", source, *target, *options, "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("target", ["torch-csv", "megatron-json", "chrome-trace", "csv"])
def test_what_was_exported_is_imported(target: str, tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    call("solve", "instance.json", "--method", "greedy-v", "-o", "s.json", cwd=tmp_path)
    call("export", "s.json", "--target", target, "-o", "other", cwd=tmp_path)
    done = imported(tmp_path, "other", "back.json", "--json", target=target)
    assert done.returncode == 0, done.stderr
    mine, back = load_schedule(tmp_path / "s.json"), load_schedule(tmp_path / "back.json")
    assert back.schedule == mine.schedule
    assert back.method is None
    assert json.loads(done.stdout)["cost"] == back.cost == mine.cost


def test_pytorch_s_own_file_gets_the_times_of_the_instance(tmp_path: Path) -> None:
    """1F1B of two stages as torch writes it: B is the whole backward, empty cells are idle."""
    write(tmp_path, {**SMALL, "placement": "linear", "microbatches": 2, "memory": None})
    write(tmp_path, "0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1,\n", "torch.csv")
    assert imported(tmp_path, "torch.csv", "s.json").returncode == 0
    content = load_schedule(tmp_path / "s.json")
    assert str(content.schedule.order) == "F0.0 F0.1 BW0.0 BW0.1\nF1.0 BW1.0 F1.1 BW1.1"
    assert validate(content.schedule.instance, content.schedule) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "0F0,0I0,0W0\n",
            "other: the order is invalid: complete: the schedule has 1 devices, the instance 2",
        ),
        ("0F0\n1F0\n", "other: the order is invalid: complete: F0.1 is missing"),
        ("0F0,x\n1F0\n", "other: row 0 = 'x': a cell is <stage><F|I|B|W><microbatch>, e.g. 7I3"),
        ("", "other: row 0 = '': has no operations"),
    ],
)
def test_a_schedule_that_does_not_fit_is_not_imported(text: str, message: str, tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    write(tmp_path, text, "other")
    done = imported(tmp_path, "other", "s.json")
    assert done.returncode == 2
    assert done.stderr == f"tightpipe: {message}\n"
    assert not (tmp_path / "s.json").exists()


def test_an_import_must_keep_the_memory_limit(tmp_path: Path) -> None:
    schedule = solve(replace(load_instance(write(tmp_path, SMALL)), memory=None), "greedy-v").schedule
    assert schedule is not None
    save_schedule(schedule, tmp_path / "s.json")
    call("export", "s.json", "--target", "torch-csv", "-o", "torch.csv", cwd=tmp_path)
    write(tmp_path, {**SMALL, "memory": {**SMALL["memory"], "limit": 4}})
    done = imported(tmp_path, "torch.csv", "-")
    assert done.returncode == 2
    assert done.stderr.startswith("tightpipe: torch.csv: the order is invalid: memory_limit: ")


def test_the_step_is_that_of_the_schedule_that_is_written(tmp_path: Path) -> None:
    """Merging adjacent B and W makes another schedule, here of a cheaper fused backward."""
    write(tmp_path, {**SMALL, "placement": "linear", "memory": None, "fused": 12})
    write(
        tmp_path,
        "0F0,0F1,0F2,0F3,0I0,0W0,0I1,0W1,0I2,0W2,0I3,0W3\n1F0,1I0,1W0,1F1,1I1,1W1,1F2,1I2,1W2,1F3,1I3,1W3\n",
        "t",
    )
    assert imported(tmp_path, "t", "s.json").returncode == 0
    steps = []
    for more in ((), ("--merge",)):
        done = call("export", "s.json", "--target", "torch-csv", *more, "-o", "out", "--json", cwd=tmp_path)
        assert imported(tmp_path, "out", "back.json").returncode == 0
        steps.append(json.loads(done.stdout)["step"])
        assert steps[-1] == costs(load_schedule(tmp_path / "back.json").schedule)["step"]
    assert steps[1] < steps[0]


def test_a_schedule_that_was_found_with_other_parameters_is_checked(tmp_path: Path) -> None:
    write(tmp_path, SMALL)
    write(tmp_path, "[anneal]\nreach = 4\n", "p.toml")
    words = ("-o", "s.json", "--params", "p.toml", "--certificate", "proof.json")
    assert call("solve", "instance.json", *words, cwd=tmp_path).returncode == 0
    assert "params" in json.loads((tmp_path / "s.json").read_text())
    done = call("check", "proof.json", "s.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
