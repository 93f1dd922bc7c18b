"""A schedule is run and measured in PyTorch, with one process (backend gloo) per device on the CPU."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..core.integers import check_int
from ..core.operation import Operation, OpKind
from ..core.schedule import Order, Schedule
from ..export import export_text, merge_adjacent
from .measured import Measured, RunReport, Span
from .processes import run_ranks
from .torch_needed import require_torch

MODELS = ("mlp", "transformer")


@dataclass(frozen=True, slots=True)
class RunModel:
    """The model that is trained, with the same number of layers at every stage.

    Parameters
    ----------
    model
        Kind of the model, `mlp` or `transformer`.
    width
        Hidden size; for a transformer a multiple of `heads`.
    layers
        Number of layers of a stage.
    batch
        Rows per microbatch.
    sequence, heads
        Tokens per row and number of attention heads, for a transformer only.
    seed
        Seed of the random parameters and data, at least 0.
    """

    model: str = "mlp"
    width: int = 64
    layers: int = 1
    batch: int = 8
    sequence: int = 16
    heads: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise InputError(f"must be one of {', '.join(MODELS)}", key="model", value=self.model)
        for name in ("width", "layers", "batch", "sequence", "heads"):
            check_int(name, getattr(self, name), 1)
        check_int("seed", self.seed, 0)
        if self.model == "transformer" and self.width % self.heads:
            raise InputError(f"must be a multiple of heads = {self.heads}", key="width", value=self.width)


def run_schedule(
    schedule: Schedule,
    model: RunModel | None = None,
    *,
    merge: bool = False,
    steps: int = 2,
    timeout: float = 300.0,
) -> RunReport:
    """Run a schedule in the pipeline runtime of PyTorch, and compare it with a single process.

    Parameters
    ----------
    schedule
        A valid schedule of one iteration, in a placement with one direction.
    model
        Model to train; None takes a small MLP.
    merge
        Whether each B is fused with the W that follows it directly, as in the export.
    steps
        Number of training steps, at least 1; the last one is measured, the others warm up.
    timeout
        Seconds after which the processes are ended.

    Returns
    -------
    RunReport
        Loss and gradients in comparison with a single process, and the measured times.

    Raises
    ------
    InputError
        If PyTorch is missing or cannot run the schedule.
    RunError
        If a process fails or does not end in time.
    """
    require_torch("running a schedule")
    check_int("steps", steps, 1)
    if schedule.instance.iterations > 1:
        raise InputError("a run takes a schedule of one iteration", value=schedule.instance.iterations)
    model = model or RunModel()
    text = export_text(schedule, "torch-csv", merge=merge)
    order = merge_adjacent(schedule.order) if merge else schedule.order
    with tempfile.TemporaryDirectory(prefix="tightpipe-run-") as name:
        folder = Path(name)
        (folder / "schedule.csv").write_text(text)
        (folder / "job.json").write_text(json.dumps(_job(schedule, model, steps)))
        run_ranks(folder, schedule.instance.devices, timeout)
        return _report(schedule, order, folder)


def _job(schedule: Schedule, model: RunModel, steps: int) -> dict[str, Any]:
    instance = schedule.instance
    return {
        **asdict(model),
        "steps": steps,
        "devices": instance.devices,
        "stages": instance.stages,
        "microbatches": instance.microbatches,
        "held": [instance.placement.stages_on(device) for device in range(instance.devices)],
    }


def _report(schedule: Schedule, order: Order, folder: Path) -> RunReport:
    ranks = range(schedule.instance.devices)
    results = [json.loads((folder / f"{rank}.json").read_text()) for rank in ranks]
    losses = [loss for result in results for loss in result["losses"]]
    spans = [[_span(entry) for entry in result["spans"]] for result in results]
    return RunReport(
        schedule=schedule,
        order=order,
        loss=sum(losses) / len(losses),
        reference_loss=results[0]["reference_loss"],
        gradient_difference=results[0]["difference"],
        largest_gradient=results[0]["largest"],
        measured=Measured(tuple(map(tuple, spans))),
    )


def _span(entry: list[Any]) -> Span:
    kind, stage, microbatch, start, end = entry
    return Span(Operation(OpKind[kind], stage, microbatch), start, end)
