"""The stages of a transformer, or its single layers, are profiled with PyTorch.

On a machine on which only PyTorch is installed, run `stage_costs.py`, and read its table with `read_table`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..core.integers import check_int
from .profile_table import Profile, read_table
from .torch_needed import require_torch

DTYPES = ("float32", "bfloat16", "float16")
_SCRIPT = Path(__file__).with_name("stage_costs.py")


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """The shape of the transformer that is profiled.

    Parameters
    ----------
    layers
        Number of layers of the whole model, which are spread over the stages as evenly as possible.
    hidden, heads
        Hidden size, and number of attention heads, of which the hidden size is a multiple.
    sequence, microbatch
        Tokens per row, and rows per microbatch.
    dtype
        Type of all numbers, one of `DTYPES`.
    ffn
        Size of the feed-forward networks: one, or one for each layer. Empty means four times the hidden size.
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    microbatch: int = 1
    dtype: str = "float32"
    ffn: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "sequence", "microbatch"):
            check_int(name, getattr(self, name), 1)
        if self.hidden % self.heads:
            raise InputError(f"must be a multiple of heads = {self.heads}", key="hidden", value=self.hidden)
        if self.dtype not in DTYPES:
            raise InputError(f"must be one of {', '.join(DTYPES)}", key="dtype", value=self.dtype)
        for size in self.ffn:
            check_int("ffn", size, 1)
        if len(self.ffn) not in (0, 1, self.layers):
            rule = f"must be one size, or one for each of the {self.layers} layers"
            raise InputError(rule, key="ffn", value=list(self.ffn))


def profile_stages(
    shape: TransformerShape, stages: int, *, device: str | None = None, repeats: int = 10
) -> Profile:
    """Measure the durations of F, B, W and communication, and the memory, of the stages of a transformer.

    Parameters
    ----------
    shape
        Shape of the transformer.
    stages
        Number of stages, at most `shape.layers`.
    device
        `cpu` or `cuda`; None takes a GPU if there is one.
    repeats
        Number of runs of each stage; their median counts.

    Raises
    ------
    InputError
        If PyTorch is missing, or the measurement fails; the message has the last line of its output.
    """
    check_int("stages", stages, 1)
    if shape.layers < stages:
        raise InputError(f"must be at least the number of stages, {stages}", key="layers", value=shape.layers)
    said = _run_script(shape, device, {"stages": stages, "repeats": repeats})
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        table.write_text(said)
        return read_table(table)


def profile_layers(
    shape: TransformerShape, vocabulary: int, *, device: str | None = None, repeats: int = 10
) -> tuple[list[dict[str, Any]], int]:
    """Measure embedding, layers and head of a transformer, each apart.

    Parameters
    ----------
    shape, device, repeats
        As for `profile_stages`.
    vocabulary
        Number of tokens that embedding and head know.

    Returns
    -------
    tuple of a list and an integer
        The tables ``[[layers]]`` of a model file, in ticks of a microsecond, and the ticks of a message.

    Raises
    ------
    InputError
        If PyTorch is missing, or the measurement fails; the message has the last line of its output.
    """
    check_int("vocabulary", vocabulary, 1)
    measured = json.loads(_run_script(shape, device, {"vocabulary": vocabulary, "repeats": repeats}))
    return measured["layers"], measured["comm"]


def _run_script(shape: TransformerShape, device: str | None, options: dict[str, int]) -> str:
    """Return what the script prints that measures a transformer."""
    require_torch("profiling")
    check_int("repeats", options["repeats"], 1)
    numbers = {name: getattr(shape, name) for name in shape.__slots__ if name != "ffn"}
    given = numbers | options | ({} if device is None else {"device": device})
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    if shape.ffn:
        words += ["--ffn", *map(str, shape.ffn)]
    done = subprocess.run([sys.executable, "-P", str(_SCRIPT), *words], capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise InputError(f"the measurement failed and said: {said[-1].rpartition('error: ')[2]}")
    return done.stdout
