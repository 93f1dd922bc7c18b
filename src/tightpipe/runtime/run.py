"""A schedule is run and measured in PyTorch, with one process per device, each on the CPU or its own GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.cores import usable_cores
from ..base.errors import LARGEST, InputError, NegativeError, check_choice, check_int, check_number
from ..base.files import check_writable, make_folder, write_bytes
from ..export import data_sequence, export_text, merge_adjacent
from ..model.instance import Instance
from ..model.microbatches import renumbered
from ..model.operation import Operation, OpKind
from ..model.schedule import Order, Schedule
from .measured import Measured, RunReport, Span
from .profile import DEVICES, DTYPES, require_gpus, require_pairs, require_torch

MODELS = ("mlp", "transformer")
STEPS = 6


@dataclass(frozen=True, slots=True)
class RunModel:
    """The model that a run trains, with the same number of layers at every stage.

    A transformer consists of the same layers that `profile_stages` measures.
    """

    model: str = "mlp"  #: `mlp` or `transformer`
    width: int = 64  #: hidden size; for a transformer a multiple of `heads`
    layers: int = 1  #: number of layers of a stage, without embedding and head
    batch: int = 8  #: rows per microbatch
    sequence: int = 16  #: tokens per row, for a transformer only
    heads: int = 4  #: number of attention heads, for a transformer only
    #: sizes of a transformer's feed-forward networks: one for all, or one for each layer of the whole model;
    #: empty means four times the hidden size
    ffn: tuple[int, ...] = ()
    #: number of tokens that a transformer knows. With a number, the first stage begins with the embedding,
    #: the last stage ends with the head, and the loss is the cross entropy. With None, there is no embedding
    #: and no head, and the loss is the mean squared error.
    vocabulary: int | None = None
    dtype: str = "float32"  #: type of all numbers, one of `DTYPES`
    seed: int = 0  #: of the random parameters and data, at least 0

    def __post_init__(self) -> None:
        check_choice("model", self.model, *MODELS)
        for name in ("width", "layers", "batch", "sequence", "heads"):
            check_int(name, getattr(self, name), 1)
        for size in self.ffn:
            check_int("ffn", size, 1)
        check_int("seed", self.seed, 0)
        if self.vocabulary is not None:
            check_int("vocabulary", self.vocabulary, 1)
        check_choice("dtype", self.dtype, *DTYPES)
        for name in ("ffn", "vocabulary"):
            if self.model == "mlp" and getattr(self, name):
                raise InputError("needs the model transformer", key=name, value=getattr(self, name))
        if self.model == "transformer" and self.width % self.heads:
            raise InputError(f"must be a multiple of heads = {self.heads}", key="width", value=self.width)

    def parts(self, stages: int) -> list[list[str | int]]:
        """Return the list of layers of each stage, in the form from which `torch_pipeline.py` builds modules.

        A layer is ``residual``, ``embedding``, ``head``, or an integer: the width of the feed-forward network
        in a transformer layer, which `ffn` sets.

        Raise an InputError if `ffn` has neither one size nor one for each layer, and is not empty.
        """
        count = stages * self.layers
        if len(self.ffn) not in (0, 1, count):
            rule = f"must be one size, or one for each of the {count} layers"
            raise InputError(rule, key="ffn", value=list(self.ffn))
        sizes = self.ffn if len(self.ffn) == count else (self.ffn or (4 * self.width,)) * count
        layers: list[str | int] = ["residual"] * count if self.model == "mlp" else list(sizes)
        parts = [layers[k : k + self.layers] for k in range(0, count, self.layers)]
        if self.vocabulary is not None:
            parts[0].insert(0, "embedding")
            parts[-1].append("head")
        return parts


def run_schedule(
    schedule: Schedule,
    model: RunModel | None = None,
    *,
    merge: bool = False,
    steps: int = STEPS,
    timeout: float = 300.0,
    trace: str | Path | None = None,
    device: str = "cpu",
) -> RunReport:
    """Run a schedule in PyTorch's pipeline runtime, and the whole model in one process for comparison.

    Parameters
    ----------
    schedule
        A valid schedule of one iteration, in a placement with one direction. Where its microbatches differ,
        the longest has `model.sequence` tokens in a row (in an MLP `model.batch` rows), and the others have
        fewer, in proportion to the times of their F's.
    model
        Model to train; None takes a small MLP.
    merge
        Whether each B is fused with the W that follows it directly, as in the export.
    steps
        Number of training steps, at least 1. If there are several, the first one only warms up, and the one
        with the median time among the others is reported.
    timeout
        Seconds after which processes that still run are killed, and a `RunError` is raised.
    trace
        Folder, made if it does not exist, into which PyTorch's profiler writes one trace per process,
        ``rank0.json.gz`` and so on, of all steps but the warm-up; None records nothing.
    device
        `cpu`, where the processes share the cores and send messages with gloo, or `cuda`, where each has a
        GPU and sends messages with NCCL.

    Returns
    -------
    RunReport
        Loss and gradients in comparison with a single process, and the measured times. Its schedule has the
        microbatches in the sequence of their data (`tightpipe.export.data_sequence`), as PyTorch numbers
        them.

    Raises
    ------
    InputError
        If PyTorch is missing, too old for pairs, or cannot run the schedule; if a value is out of its range;
        if there are fewer GPUs than devices; or if the folder of the traces cannot be made.
    RunError
        If a process fails or does not end in time.
    """
    run = (schedule, model or RunModel())
    return run_in_turn([run], merge=merge, steps=steps, timeout=timeout, trace=trace, device=device)[0]


def run_in_turn(
    runs: Sequence[tuple[Schedule, RunModel]],
    *,
    merge: bool = False,
    steps: int = STEPS,
    timeout: float = 300.0,
    trace: str | Path | None = None,
    device: str = "cpu",
) -> list[RunReport]:
    """Run several schedules in the same processes, a step of each in turn, as `run_schedule` runs one.

    The speed of a machine that others share changes from minute to minute, and no run of its own is fair to
    all schedules. Here each step of a schedule has a step of every other one beside it: the `step_spans` of
    the reports with the same index follow each other at once.

    Parameters
    ----------
    runs
        Schedules for the same number of devices, at least one, each with the model that it trains.
    merge, steps, timeout, trace, device
        As for `run_schedule`; the traces have the steps of all schedules.

    Raises
    ------
    InputError
        If the schedules are for different numbers of devices, or if one of them cannot run by itself.
    RunError
        If a process fails or does not end in time.
    """
    require_torch("running a schedule")
    check_int("steps", steps, 1)
    check_choice("device", device, *DEVICES)
    check_number("timeout", timeout, 0, LARGEST)
    devices = runs[0][0].instance.devices
    jobs, texts, ran = list[dict[str, Any]](), list[str](), list[tuple[Schedule, Order]]()
    for given, model in runs:
        schedule = _numbered(given, devices)
        # the export is first, as it refuses what PyTorch cannot run
        texts.append(export_text(schedule, "torch-csv", merge=merge))
        jobs.append(_job(schedule, model, steps, device, trace is not None))
        ran.append((schedule, merge_adjacent(schedule.order) if merge else schedule.order))
    if any(schedule.order.pairs.any() for schedule, _ in ran):
        require_pairs()
    if device == "cuda":
        require_gpus(devices)
    if trace is not None:
        check_writable(make_folder(trace) / "rank0.json.gz")
    with tempfile.TemporaryDirectory(prefix="tightpipe-run-") as name:
        folder = Path(name)
        for number, text in enumerate(texts):
            (folder / f"{number}.csv").write_text(text)
        (folder / "jobs.json").write_text(json.dumps(jobs))
        run_ranks(folder, devices, timeout)
        if trace is not None:
            for rank in range(devices):
                content = (folder / f"trace{rank}.json.gz").read_bytes()
                write_bytes(Path(trace) / f"rank{rank}.json.gz", content)
        ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(devices)]
    cores = usable_cores() if device == "cpu" else None
    return [
        _report(schedule, order, list(results), cores)
        for (schedule, order), *results in zip(ran, *ranks, strict=True)
    ]


def _numbered(schedule: Schedule, devices: int) -> Schedule:
    """Return the schedule with the microbatches in the sequence of their data, if it can run."""
    schedule.instance.refuse_slices("a run in PyTorch")
    schedule.refuse_copies("a run in PyTorch")
    schedule = renumbered(schedule, data_sequence(schedule, "torch-csv"))
    if schedule.instance.iterations > 1:
        raise InputError("a run takes a schedule of one iteration", value=schedule.instance.iterations)
    if schedule.instance.devices != devices:
        rule = f"must be {devices}, as in the first schedule"
        raise InputError(rule, key="devices", value=schedule.instance.devices)
    return schedule


def _job(schedule: Schedule, model: RunModel, steps: int, device: str, trace: bool) -> dict[str, Any]:
    instance = schedule.instance
    return {
        "parts": model.parts(instance.stages),
        "held": [instance.placement.stages_on(rank) for rank in range(instance.devices)],
        "whole": [  # which operation a whole backward of PyTorch is at each stage
            next(k.name for k in (OpKind.BW, OpKind.B, OpKind.W) if instance.has(k, stage, 0))
            for stage in range(instance.stages)
        ],
        "frozen": [stage for stage in range(instance.stages) if not instance.has(OpKind.W, stage, 0)],
        "trace": trace,
        "devices": instance.devices,
        "microbatches": instance.microbatches,
        "lengths": _lengths(instance, model),
        "sequence": model.sequence if model.model == "transformer" else None,
        **{name: getattr(model, name) for name in ("width", "heads", "batch", "vocabulary", "dtype", "seed")},
        "device": device,
        "steps": steps,
    }


def _lengths(instance: Instance, model: RunModel) -> list[int] | None:
    """Return the tokens (or rows) of each microbatch, in proportion to its F's; None if all are alike."""
    if instance.alike:
        return None
    ticks = [sum(one.duration[OpKind.F]) for one in instance.class_costs]
    longest = model.sequence if model.model == "transformer" else model.batch
    of_class = [max(1, round(longest * t / max(ticks))) for t in ticks]
    return [of_class[instance.mb_class(m)] for m in range(instance.microbatches)]


def _report(
    schedule: Schedule, order: Order, results: Sequence[dict[str, Any]], cores: int | None
) -> RunReport:
    losses = [loss for result in results for loss in result["losses"]]
    steps = zip(*(result["steps"] for result in results), strict=True)
    measured = [Measured(tuple(tuple(map(_span, spans)) for spans in step)) for step in steps]
    whole = schedule.instance.whole
    warm = measured[1:] or measured
    return RunReport(
        schedule=schedule,
        order=order,
        loss=sum(losses),
        reference_loss=results[0]["reference_loss"],
        gradient_difference=results[0]["difference"],
        largest_gradient=results[0]["largest"],
        measured=_typical(warm, whole),
        cores=cores,
        step_spans=tuple(step.span(whole) for step in warm),
    )


def _typical(steps: Sequence[Measured], whole: bool) -> Measured:
    """Return the step of median time; of two middle steps, the faster one."""
    return sorted(steps, key=lambda step: step.span(whole))[(len(steps) - 1) // 2]


def _span(entry: list[Any]) -> Span:
    kind, stage, microbatch, start, end = entry
    return Span(Operation(OpKind[kind], stage, microbatch), start, end)


class RunError(NegativeError):
    """A process of a pipeline run failed or did not end in time; the message has the end of its output."""


_WORKER = Path(__file__).with_name("worker.py")
_POLL_SECONDS = 0.05
_TAIL = 2000  # an error shows at most this number of characters from the end of a process's output


def run_ranks(folder: Path, ranks: int, timeout: float) -> None:
    """Run one process per rank of the job in `folder`; raise a RunError if one fails or is not in time.

    A rank is no `tightpipe.base.child.Child`: PyTorch prints what it likes, so ranks answer in files, and the
    end of what they print is the error.
    """
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.extend(_start(folder, rank) for rank in range(ranks))
        _wait(folder, processes, time.monotonic() + timeout)
    finally:
        for process in processes:
            with process:
                process.kill()


def _start(folder: Path, rank: int) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    if sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all processes run on this machine
    with (folder / f"{rank}.log").open("wb") as log:
        command = [sys.executable, "-P", str(_WORKER), str(folder), str(rank)]
        # the pipe to its standard input ends with this process, and the rank with the pipe
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment
        )


def _wait(folder: Path, processes: list[subprocess.Popen[bytes]], deadline: float) -> None:
    while True:
        codes = [process.poll() for process in processes]
        for rank, code in enumerate(codes):
            if code:
                raise RunError(f"the process of rank {rank} ended with code {code}: {_tail(folder, rank)}")
        running = [rank for rank, code in enumerate(codes) if code is None]
        if not running:
            return
        if time.monotonic() > deadline:
            shown = ", ".join(map(str, running))
            raise RunError(f"ranks {shown} did not end in time: {_tail(folder, running[0])}")
        time.sleep(_POLL_SECONDS)


def _tail(folder: Path, rank: int) -> str:
    text = (folder / f"{rank}.log").read_text(errors="replace")[-_TAIL:].strip()
    return text or "no output"
