"""Profiling a transformer: an instance that can be scheduled, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.command_line import call

from tightpipe import InputError, OpKind, solve
from tightpipe.model.instance_file import load_law
from tightpipe.planning import Recomputation, load_problem
from tightpipe.runtime import TransformerShape, profile_layers, profile_stages
from tightpipe.runtime import profile as profile_module

torch = pytest.importorskip("torch")

SMALL = TransformerShape(layers=5, hidden=32, heads=2, sequence=16, microbatch=2)


def test_a_profile_is_an_instance() -> None:
    profile = profile_stages(SMALL, 4, device="cpu", repeats=15)
    instance = profile.instance(devices=2, microbatches=4)
    memory = instance.memory
    assert memory is not None
    held, freed_by_b, freed_by_w = (
        list(column)
        for column in (memory.forward, memory.backward, memory.weight)  # type: ignore[arg-type]
    )
    assert held[0] == 2 * held[1]  # five layers on four stages: two on the first
    token_bytes = 2 * 16 * 32 * 4
    assert held[1] > 10 * token_bytes
    # the linear maps' inputs are 1 + 1 + 1 + 4 times the hidden size
    assert freed_by_w[1] == -7 * token_bytes
    assert freed_by_b[1] == freed_by_w[1] * -1 - held[1]
    assert (profile.backward[0], freed_by_b[0]) == (0, 0)  # PyTorch runs the whole backward of stage 0 in W
    assert profile.fused is not None
    b, w, fused = (sum(ticks[1:]) for ticks in (profile.backward, profile.weight, profile.fused))
    assert fused > max(b, w) / 2  # it computes both gradients
    assert not instance.has(OpKind.B, 0)
    assert instance.duration(OpKind.BW, 1) == profile.fused[1]
    assert profile.variation is not None
    assert all(
        0 < share < 10 for share in (*profile.variation[0], *profile.variation[1][1:], *profile.variation[2])
    )
    for method in ("greedy-v", "1f1b-v"):  # one profile serves split and fused backwards
        assert solve(instance, method).schedule is not None


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(InputError, match="layers = 5: must be at least the number of stages, 6"):
        profile_stages(SMALL, 6)


def test_a_missing_gpu_is_named() -> None:
    if torch.cuda.is_available():
        profile = profile_stages(SMALL, 2, device="cuda", repeats=3)
        assert profile.memory is not None
        assert min(profile.memory[0]) > 0
    else:
        with pytest.raises(InputError, match="device = cuda: PyTorch finds no GPU"):
            profile_stages(SMALL, 2, device="cuda")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"heads": 3}, "multiple of heads"),
        ({"dtype": "int8"}, "dtype = 'int8'"),
        ({"layers": 0}, "layers = 0"),
    ],
)
def test_shapes_are_checked(fields: dict[str, object], message: str) -> None:
    values: dict[str, object] = {"layers": 4, "hidden": 32, "heads": 2, "sequence": 16, **fields}
    with pytest.raises(InputError, match=message):
        TransformerShape(**values)  # type: ignore[arg-type]


def test_each_layer_is_measured_apart(tmp_path: Path) -> None:
    shape = ("--layers", "4", "--hidden", "32", "--heads", "2", "--sequence", "16", "--microbatch", "2")
    unequal = ("--ffn", "64", "--ffn", "64", "--ffn", "128", "--ffn", "64")
    where = ("--devices", "2", "--microbatches", "4", "--limit", "1000000", "--device", "cpu")
    done = call(
        *("costs", "profile", *where, *shape, *unequal, "--vocabulary", "100", "--placement", "loop"),
        *("-o", "model.toml", "--json"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    problem = load_problem(tmp_path / "model.toml")
    assert '\ntick = "1 us"' in (tmp_path / "model.toml").read_text()
    embedding, first, second, wide, last, head = problem.model.layers
    assert [embedding.name, first.name, wide.name, head.name] == [
        "embedding",
        "block-64",
        "block-128",
        "head",
    ]
    assert first == second == last
    assert (embedding.fused, first.fused is None, head.fused is None) == (None, False, False)
    assert (embedding.backward, embedding.recompute, head.recompute) == (0, (), ())
    hidden, message = 32, 2 * 16 * 32 * 4
    norms, maps = 4 * hidden, 4 * hidden * hidden + 4 * hidden
    assert embedding.parameters == head.parameters - 2 * hidden == 100 * hidden
    assert wide.parameters == norms + maps + 2 * hidden * 128 + 128 + hidden
    assert wide.parameters - first.parameters == 64 * (2 * hidden + 1)
    # the inputs of the linear maps: 1 + 1 + 1 times the hidden size, and the size of the network
    assert first.weight_activation == 3 * message + 64 * 2 * 16 * 4
    assert wide.weight_activation - first.weight_activation == 64 * 2 * 16 * 4
    assert head.weight_activation == message
    assert embedding.activation == embedding.weight_activation == 2 * 16 * 8  # the tokens
    assert {layer.output for layer in (embedding, first, wide)} == {message}
    assert first.recompute == (Recomputation("full", first.forward, message),)
    assert message < first.activation
    assert problem.cluster.memory_of(2) == (1_000_000, 1_000_000)
    assert (problem.cluster.bytes_per_parameter, problem.space.placements) == (16, ("loop",))
    said = json.loads(done.stdout)
    warnings = said.pop("warnings")
    assert all(text in done.stderr for text in warnings)
    assert said == {"output": "model.toml", "layers": 6, "comm": problem.cluster.comm}


def test_stages_measured_at_three_lengths_are_a_law(tmp_path: Path) -> None:
    shape = ("--layers", "2", "--hidden", "32", "--heads", "2", "--repeats", "3", "--microbatch", "2")
    lengths = [word for length in (16, 32, 64) for word in ("--sequence", str(length))]
    where = ("--devices", "2", "--placement", "linear", "--device", "cpu")
    done = call("costs", "profile", *where, *shape, *lengths, "-o", "law.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    instance = load_law(tmp_path / "law.json").instance([(32, 32), (48, 48)])
    measured = profile_stages(replace(SMALL, layers=2, sequence=32), 2, device="cpu", repeats=3)
    assert measured.memory is not None
    for stage in (0, 1):
        assert instance.memory_delta(OpKind.F, stage, 0) == pytest.approx(measured.memory[0][stage], abs=2)
        assert instance.duration(OpKind.F, stage, 1) >= instance.duration(OpKind.F, stage, 0) > 0


def test_stages_of_unequal_layers_are_measured() -> None:
    profile = profile_stages(replace(SMALL, layers=3, ffn=(32, 32, 96)), 3, device="cpu", repeats=1)
    assert profile.memory is not None
    assert profile.memory[2][1] - profile.memory[2][2] == 64 * 2 * 16 * 4
    # PyTorch's first stage keeps everything until W, which runs its whole backward
    assert profile.memory[1][0] == 0
    assert profile.backward[0] == 0


def test_an_only_stage_begins_with_the_input_and_ends_with_the_loss() -> None:
    alone = profile_stages(replace(SMALL, layers=1), 1, device="cpu", repeats=1).memory
    apart = profile_stages(replace(SMALL, layers=3), 3, device="cpu", repeats=1).memory
    assert alone is not None
    assert apart is not None
    first, middle, last = apart[0]
    loss = last - middle
    assert loss == 2 * 2 * 16 * 32 * 4  # the mean squared error keeps output and target
    assert alone[0] == (first + loss,)
    assert alone[1] == (0,)  # as at a first stage, W runs the whole backward


def test_a_median_of_few_values_is_not_known() -> None:
    profile = profile_stages(replace(SMALL, layers=2), 2, device="cpu", repeats=1, tolerance=1000.0)
    assert "F of stage 0 (1 of at least 6 steps)" in " ".join(profile.warnings)
    profile = profile_stages(replace(SMALL, layers=2), 2, device="cpu", repeats=6, tolerance=1000.0)
    assert profile.warnings == ()


def test_what_a_process_prints_is_not_read_as_a_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = (
        "import os, sys\nif '--multiprocessing-fork' in sys.orig_argv:\n    os.write(1, b'connected\\n')\n"
    )
    (tmp_path / "sitecustomize.py").write_text(noise)  # Python imports it at the start of every process
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert profile_stages(replace(SMALL, layers=2), 2, device="cpu", repeats=1).memory is not None


def test_layers_cannot_be_measured_on_no_device() -> None:
    with pytest.raises(InputError, match="devices = 0: must be at least 1"):
        profile_layers(SMALL, 10, devices=0, device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vocabulary", "0"], "vocabulary = 0: must be at least 1"),
        (["--vocabulary", "9", "--stages", "2"], "stages = 2: contradicts --vocabulary"),
        (
            ["--vocabulary", "9", "--ffn", "3", "--ffn", "4"],
            "ffn = [3, 4]: must be one size, or one for each of",
        ),
        (
            ["--vocabulary", "9", "--devices", "9", "--placement", "v"],
            "layers = 5: must be at least 18 layers",
        ),
        (["--vocabulary", "9", "--limit", "-1"], "cluster.memory = -1: must be at least 1"),
        (["--ffn", "0"], "ffn = 0: must be at least 1"),
    ],
)
def test_wrong_options_leave_no_file(tmp_path: Path, options: list[str], message: str) -> None:
    shape = ("--layers", "4", "--hidden", "32", "--heads", "2", "--sequence", "16", "--device", "cpu")
    done = call(
        "costs",
        "profile",
        "--devices",
        "2",
        "--microbatches",
        "4",
        *shape,
        *options,
        "-o",
        "m.toml",
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_script_alone_says_what_it_needs() -> None:
    script = Path(profile_module.__file__).with_name("stage_costs.py")
    words = ("--layers", "1", "--hidden", "4", "--heads", "1", "--sequence", "2", "--microbatch", "1")
    for more in ((), ("--stages", "1", "--vocabulary", "3")):
        done = subprocess.run(
            [sys.executable, "-P", str(script), *words, *more], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "stages, vocabulary: exactly one of them must be given" in done.stderr
