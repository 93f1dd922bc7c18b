"""The script of one process of a run; it imports nothing but PyTorch, so that it starts fast.

``python -P worker.py JOB RANK`` runs one device of the job. JOB is a folder with ``job.json`` and
``schedule.csv``, into which each process writes its results. Afterwards, rank 0 runs the whole model by
itself, microbatch after microbatch, and compares its gradients with those of all devices.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

Job = dict[str, Any]


def main(folder: Path, rank: int) -> None:
    """Run one device of the job in `folder`, and write its results there."""
    torch.set_num_threads(1)  # the processes share the cores of the machine
    job = json.loads((folder / "job.json").read_text())
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=job["devices"]
    )
    result = run_device(folder, job, rank)
    dist.barrier()  # waits until all processes have written their gradients
    if rank == 0:
        result |= compare_with_reference(folder, job)
    dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(result))


def run_device(folder: Path, job: Job, rank: int) -> dict[str, Any]:
    """Train the stages of a device; return the spans and the losses of the last step."""
    held = job["held"][rank]
    modules = {index: build_stage(job, index) for index in held}
    stages = [PipelineStage(modules[index], index, job["stages"], torch.device("cpu")) for index in held]
    schedule = _PipelineScheduleRuntime(stages, job["microbatches"], loss_fn=nn.functional.mse_loss)
    schedule._load_csv(str(folder / "schedule.csv"))
    spans: list[tuple[str, int, int, float, float]] = []
    for stage in stages:
        _watch(stage, spans)
    losses: list[Tensor] = []
    for _ in range(job["steps"]):
        spans.clear()
        losses.clear()
        for module in modules.values():
            module.zero_grad()
        dist.barrier()
        _step(schedule, job, held, losses)
    grads = {(i, name): p.grad for i, m in modules.items() for name, p in m.named_parameters()}
    torch.save(grads, folder / f"grads{rank}.pt")
    return {"spans": spans, "losses": [loss.item() for loss in losses]}


def _step(schedule: Any, job: Job, held: list[int], losses: list[Tensor]) -> None:
    inputs, targets = data(job)
    args = (inputs,) if 0 in held else ()
    if job["stages"] - 1 in held:
        schedule.step(*args, target=targets, losses=losses)
    else:
        schedule.step(*args)


def _watch(stage: Any, spans: list[tuple[str, int, int, float, float]]) -> None:
    """Let the methods of a stage that compute append their times to `spans`.

    These methods do not include the waits for messages. Times are in seconds of the machine's clock, which
    all processes share.
    """

    def timed(method: Callable[..., Any], kind: Callable[[dict[str, Any]], str]) -> Callable[..., Any]:
        def call(microbatch: int, *args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = method(microbatch, *args, **kwargs)
            spans.append((kind(kwargs), stage.stage_index, microbatch, start, time.perf_counter()))
            return result

        return call

    stage.forward_one_chunk = timed(stage.forward_one_chunk, lambda _: "F")
    stage.backward_one_chunk = timed(
        stage.backward_one_chunk, lambda kwargs: "BW" if kwargs["full_backward"] else "B"
    )
    stage.backward_weight_one_chunk = timed(stage.backward_weight_one_chunk, lambda _: "W")


def compare_with_reference(folder: Path, job: Job) -> dict[str, Any]:
    """Run the whole model, microbatch after microbatch, and compare its gradients with those of the devices.

    Returns
    -------
    dict
        The loss, the largest difference of a gradient's entry, and the largest entry.
    """
    modules = [build_stage(job, index) for index in range(job["stages"])]
    inputs, targets = data(job)
    count, total = job["microbatches"], 0.0
    for part, target in zip(inputs.chunk(count), targets.chunk(count), strict=True):
        output = part
        for module in modules:
            output = module(output)
        loss = nn.functional.mse_loss(output, target) / count
        loss.backward()
        total += loss.item()
    difference = largest = 0.0
    seen = 0
    for rank in range(job["devices"]):
        for (index, name), grad in torch.load(folder / f"grads{rank}.pt", weights_only=True).items():
            expected = modules[index].get_parameter(name).grad
            difference = max(difference, (grad - expected).abs().max().item())
            largest = max(largest, expected.abs().max().item())
            seen += 1
    if seen != sum(1 for module in modules for _ in module.parameters()):
        raise RuntimeError("a device returned no gradients for some of its parameters")
    return {"reference_loss": total, "difference": difference, "largest": largest}


class Residual(nn.Module):
    """A layer of the MLP: two linear maps with a residual connection, which keeps deep models stable."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        out: Tensor = x + self.down(torch.tanh(self.up(x)))
        return out


def build_stage(job: Job, index: int) -> nn.Module:
    """Return one stage of the model, always with the same parameters."""
    torch.manual_seed(job["seed"] + 1 + index)
    width, heads = job["width"], job["heads"]
    layers: list[nn.Module] = [
        Residual(width)
        if job["model"] == "mlp"
        else nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        for _ in range(job["layers"])
    ]
    return nn.Sequential(*layers)


def data(job: Job) -> tuple[Tensor, Tensor]:
    """Return the inputs and the targets of all microbatches, which are always the same."""
    torch.manual_seed(job["seed"])
    rows = job["microbatches"] * job["batch"]
    shape = (rows, job["width"]) if job["model"] == "mlp" else (rows, job["sequence"], job["width"])
    return torch.randn(shape), torch.randn(shape)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
