"""docs/examples: each file is what the command on docs/plan.md writes, and is a planning problem."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from helpers.command_line import call
from helpers.documents import ROOT

from tightpipe.planning import load_problem

FOLDER = ROOT / "docs/examples"
LINES = re.findall(
    r"^tightpipe (costs model .* -o \S+\.toml)$", (ROOT / "docs/plan.md").read_text(), flags=re.M
)
COMMANDS = {line.split()[-1]: shlex.split(line) for line in LINES}


def test_the_page_has_a_command_for_each_example() -> None:
    assert set(COMMANDS) == {path.name for path in FOLDER.iterdir()}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_is_what_its_command_writes(name: str, tmp_path: Path) -> None:
    assert call(*COMMANDS[name], cwd=tmp_path).returncode == 0
    assert (FOLDER / name).read_text() == (tmp_path / name).read_text()


@pytest.mark.parametrize(
    ("name", "devices", "layers", "kinds"),
    [
        ("llama-2-7b.toml", 8, 34, 3),
        ("qwen2.5-32b.toml", 16, 66, 3),
        ("deepseek-moe-16b.toml", 8, 30, 4),
    ],
)
def test_an_example_is_a_planning_problem(name: str, devices: int, layers: int, kinds: int) -> None:
    problem = load_problem(FOLDER / name)
    model = problem.model.layers
    assert (problem.cluster.devices, len(model), len(set(model))) == ((devices,), layers, kinds)
    memory = problem.cluster.memory_of(devices)
    assert memory is not None
    static = problem.cluster.static_bytes(sum(layer.parameters for layer in model))
    assert static < sum(memory) - devices * problem.cluster.reserve
    near, far = (problem.cluster.comm_ticks(0, other, model[0].output or 0) for other in (1, devices - 1))
    assert (near < far) == (name == "qwen2.5-32b.toml")  # the one on two nodes
