"""The command `tightpipe costs model`: its list, and files that are read as they were meant."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from helpers.command_line import SMALL, call

from tightpipe import load_schedule
from tightpipe.model.instance_file import load_law
from tightpipe.planning.problem_file import load_problem, problem_from_dict, problem_to_dict
from tightpipe.planning.public_models import find_shape, load_gpus, load_shapes, model_text
from tightpipe.planning.shapes import Training, problem_of
from tightpipe.runtime.profile import MeasuredLayers

OPTIONS = (
    *("--devices", "6", "--microbatches", "12", "--microbatch-size", "2", "--sequence", "1024"),
    *("--tensor-parallel", "4", "--data-parallel", "3", "--gpu", "a100", "--utilisation", "0.5"),
    *("--node-size", "2", "--reserve", "5 GiB", "--recompute", "full", "--keep-gradients"),
)


def test_the_list_has_every_shape() -> None:
    listed = json.loads(call("costs", "model", "--json").stdout)["models"]
    assert [row["name"] for row in listed] == list(load_shapes())
    assert "qwen2.5-32b" in call("costs", "model").stdout


def test_the_file_is_the_problem_of_the_options(tmp_path: Path) -> None:
    done = call("costs", "model", "llama-3-8b", *OPTIONS, "-o", "m.toml", "--json", cwd=tmp_path)
    training = Training(load_gpus()["a100"], 0.5, 2, 1024, 4, 3, True)
    problem = problem_of(
        find_shape("llama-3-8b"),
        training,
        devices=6,
        microbatches=12,
        node_size=2,
        reserve="5 GiB",
        recompute=["full"],
    )
    assert load_problem(tmp_path / "m.toml") == problem
    said = json.loads(done.stdout)
    assert said == {
        "output": "m.toml",
        "layers": 34,
        "parameters": sum(layer.parameters for layer in problem.model.layers),
    }


def test_without_a_file_it_is_printed() -> None:
    command = [
        sys.executable,
        "-c",
        "from _tightpipe_entry import main; main()",
        "costs",
        "model",
        "llama-2-7b",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert problem_from_dict(json.loads(done.stdout)).cluster.devices == (8,)
    assert "layers" in done.stderr


def test_a_file_is_toml_or_json_by_its_name(tmp_path: Path) -> None:
    for name in ("m.toml", "m.json"):
        call("costs", "model", "llama-2-7b", "-o", name, cwd=tmp_path)
    assert load_problem(tmp_path / "m.toml") == load_problem(tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["cluster"]["devices"] == 8


def test_a_key_is_explained_where_it_stands_first(tmp_path: Path) -> None:
    call("costs", "model", "llama-2-7b", "-o", "m.toml", cwd=tmp_path)
    text = (tmp_path / "m.toml").read_text()
    assert text.count("# ticks per microbatch") == 1
    assert "forward = " in text.partition("# ticks per microbatch")[0].splitlines()[-1]


def test_any_problem_is_written_as_toml() -> None:
    problem = problem_from_dict({
        "layers": [{"name": 'a "quoted"\\ n\u00e4me', "count": 3, "forward": 1, "backward": 2, "weight": 3}],
        "cluster": {"devices": 2, "memory": [5, 6], "comm": [[0, 1], [2, 0]], "bytes_per_parameter": 0.5},
        "batch": {"microbatches": 4},
        "search": {"placements": ["linear"], "chunks": [1]},
    })  # fmt: skip
    assert problem_from_dict(tomllib.loads(model_text(problem_to_dict(problem), "two\n\nlines"))) == problem


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["llama-4"], "model = 'llama-4': must be one of gpt-3-175b, llama-2-7b"),
        (["llama-2-7b", "--gpu", "tpu"], "'tpu' is not one of 'a100', 'h100', 'h200'"),
        (["llama-2-7b", "--reserve", "4 gigs"], "cluster.reserve = '4 gigs': unknown unit gigs"),
        (["llama-2-7b", "--reserve", "90 GB"], "cluster.reserve = '90 GB': must be less than the memory"),
        (["llama-2-7b", "--devices", "0"], "cluster.devices = 0: must be at least 1"),
        (
            ["llama-2-7b", "--devices", "99"],
            "layers = 34: must be at least 99 layers, one for each stage of linear",
        ),
        (["llama-2-7b", "--microbatches", "0"], "batch.microbatches = 0: must be at least 1"),
        (["llama-2-7b", "--node-size", "0"], "cluster.node_size = 0: must be at least 1"),
        (["llama-2-7b", "--utilisation", "60"], "utilisation = 60.0: must be above 0 and at most 1"),
        (["llama-2-7b", "--tensor-parallel", "3"], "tensor_parallel = 3: must divide the 32 heads"),
        (["llama-2-7b", "--recompute", "all"], "search.recompute[0] = 'all': must be one of selective, full"),
    ],
)
def test_bad_options_are_one_line_and_leave_no_file(tmp_path: Path, options: list[str], message: str) -> None:
    done = call("costs", "model", *options, "-o", "m.toml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_law_and_the_lengths_of_a_batch_are_an_instance(tmp_path: Path) -> None:
    done = call(
        "costs", "model", "llama-2-7b", "--law", "linear", "--devices", "8", "-o", "law.json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "lengths.csv").write_text("length\n" + "2048\n" * 12)
    options = ("--lengths", "lengths.csv", "--tokens", "4096", "--method", "1f1b", "-o", "s.json")
    done = call("solve", "law.json", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    instance = load_schedule(tmp_path / "s.json").schedule.instance
    assert (instance.devices, instance.microbatches, instance.alike) == (8, 6, True)
    assert instance == load_law(tmp_path / "law.json").instance([[2048, 2048]] * 6)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("costs", "model", "llama-2-7b", "--law", "circle"), "placement = 'circle': must be one of"),
        (
            ("costs", "model", "llama-2-7b", "--law", "v", "--devices", "32"),
            "devices = 32: must be at most 32 blocks",
        ),
        (("solve", "law.json", "--tokens", "4"), "--tokens = 4: goes with --lengths"),
        (("solve", "law.json", "--lengths", "none.csv"), "none.csv: "),
        (("solve", "i.json", "--lengths", "lengths.csv"), "i.json: is an instance file, must be a law file"),
    ],
)
def test_a_wrong_use_of_a_law_is_one_line(words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    (tmp_path / "i.json").write_text(json.dumps(SMALL))
    (tmp_path / "law.json").write_text(json.dumps({k: v for k, v in SMALL.items() if k != "microbatches"}))
    (tmp_path / "lengths.csv").write_text("3\n")
    done = call(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert line in said


def test_a_model_file_of_measured_layers_has_a_barrier_unless_it_is_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layers = [{"count": 6, "forward": 3, "backward": 4, "weight": 2, "fused": 5}]
    found = MeasuredLayers(layers, 1, ())
    monkeypatch.setattr("tightpipe.cli.costs.profile_layers", lambda *_, **__: found)
    shape = ("--layers", "4", "--hidden", "32", "--heads", "2", "--sequence", "16", "--vocabulary", "9")
    command = ("costs", "profile", "--devices", "2", "--microbatches", "4", *shape, "-o", tmp_path / "m.toml")
    for options, objective in (((), "step"), (("--objective", "device_span"), "device_span")):
        done = call(*command, *options)
        assert done.returncode == 0, done.stderr
        assert load_problem(tmp_path / "m.toml").space.objective == objective
