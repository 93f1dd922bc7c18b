"""The commands ``costs profile`` and ``costs model``: costs that are measured or computed."""

from __future__ import annotations

from typing import Any

import click

from ..base.errors import InputError, check_int
from ..base.files import check_writable
from ..measuring import read_chrome_trace
from ..model.costs import Objective
from ..model.instance import check_size
from ..model.instance_file import save_instance, save_law
from ..model.placement import PLACEMENTS, Placement
from ..planning.many_steps import stage_law
from ..planning.problem_file import problem_from_dict
from ..planning.public_models import ModelShape, find_shape, load_gpus, load_shapes, write_model
from ..planning.shapes import MEASURED_DISCOUNT, STATE, STATE_OF_FLOAT32, Training, model_file
from ..planning.units import USUAL_TICK
from ..runtime import (
    DTYPES,
    MOST_STEPS,
    TOLERANCE,
    FittedLaw,
    Profile,
    TransformerShape,
    check_lengths,
    fit_law,
    profile_layers,
    profile_stages,
    read_tables,
    read_zero_bubble_log,
)
from ..terminal import show_json, show_table, working
from .common import costs, json_option, numbers, output_option, refuse_given, show, summary_beside, warn

_MEASURED = "measured"
_LAWS = "\nTimes and bytes are laws: so much per token, and per square of the length of a sequence."
_POOR_FIT = 0.05  # relative error of a law beyond which there is a warning
_COLUMNS = ("name", "layers", "hidden", "heads", "kv_heads", "ffn", "vocabulary", "experts", "sequence")


@costs.command("model")
@click.argument("name", required=False)
@click.option("-o", "--output", default="-", metavar="FILE", help="File to write, TOML if its name ends so.")
@click.option(
    "--law", "placement", metavar="PLACEMENT", help="Write a law of lengths for equal stages in PLACEMENT."
)
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
@click.option("--recompute", default="", help="What plans may choose: selective, full or selective,full.")
@click.option("--slices", metavar="NUMBERS", help="Let a plan choose among numbers of slices, e.g. 1,2,4,8.")
@click.option(
    "--discount",
    default="0",
    show_default=True,
    help=f"Share of B and W that a fused backward saves, e.g. 0.1; {_MEASURED} for {MEASURED_DISCOUNT}.",
)
@click.option(
    "--expert-parallel", default=1, show_default=True, help="GPUs, of as many pipelines, that share experts."
)
@click.option(
    "--keep-gradients",
    "gradients_kept",
    is_flag=True,
    help="W also needs the gradients of its maps' outputs.",
)
@click.option("--offload", is_flag=True, help="Activations of blocks may leave for the host's memory.")
@json_option
def _model(
    name: str | None,
    output: str,
    placement: str | None,
    devices: int,
    reserve: str,
    node_size: int | None,
    microbatches: int,
    gpu: str,
    discount: str,
    recompute: str,
    slices: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """List the public models whose shapes are known, or write a model file for the one called NAME.

    Times come from a model of FLOPs and memory bandwidth, bytes from the shape. The list needs no options.

    With --slices, times and bytes of the layers are laws, from which those of slices follow. With --law,
    write a law file in place of a model file: the costs of equal stages as functions of the lengths of
    sequences, from which `tightpipe solve --lengths` makes an instance for each batch.
    """
    if name is None:
        _show_shapes(as_json)
        return
    shape = find_shape(name)
    check_writable(output)
    training = Training(load_gpus()[gpu], discount=_discount(discount), **how)
    cluster: dict[str, Any] = {"devices": devices, "reserve": reserve, "node_size": node_size}
    if placement is not None:
        if training.offload:
            raise InputError("goes without --law, which knows no copies", key="--offload")
        law = stage_law(shape, training, placement=placement, **cluster)
        save_law(law, output)
        with summary_beside(output):
            show({"output": output, "stages": law.placement.stages, "limit": law.limit}, as_json)
        return
    kinds = recompute.split(",") if recompute else []
    counts = [] if slices is None else numbers("slices", slices, "1,2,4,8")
    chosen: dict[str, Any] = {"recompute": kinds, "slices": [check_int("slices", n, 1) for n in counts]}
    data = model_file(shape, training, microbatches=microbatches, **cluster, **chosen)
    layers = problem_from_dict(data).model.layers
    write_model(output, data, _head(shape, training, discount) + (_LAWS if slices else ""))
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
    experts = (
        f"{training.expert_parallel} GPUs of a node share the experts: layers with experts say which parts\n"
        f"are on the network, and have as many parameters as their static state is worth.\n"
    )
    device = (
        f"one {gpu.name}"
        if t == 1
        else f"{t} {gpu.name}s (tensor parallelism), and all bytes are those of one"
    )
    kept = "inputs and output gradients" if training.gradients_kept else "inputs"
    offload = "All activations of a block may leave; the host's link has the bandwidth of its data sheet.\n"
    return (
        f"{shape.name}, one microbatch of {training.microbatch_size} x {training.sequence_of(shape)} tokens\n"
        f"\n"
        f"Times are computed, not measured: from the FLOPs of each layer at {training.utilisation:g} of the\n"
        f"peak, and its bytes at the memory bandwidth.\n"
        f"A device is {device}.\n"
        f"{_source(training, discount)}\n"
        f"{experts if training.expert_parallel > 1 else ''}"
        f"{offload if training.offload else ''}"
        f"W needs the {kept} of the linear maps. The page docs/plan.md has the formulas."
    )


@costs.command("profile")
@output_option
@click.option("--devices", type=int, required=True, help="Devices of the pipeline.")
@click.option("--microbatches", type=int, help="Microbatches per step. Not for a law.")
@click.option("--placement", type=click.Choice(PLACEMENTS), help="[default: v; of a model file all]")
@click.option(
    "--objective",
    type=click.Choice([str(o) for o in Objective]),
    help="The cost to minimise. [default: device_span; of a model file step]",
)
@click.option("--limit", type=int, help="Memory limit per device, in the profile's unit (bytes if measured).")
@click.option("--trace", multiple=True, metavar="FILE", help="Read Chrome traces with PP: ranges.")
@click.option("--log", metavar="FILE", help="Read a zero-bubble runtime's log.")
@click.option("--table", metavar="FILE", help="Read a CSV stage,kind,time,memory; with length first, a law.")
@click.option("--stages", type=int, help="Measure: number of stages. [default: the placement's usual]")
@click.option("--layers", type=int, help="Measure a transformer: layers of the whole model.")
@click.option("--hidden", type=int, help="Measure: hidden size.")
@click.option("--heads", type=int, help="Measure: attention heads.")
@click.option("--sequence", multiple=True, type=int, help="Measure: tokens per row; three or more for a law.")
@click.option("--microbatch", type=int, default=1, show_default=True, help="Measure: rows per microbatch.")
@click.option(
    "--ffn", multiple=True, type=int, help="Measure: size of the feed-forward networks, or each one's."
)
@click.option("--vocabulary", type=int, help="Measure each layer, embedding and head apart: a model file.")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", show_default=True)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="[default: GPUs where there are any]")
@click.option("--repeats", default=MOST_STEPS, show_default=True, help="Measure: at most so many steps.")
@click.option(
    "--tolerance", default=TOLERANCE, show_default=True, help="Measure: to which share of a median."
)
@json_option
def _profile(
    output: str,
    devices: int,
    microbatches: int | None,
    placement: str | None,
    objective: str | None,
    limit: int | None,
    trace: tuple[str, ...],
    log: str | None,
    table: str | None,
    stages: int | None,
    sequence: tuple[int, ...],
    vocabulary: int | None,
    device: str | None,
    repeats: int,
    tolerance: float,
    as_json: bool,
    **shape: Any,
) -> None:
    """Write an instance file from measured costs: of a transformer here, or a trace, log or table.

    With --vocabulary, measure embedding, head and each layer separately and write a model file, from which
    `tightpipe plan` chooses the stages; --limit is then each device's memory.

    With three or more lengths, write a law file: --sequence given once for each, or a table with a first
    column length. `tightpipe solve --lengths` schedules batches of any lengths with it.
    """
    check_writable(output)
    how: dict[str, Any] = {"device": device, "repeats": repeats, "tolerance": tolerance}
    shape["sequence"] = sequence[0] if sequence else None
    files = {"trace": trace or None, "log": log, "table": table}
    if vocabulary is not None:
        refuse_given("contradicts --vocabulary, which measures each layer", **files, stages=stages)
        if len(sequence) > 1:
            raise InputError("goes with one --sequence", key="vocabulary", value=vocabulary)
        number = _number_of(microbatches)
        barrier = objective or str(Objective.STEP)
        rest = _beside_layers(devices, number, placement, barrier, limit, shape["dtype"])
        _write_model(output, rest, _shape(shape), vocabulary, how, as_json)
        return
    placement, objective = placement or "v", objective or str(Objective.DEVICE_SPAN)
    given = [name for name, value in files.items() if value is not None]
    if len(given) > 1:
        raise InputError("give one of --trace, --log and --table", value=" ".join(given))
    profiles: dict[int | None, Profile]
    if table is not None:
        profiles = read_tables(table)
    elif log is not None:
        profiles = {None: read_zero_bubble_log(log, placement=placement)}
    elif trace:
        profiles = {None: read_chrome_trace(*trace)}
    else:
        where, different = _placement(placement, devices, stages), list(dict.fromkeys(sequence))
        lengths: list[int | None] = [None]
        # all that can be wrong is said before minutes of measurement
        if len(different) > 1:
            check_lengths(different)
            _refuse_a_number(microbatches)
            lengths = [*different]
        else:
            check_size(where, _number_of(microbatches))
        profiles = {
            tokens: _measure(_shape(shape if tokens is None else {**shape, "sequence": tokens}), where, how)
            for tokens in lengths
        }
    if None not in profiles:
        _refuse_a_number(microbatches)
        rows = 1 if table is not None else shape["microbatch"]
        by_lengths = {(int(str(tokens)),) * rows: profile for tokens, profile in profiles.items()}
        count = len(next(iter(profiles.values())).forward)
        fitted = fit_law(by_lengths, _placement(placement, devices, count), limit=limit, objective=objective)
        _write_law(output, fitted, list(profiles.values()), as_json)
        return
    profile = profiles[None]
    instance = profile.instance(
        devices=devices,
        microbatches=_number_of(microbatches),
        placement=placement,
        limit=limit,
        objective=objective,
    )
    save_instance(instance, output)
    found = {name: getattr(profile, name) for name in ("forward", "backward", "weight", "fused")}
    said = warn(profile.warnings, as_json)
    with summary_beside(output):
        show({"output": output, **found, "comm": profile.comm, **said}, as_json)


def _number_of(microbatches: int | None) -> int:
    if microbatches is None:
        raise InputError("is needed: the microbatches of a step", key="--microbatches")
    return microbatches


def _refuse_a_number(microbatches: int | None) -> None:
    if microbatches is not None:
        raise InputError("goes without a law: its batches say", key="microbatches", value=microbatches)


def _write_law(output: str, fitted: FittedLaw, profiles: list[Profile], as_json: bool) -> None:
    save_law(fitted.law, output)
    warnings = list(dict.fromkeys(text for profile in profiles for text in profile.warnings))
    if fitted.error > _POOR_FIT:
        warnings.append(f"the law misses a measured value by {fitted.error:.0%}")
    said = warn(warnings, as_json)
    with summary_beside(output):
        stages, error = fitted.law.placement.stages, round(fitted.error, 4)
        show({"output": output, "stages": stages, "lengths": len(profiles), "error": error, **said}, as_json)


def _beside_layers(
    devices: int, microbatches: int, placement: str | None, objective: str, limit: int | None, dtype: str
) -> dict[str, dict[str, Any]]:
    """Return the tables of a model file besides its layers: cluster, batch and search."""
    cluster: dict[str, Any] = {"devices": devices} if limit is None else {"devices": devices, "memory": limit}
    state = STATE_OF_FLOAT32 if dtype == "float32" else STATE
    return {
        "cluster": cluster | {"bytes_per_parameter": state},
        "batch": {"microbatches": microbatches},
        "search": {"objective": objective} | ({} if placement is None else {"placements": [placement]}),
    }


def _write_model(
    output: str,
    rest: dict[str, dict[str, Any]],
    shape: TransformerShape,
    vocabulary: int,
    how: dict[str, Any],
    as_json: bool,
) -> None:
    stand_in = {"count": shape.layers + 1, "forward": 1, "backward": 1, "weight": 1}
    problem_from_dict(rest | {"layers": [stand_in]})  # finds errors before anything is measured
    with working("measuring each layer"):
        found = profile_layers(shape, vocabulary, devices=rest["cluster"]["devices"], **how)
    measured = {
        "tick": str(USUAL_TICK),
        "layers": found.layers,
        **rest,
        "cluster": rest["cluster"] | {"comm": found.comm},
    }
    write_model(output, measured, "Measured with PyTorch.")
    said = warn(found.warnings, as_json)
    with summary_beside(output):
        show({"output": output, "layers": shape.layers + 2, "comm": found.comm, **said}, as_json)


def _placement(name: str, devices: int, stages: int | None) -> Placement:
    """Return the placement `name` with `stages` stages; None takes the placement's usual number."""
    check_int("devices", devices, 1)
    if stages is None:
        return Placement(name, devices)
    if check_int("stages", stages, 1) % devices:
        raise InputError(f"must be a multiple of devices = {devices}", key="stages", value=stages)
    return Placement(name, devices, stages // devices)


def _measure(shape: TransformerShape, placement: Placement, how: dict[str, Any]) -> Profile:
    with working(f"measuring {placement.stages} stages on {placement.devices} devices"):
        return profile_stages(shape, placement.stages, route=placement.routes[0], **how)


def _shape(shape: dict[str, Any]) -> TransformerShape:
    missing = [name for name, value in shape.items() if value is None]
    if missing:
        needed = ", ".join(f"--{name}" for name in missing)
        raise InputError(f"a measurement needs {needed}; or give --trace, --log or --table")
    return TransformerShape(**shape)
