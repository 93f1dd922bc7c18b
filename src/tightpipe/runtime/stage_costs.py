"""A script that measures the costs of the stages of a transformer, and needs only PyTorch.

``python -P stage_costs.py --layers 8 --hidden 1024 --heads 16 --sequence 1024 --microbatch 1 --stages 4``
prints a table ``stage,kind,time,memory,variation`` (microseconds, bytes, and by what share times vary within
a step), which `tightpipe.runtime.read_table` reads. Its kinds are F, B, W, and BW, a fused backward. Stage 0
has no B, because the model's input needs no gradient: PyTorch runs the whole backward there, whose time the
table has as that of W. With ``--vocabulary 32000`` in place of ``--stages``, the script measures embedding,
layers and head each as a stage of its own, and prints JSON: the `layers` of a model file, and `comm`, the
microseconds of a message. The script needs the files beside it, and nothing else but PyTorch.

The costs are measured as in a run: one process per device trains the stages in the schedule runtime of
PyTorch, and all devices compute at once. The time of an operation in a step is the mean over the
microbatches, and the cost is the median of this time over the steps. What the runtime does between two
operations, and for messages that have arrived, is time of the later one (`charged`). Training steps are
repeated until the median duration of every operation, without that time, is known to a tolerance, or
``--repeats`` steps are done.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

sys.path.append(str(Path(__file__).parent))  # last, so that no file here hides a module of another package
import stage_measures as measures
from torch_pipeline import Job, Pipeline, Spans, device_of, join, too_few_gpus

HEADER = "stage,kind,time,memory,variation"
_FEWEST_MICROBATCHES = 8  # half of them with fused backwards, so that a step has several of each kind


def order_text(route: Sequence[int], microbatches: int) -> str:
    """Return the order that the script measures, as the CSV text that PyTorch reads.

    In this order, all devices work at once. `route` has the device of each stage. Let S be the number of
    stages, and time pass in equal steps: the F of microbatch m at stage s is in time step 2m + s, and its B
    in time step 2m + 2S - 1 - s. The backwards of even microbatches are fused. Of odd ones, each W directly
    follows its B, but for stage 0, where all backwards are whole. With one stage per device, the order is
    1F1B. Every operation waits only for operations of earlier time steps, or, as a W, for its own B. Each
    device runs its operations in the sequence of time steps, so there is no deadlock.
    """
    last = 2 * len(route) - 1
    rows: list[list[tuple[int, list[str]]]] = [[] for _ in range(max(route) + 1)]
    for m in range(microbatches):
        for stage, device in enumerate(route):
            rows[device].append((2 * m + stage, [f"{stage}F{m}"]))
            back = [f"{stage}I{m}", f"{stage}W{m}"] if stage and m % 2 else [f"{stage}B{m}"]
            rows[device].append((2 * m + last - stage, back))
    return "\n".join(",".join(cell for _, cells in sorted(row) for cell in cells) for row in rows) + "\n"


def train(rank: int, job: Job, folder: Path, options: argparse.Namespace) -> None:
    """Train the stages of one device, and write the `Spans` of each measured step to a file in `folder`."""
    join(options.device, folder, rank, job["devices"])
    pipeline = Pipeline(job, folder / "schedule.csv", rank)
    for _ in range(options.warmup):
        pipeline.step()
    steps: list[Spans] = []
    while len(steps) < options.repeats:
        steps.append(pipeline.step().spans)
        sure = torch.tensor(
            float(not measures.unsure([steps], options.tolerance)), device=device_of(options.device, rank)
        )
        dist.all_reduce(sure, dist.ReduceOp.MIN)
        if sure.item():
            break
    dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(steps))


def measure(job: Job, options: argparse.Namespace) -> list[list[Spans]]:
    """Run the processes of a job, and return the `Spans` of each device in each measured step."""
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all processes run on this machine
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "schedule.csv").write_text(order_text(job["route"], job["microbatches"]))
        torch.multiprocessing.spawn(train, (job, folder, options), job["devices"])
        return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(job["devices"])]


def job_of(options: argparse.Namespace, parts: list[list[str | int]], route: list[int]) -> Job:
    """Return the job that trains a model; `parts` has each stage's layers, `route` each stage's device."""
    devices = max(route) + 1
    return {
        "parts": parts,
        "route": route,
        "held": [[s for s, device in enumerate(route) if device == rank] for rank in range(devices)],
        "devices": devices,
        "whole": ["BW" if stage else "W" for stage in range(len(parts))],
        "frozen": [],
        "microbatches": max(_FEWEST_MICROBATCHES, 2 * len(parts)),
        "width": options.hidden,
        "heads": options.heads,
        "batch": options.microbatch,
        "sequence": options.sequence,
        "vocabulary": options.vocabulary,
        "dtype": options.dtype,
        "device": options.device,
        "seed": 0,
    }


def sizes(options: argparse.Namespace) -> list[int]:
    """Return the size of each layer's feed-forward network."""
    given: list[int] = options.ffn or [4 * options.hidden]
    return given * options.layers if len(given) == 1 else given


def table(options: argparse.Namespace) -> str:
    """Measure all stages and return the table as text."""
    parts, left = list[list[str | int]](), sizes(options)
    for stage in range(options.stages):
        layers = options.layers // options.stages + (stage < options.layers % options.stages)
        parts.append(list(left[:layers]))
        left = left[layers:]
    job = job_of(options, parts, options.route)
    steps = measure(job, options)
    warn(steps, options)
    taken = measures.charged(job["route"], steps)
    times, rows = measures.times_of(taken), [HEADER]
    for stage in range(options.stages):
        kept, for_weights = measures.stage_of(job, stage).held()
        for kind, held in {"F": kept, "B": for_weights - kept, "W": -for_weights}.items():
            took = measures.median_time(times, kind, [stage])
            rows.append(f"{stage},{kind},{took:.1f},{held},{measures.spread(taken, kind, stage):.3f}")
        if stage:
            rows.append(f"{stage},BW,{measures.median_time(times, 'BW', [stage]):.1f},,")
    rows.append(f",start,{measures.starting(job['route'], steps) * measures.MICRO:.1f},0,")
    if job["devices"] > 1:
        rows.append(f",comm,{measures.communication(job['route'], steps) * measures.MICRO:.1f},0,")
    return "\n".join(rows) + "\n"


def layers_apart(options: argparse.Namespace) -> str:
    """Measure embedding, layers and head, each as a stage of its own, and return them as JSON.

    Every device has one layer for each size of a feed-forward network, so that all devices have work. The
    first device also has the embedding, and the last device the head.
    """
    known = sorted(set(sizes(options)))
    blocks: list[list[str | int]] = [[size] for _ in range(options.devices) for size in known]
    route = [0, *(device for device in range(options.devices) for _ in known), options.devices - 1]
    job = job_of(options, [["embedding"], *blocks, ["head"]], route)
    steps = measure(job, options)
    warn(steps, options)
    times = measures.times_of(measures.charged(route, steps))
    message = {"output": _message(options)}
    measured = {
        size: entry(job, times, [k for k, part in enumerate(job["parts"]) if part == [size]])
        for size in known
    }
    tables: list[dict[str, Any]] = [{"name": "embedding"} | entry(job, times, [0]) | message]
    for size, equal in groupby(sizes(options)):
        counted: dict[str, Any] = {
            "name": f"block-{size}" if len(known) > 1 else "block",
            "count": len(list(equal)),
        }
        full = {"name": "full", "ticks": measured[size]["forward"], "activation": _message(options)}
        tables.append(counted | measured[size] | {"recompute": [full]} | message)
    tables.append({"name": "head"} | entry(job, times, [len(route) - 1]))
    comm = measures.communication(route, steps) if job["devices"] > 1 else 0.0
    return json.dumps({"layers": tables, "comm": round(comm * measures.MICRO)}) + "\n"


def entry(job: Job, times: measures.Times, stages: list[int]) -> dict[str, int]:
    """Return the costs of one layer, in ticks, bytes and number of parameters, as in a model file.

    The first layer of all has no B. Each of `stages` consists of a copy of this layer. On a GPU, the measured
    memory of a layer that sends its output includes both input and output. The output is subtracted here,
    because it counts as the input of the next layer.
    """
    forward, weight = (max(1, round(measures.median_time(times, kind, stages))) for kind in ("F", "W"))
    backward = max(1, round(measures.median_time(times, "B", stages))) if stages[0] else 0
    fused = {"fused": max(1, round(measures.median_time(times, "BW", stages)))} if stages[0] else {}
    stage = measures.stage_of(job, stages[0])
    kept, for_weights = stage.held()
    sends = stages[0] < len(job["parts"]) - 1
    held = max(0, kept - (stage.output().nbytes if sends and job["device"] == "cuda" else 0))
    return {
        "forward": forward,
        "backward": backward,
        "weight": weight,
        **fused,
        "activation": held,
        "weight_activation": min(held, for_weights),
        "parameters": sum(parameter.numel() for parameter in stage.module.parameters()),
    }


def warn(steps: Sequence[Sequence[Spans]], options: argparse.Namespace) -> None:
    """Print a warning with the operations whose median is not known to the tolerance after all steps."""
    names = measures.unsure(steps, options.tolerance)
    if names:
        print(
            f"warning: after {len(steps[0])} steps these medians are not known to {options.tolerance:.1%}, "
            f"the machine may be busy: {', '.join(names)}",
            file=sys.stderr,
        )


def _message(options: argparse.Namespace) -> int:
    """Return the bytes of the hidden state of a microbatch."""
    size: int = getattr(torch, options.dtype).itemsize
    numbers: int = options.microbatch * options.sequence * options.hidden
    return numbers * size


_NUMBERS = ("layers", "hidden", "heads", "sequence", "microbatch", "repeats", "warmup")
_KINDS = ("stages", "vocabulary")  # one of them must be given: measure stages, or layers one by one
_DEFAULTS = {"repeats": 20, "warmup": 2}
_USUAL_DEVICES = 2


def parser() -> argparse.ArgumentParser:
    """Return the parser of the script's options."""
    made = argparse.ArgumentParser(
        description="Measure F, B, W, BW, communication and memory of transformer stages."
    )
    for name in _NUMBERS:
        made.add_argument(f"--{name}", type=int, required=name not in _DEFAULTS, default=_DEFAULTS.get(name))
    for name in _KINDS:
        made.add_argument(f"--{name}", type=int)
    made.add_argument("--devices", type=int, help="processes that compute at once; default 2, or the GPUs")
    made.add_argument(
        "--route", type=int, nargs="+", help="device of each stage; default 0, 1, ..., 0, 1, ..."
    )
    made.add_argument("--tolerance", type=float, default=0.02, help="share to which a median must be known")
    made.add_argument("--ffn", type=int, nargs="+", help="one size, or one per layer; default 4 x hidden")
    made.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    devices = ("cpu", "cuda")
    made.add_argument("--device", default=devices[torch.cuda.is_available()], choices=devices)
    return made


def check(options: argparse.Namespace) -> str:
    """Complete the options, and return an error message; it is empty if they are right."""
    for name in (*_NUMBERS, *_KINDS, "devices"):
        value, least = getattr(options, name), int(name != "warmup")
        if value is not None and value < least:
            return f"{name} = {value}: must be at least {least}"
    if options.hidden % options.heads:
        return f"hidden = {options.hidden}: must be a multiple of heads = {options.heads}"
    given = [name for name in _KINDS if getattr(options, name) is not None]
    if len(given) != 1:
        return "stages, vocabulary: exactly one of them must be given"
    if min(sizes(options)) < 1 or len(sizes(options)) != options.layers:
        return f"ffn = {options.ffn}: must be one size, or one for each of the {options.layers} layers"
    if options.stages is not None and options.layers < options.stages:
        return f"layers = {options.layers}: must be at least the number of stages, {options.stages}"
    return check_devices(options)


def check_devices(options: argparse.Namespace) -> str:
    """Choose devices and route where they are not given; return an error message, empty if all is right."""
    if options.devices is None:
        options.devices = max(options.route) + 1 if options.route else _usual_devices(options)
    if options.stages is not None:
        options.route = options.route or [stage % options.devices for stage in range(options.stages)]
        if len(options.route) != options.stages or set(options.route) != set(range(options.devices)):
            return f"route = {options.route}: must be the device of each stage, from 0 to the last device"
    if not options.tolerance > 0:
        return f"tolerance = {options.tolerance}: must be above 0"
    return str(too_few_gpus(options.device, options.devices))


def _usual_devices(options: argparse.Namespace) -> int:
    most = _USUAL_DEVICES if options.device == "cpu" else torch.cuda.device_count()
    return max(1, min(most, _USUAL_DEVICES, options.stages or _USUAL_DEVICES))


def main() -> None:
    """Read the options, measure and print the table or the layers."""
    made = parser()
    options = made.parse_args()
    problem = check(options)
    if problem:
        made.error(problem)
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)  # Gloo of PyTorch 2.8 prints on standard output, also in the processes of the devices
        output.write(table(options) if options.vocabulary is None else layers_apart(options))


if __name__ == "__main__":
    main()
