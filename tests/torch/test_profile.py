"""Profiling a transformer: an instance that can be scheduled, and what is refused."""

from __future__ import annotations

import pytest

from tightpipe import InputError, solve
from tightpipe.runtime import TransformerShape, profile_stages

torch = pytest.importorskip("torch")

SMALL = TransformerShape(layers=5, hidden=32, heads=2, sequence=16, microbatch=2)


def test_a_profile_is_an_instance() -> None:
    profile = profile_stages(SMALL, 4, device="cpu", repeats=3)
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
    assert instance.comm(0, 1) > 0
    assert solve(instance, "greedy-v").schedule is not None


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
