"""The command ``costs model``: model files for public models."""

from __future__ import annotations

from typing import Any

import click

from ..core.errors import InputError
from ..core.files import check_writable
from ..planning.model_text import write_model
from ..planning.problem_file import problem_from_dict
from ..planning.public_models import ModelShape, find_shape, load_gpus, load_shapes
from ..planning.shapes import MEASURED_DISCOUNT, Training, model_file
from ..terminal.console import show_json, show_table
from .common import json_option, show, summary_beside
from .groups import costs

_MEASURED = "measured"
_COLUMNS = ("name", "layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "experts", "sequence")


@costs.command("model")
@click.argument("name", required=False)
@click.option("-o", "--output", default="-", metavar="FILE", help="File to write, TOML if its name ends so.")
@click.option("--devices", default=8, show_default=True, help="Devices of one pipeline.")
@click.option("--microbatches", default=32, show_default=True, help="Microbatches per step of a pipeline.")
@click.option("--microbatch-size", default=1, show_default=True, help="Sequences per microbatch.")
@click.option("--sequence", type=int, help="Tokens per sequence.  [default: the model's own]")
@click.option("--tensor-parallel", default=1, show_default=True, help="GPUs that work as one device.")
@click.option("--data-parallel", default=1, show_default=True, help="Pipelines side by side.")
@click.option("--gpu", type=click.Choice(list(load_gpus())), default="h100", show_default=True)
@click.option("--utilisation", default=0.6, show_default=True, help="Share of its FLOP/s that is reached.")
@click.option("--node-size", type=int, help="Devices of a node.  [default: all]")
@click.option("--reserve", default="4 GB", show_default=True, help="Memory of each GPU that stays free.")
@click.option("--recompute", type=click.Choice(["off", "blocks"]), default="off", show_default=True)
@click.option(
    "--discount",
    default="0",
    show_default=True,
    help=f"Share of B and W that a fused backward saves, e.g. 0.1; {_MEASURED} for {MEASURED_DISCOUNT}.",
)
@click.option("--keep-gradients", is_flag=True, help="W also needs the gradients of its maps' outputs.")
@json_option
def _model(
    name: str | None,
    output: str,
    microbatch_size: int,
    sequence: int | None,
    tensor_parallel: int,
    data_parallel: int,
    gpu: str,
    utilisation: float,
    discount: str,
    keep_gradients: bool,
    as_json: bool,
    **entries: Any,
) -> None:
    """List the public models whose shapes are known, or write a model file for the one called NAME.

    Times come from a model of FLOPs and memory bandwidth, bytes from the shape. The list needs no options.
    """
    if name is None:
        _show_shapes(as_json)
        return
    shape = find_shape(name)
    check_writable(output)
    training = Training(
        load_gpus()[gpu],
        utilisation,
        microbatch_size,
        sequence,
        tensor_parallel,
        data_parallel,
        keep_gradients,
        _discount(discount),
    )
    data = model_file(shape, training, **entries)
    layers = problem_from_dict(data).model.layers
    write_model(output, data, _head(shape, training, discount))
    parameters = sum(layer.parameters for layer in layers)
    with summary_beside(output):
        show({"output": output, "layers": len(layers), "parameters": parameters}, as_json)


def _show_shapes(as_json: bool) -> None:
    rows = [{column: getattr(shape, column) for column in _COLUMNS} for shape in load_shapes().values()]
    if as_json:
        show_json({"models": rows})
    else:
        show_table(_COLUMNS, [tuple(row.values()) for row in rows])


def _discount(text: str) -> float:
    if text == _MEASURED:
        return MEASURED_DISCOUNT
    try:
        return float(text)
    except ValueError:
        raise InputError(f"must be a share or {_MEASURED}", key="discount", value=text) from None


def _source(training: Training, discount: str) -> str:
    """Return in words where the times of fused backwards come from."""
    if not training.discount:
        return "Nothing is known of fused backwards: one takes as long as B and W."
    source = "as PyTorch 2.13 took on a CPU (docs/programs.md)" if discount == _MEASURED else "as stated"
    return f"A fused backward takes {training.discount:.1%} less than B and W, {source}."


def _head(shape: ModelShape, training: Training, discount: str) -> str:
    """Return the comment at the head of a model file, which says how its numbers were computed."""
    gpu, t = training.gpu, training.tensor_parallel
    device = (
        f"one {gpu.name}"
        if t == 1
        else f"{t} {gpu.name}s (tensor parallelism), and all bytes are those of one"
    )
    kept = "inputs and output gradients" if training.gradients_kept else "inputs"
    return (
        f"{shape.name}, one microbatch of {training.microbatch_size} x {training.sequence_of(shape)} tokens\n"
        f"\n"
        f"Times are computed, not measured: from the FLOPs of each layer at {training.utilisation:g} of the\n"
        f"peak, and its bytes at the memory bandwidth.\n"
        f"A device is {device}.\n"
        f"{_source(training, discount)}\n"
        f"W needs the {kept} of the linear maps. The page docs/plan.md has the formulas."
    )
