"""Experiment files: what is wrong is said with file, line and key before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from experiments.sweeps import INSTANCE, SMALL, write_experiment
from helpers.command_line import call

from tightpipe.experiments.experiment_file import line_of, load_experiment

TIMES = {key: INSTANCE[key] for key in ("microbatches", "forward", "backward", "weight")}
BAD = {
    "unknown key": (SMALL + "colour = 1\n", 5, "colour", "unknown key"),
    "empty key": (SMALL + '"" = 1\n', 5, '""', "unknown key"),
    "unknown method": (SMALL.replace('"list"', '\n  "lsit"'), 4, "methods", "'lsit'"),
    "unknown setting": ('\nsettings = ["9B-8x24"]\nmethods = ["list"]\n', 2, "settings", "'9B-8x24'"),
    "no problem": ('methods = ["list"]\ninstances = []\n', 2, "instances", "empty"),
    "no value": (SMALL.replace('["smallest", "2p"]', "[]"), 2, "memory", "empty"),
    "no list": (SMALL.replace("[20]", "20"), 4, "time_limits", "must be a list"),
    "a name of two problems": (
        SMALL.replace('["small.json"]', '["small.json", "small.toml"]'),
        1,
        "instances",
        "another problem has this name too",
    ),
    "a limit that is too large": (SMALL.replace("2p", "999999999999p"), 2, "memory", "at most 1000000000000"),
    "lengths of no distribution": (
        SMALL + 'uneven = [{ lengths = ["lognormal"], sigma = 0.4 }]\n',
        5,
        "uneven",
        "must be one of",
    ),
    "no table of memory": (
        SMALL.replace("instances", "layers").replace("small.json", "layers.json"),
        1,
        "layers",
        "memory = 5: must be a table",
    ),
    "no such file": (SMALL.replace("small.json", "large.json"), 1, "instances", "no such file"),
    "not an amount": (SMALL.replace("2p", "2q"), 2, "memory", "'2q'"),
    "a value twice": (SMALL.replace('"smallest"', '"2p"'), 2, "memory", "twice"),
    "negative limit": (SMALL.replace("20", "-1"), 4, "time_limits", "above 0"),
    "unknown costs": (SMALL + 'costs = ["mean"]\n', 5, "costs", "true, median"),
    "unknown stage": (SMALL + "uneven = [{ middle = 2 }]\n", 5, "uneven", "middle"),
    "unknown warm start": (SMALL + 'warm_starts = ["luck"]\n', 5, "warm_starts", "'luck'"),
    "parameter out of range": (
        SMALL + "[params.anneal]\nreach = 0\n",
        6,
        "params.anneal.reach",
        "must be an integer from 1 to 1e+12",
    ),
    "unknown parameter": (SMALL + "[params.anneal]\nfar = 1\nraech = 3\n", 7, "params.anneal.raech", "reach"),
    "unknown figure": (SMALL + 'figure = "pie"\n', 5, "figure", "'pie'"),
    "hard limit too low": (SMALL + "hard_limit = 20\n", 5, "hard_limit", "above"),
    "hard limit below the usual time limit": (
        'instances = ["small.json"]\nmethods = ["list"]\nhard_limit = 30\n',
        3,
        "hard_limit",
        "time limit, 60, which is the usual one, as the file has no time_limits",
    ),
    "no methods": ('instances = ["small.json"]\n', 1, "", "methods"),
    "method that does not fit": (SMALL.replace("list", "zb-h1"), 3, "methods", "zb-h1"),
    "not TOML": ("settings = [\n", None, "", "not TOML"),
    "figure of other axes": (
        SMALL.replace("smallest", "own") + 'figure = "memory"\n',
        2,
        "memory",
        "multiples of p",
    ),
    "makes no instance": (SMALL + 'microbatches = ["0.1p"]\n', 5, "microbatches", "at least 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_exit_2_with_line_and_key_and_write_nothing(case: str, tmp_path: Path) -> None:
    text, line, key, said = BAD[case]
    path = write_experiment(tmp_path, text)
    (tmp_path / "small.toml").write_text(
        "devices = 2\nmicrobatches = 1\nforward = 1\nbackward = 1\nweight = 1\n"
    )
    (tmp_path / "layers.json").write_text(json.dumps({**TIMES, "layers": 2, "memory": 5}))
    done = call("sweep", path, "-o", tmp_path / "results")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    where = f"{path}:" if line is None else f"{path}:{line}: {key}"
    assert done.stderr.startswith(f"tightpipe: {where}")
    assert said in done.stderr
    assert not (tmp_path / "results").exists()


def test_an_experiment_may_lie_in_any_folder(tmp_path: Path) -> None:
    folder = tmp_path / "runs [v2]*?"
    folder.mkdir()
    (problem,) = load_experiment(write_experiment(folder)).problems
    assert problem.name == "small"


def test_every_axis_has_a_value_where_the_file_names_none(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, 'instances = ["*.json"]\nmethods = ["list"]\n')
    experiment = load_experiment(path)
    assert [problem.native.devices for problem in experiment.problems] == [INSTANCE["devices"]]
    assert experiment.time_limits == (60.0,)
    assert experiment.hard_limit > 60


def test_lines_are_those_of_values_and_of_keys() -> None:
    text = "# a = 1\nb = [\n  1,\n  'x',\n]\n\"a\" = 2\n[c]\na = 3\n"
    assert [line_of(text, "b"), line_of(text, "b", "x"), line_of(text, "b", 1), line_of(text, "a")] == [
        2,
        4,
        3,
        6,
    ]
