"""Profiling a transformer: an instance that can be scheduled, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tightpipe import InputError, load_instance, solve
from tightpipe.runtime.profile import TransformerShape, main, profile_instance

SMALL = TransformerShape(layers=5, hidden=32, heads=2, sequence=16, microbatch=2)


def test_a_profile_is_an_instance(tmp_path: Path) -> None:
    path = tmp_path / "instance.json"
    instance = profile_instance(SMALL, devices=2, microbatches=4, device="cpu", repeats=3, path=path)
    assert load_instance(path) == instance
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
    assert instance.comm(0, 1) > 0
    assert solve(instance, "greedy-v").schedule is not None


def test_what_the_command_line_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "--devices",
        "2",
        "--microbatches",
        "4",
        "--layers",
        "3",
        "--hidden",
        "32",
        "--heads",
        "2",
        "--sequence",
        "16",
        "-o",
    ]
    assert main([*words, str(tmp_path / "instance.json")]) == 2
    assert "layers = 3: must be at least the number of stages, 4" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


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
