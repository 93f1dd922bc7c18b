"""Profile a transformer with PyTorch and make an instance of it.

``python -m tightpipe.runtime.profile --devices 4 --microbatches 8 --layers 8 --hidden 1024 --heads 16
--sequence 1024 --microbatch 1 -o instance.json`` measures on the GPU where there is one, else on the
CPU. On a machine that has PyTorch alone run `stage_costs.py`, and read its table here with `read_table`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..instance import Instance, Objective, check_int
from ..instance_file import save_instance
from ..placement import PLACEMENTS, Placement
from .profile_table import Profile, read_table
from .torch_needed import require_torch

DTYPES = ("float32", "bfloat16", "float16")
_SCRIPT = Path(__file__).with_name("stage_costs.py")


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """What is profiled.

    Parameters
    ----------
    layers
        Of the whole model, spread over the stages as evenly as they go.
    hidden, heads
        Width, a multiple of the number of heads.
    sequence, microbatch
        Tokens per row and rows per microbatch.
    dtype
        One of `DTYPES`.
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    microbatch: int = 1
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "sequence", "microbatch"):
            check_int(name, getattr(self, name), 1)
        if self.hidden % self.heads:
            raise InputError(f"must be a multiple of heads = {self.heads}", key="hidden", value=self.hidden)
        if self.dtype not in DTYPES:
            raise InputError(f"must be one of {', '.join(DTYPES)}", key="dtype", value=self.dtype)


def profile_stages(
    shape: TransformerShape, stages: int, *, device: str | None = None, repeats: int = 10
) -> Profile:
    """Measure F, B, W, communication and memory of a transformer's stages.

    Parameters
    ----------
    shape
        The transformer.
    stages
        Number of stages, at most `shape.layers`.
    device
        `cpu` or `cuda`; None takes the GPU where there is one.
    repeats
        Runs of each stage that the median is taken of.

    Raises
    ------
    InputError
        If PyTorch is missing, or the measurement fails; with what it said.
    """
    require_torch("profiling")
    check_int("stages", stages, 1)
    check_int("repeats", repeats, 1)
    numbers = {name: getattr(shape, name) for name in shape.__slots__}
    options = {**numbers, "stages": stages, "repeats": repeats}
    if device is not None:
        options["device"] = device
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    done = subprocess.run([sys.executable, "-P", str(_SCRIPT), *words], capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise InputError(f"the measurement failed and said: {said[-1]}")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        table.write_text(done.stdout)
        return read_table(table)


def profile_instance(
    shape: TransformerShape,
    *,
    devices: int,
    microbatches: int,
    placement: str = "v",
    chunks: int | None = None,
    limit: int | None = None,
    objective: Objective | str = Objective.DEVICE_SPAN,
    device: str | None = None,
    repeats: int = 10,
    path: str | Path | None = None,
) -> Instance:
    """Profile a transformer and return its instance: ticks are microseconds, memory is bytes.

    `chunks` is the number of stages per device, `limit` the memory limit in bytes; with `path` the
    instance is written there too.

    Raises
    ------
    InputError
        As `profile_stages` and `Instance.uniform`.
    """
    check_int("devices", devices, 1)
    check_int("microbatches", microbatches, 1)
    stages = Placement(placement, devices, chunks).stages
    if shape.layers < stages:
        raise InputError(f"must be at least the number of stages, {stages}", key="layers", value=shape.layers)
    profile = profile_stages(shape, stages, device=device, repeats=repeats)
    instance = profile.instance(
        devices=devices, microbatches=microbatches, placement=placement, limit=limit, objective=objective
    )
    if path is not None:
        save_instance(instance, path)
    return instance


def main(arguments: Sequence[str] | None = None) -> int:
    """Profile from the command line and write the instance file; 2 on bad input."""
    made = argparse.ArgumentParser(prog="tightpipe.runtime.profile", description=__doc__)
    for name in ("devices", "microbatches", "layers", "hidden", "heads", "sequence"):
        made.add_argument(f"--{name}", type=int, required=True)
    made.add_argument("--microbatch", type=int, default=1)
    made.add_argument("--dtype", default="float32", choices=DTYPES)
    made.add_argument("--placement", default="v", choices=PLACEMENTS)
    made.add_argument("--chunks", type=int)
    made.add_argument("--limit", type=int, help="memory limit per device in bytes")
    made.add_argument("--device", choices=("cpu", "cuda"))
    made.add_argument("--repeats", type=int, default=10)
    made.add_argument("-o", "--output", type=Path, required=True)
    given = vars(made.parse_args(arguments))
    shape = {name: given.pop(name) for name in TransformerShape.__slots__}
    try:
        instance = profile_instance(TransformerShape(**shape), path=given.pop("output"), **given)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    costs = instance.costs
    print(f"F {costs.forward}, B {costs.backward}, W {costs.weight} microseconds per stage")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
