"""The script of one process of a run. To start fast, it imports only PyTorch and files of this folder.

``python -P worker.py FOLDER RANK`` runs one device of all jobs. FOLDER has ``jobs.json`` and the order of
each job, ``0.csv`` and so on, and each process writes its results there. Several jobs take turns, step by
step, so that they find the machine equally fast. Afterwards, the process of rank 0 runs the whole model of
each job by itself, microbatch after microbatch, and compares the gradients with those of all devices.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).parent))  # last, so that no file here hides a module of another package
from torch_pipeline import Job, Pipeline, build_stage, data, device_of, join, loss_of


def main(folder: Path, rank: int) -> None:
    """Run one device of the jobs in `folder`, and write its results there."""
    jobs = json.loads((folder / "jobs.json").read_text())
    join(jobs[0]["device"], folder, rank, jobs[0]["devices"])
    results = run_device(folder, jobs, rank)
    dist.barrier()  # waits until all processes have written their gradients
    if rank == 0:
        for number, (job, result) in enumerate(zip(jobs, results, strict=True)):
            result |= compare_with_reference(folder, job, number)
    dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(results))


def run_device(folder: Path, jobs: list[Job], rank: int) -> list[dict[str, Any]]:
    """Train the stages of a device, a step of each job in turn."""
    pipelines = [Pipeline(job, folder / f"{number}.csv", rank) for number, job in enumerate(jobs)]
    count = jobs[0]["steps"]
    warm_up = min(1, count - 1)
    turns = [_turn(pipelines, number) for number in range(warm_up)]
    with _recorded(jobs[0], folder / f"trace{rank}.json.gz") if jobs[0]["trace"] else nullcontext():
        turns += [_turn(pipelines, number) for number in range(warm_up, count)]
    for number, pipeline in enumerate(pipelines):
        grads = {
            (i, name): parameter.grad.cpu()
            for i, module in pipeline.modules.items()
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        }
        torch.save(grads, folder / f"grads{number}.{rank}.pt")
    return [
        {"steps": [step.spans for step in steps], "losses": steps[-1].losses}
        for steps in zip(*turns, strict=True)
    ]


def _turn(pipelines: list[Pipeline], number: int) -> list[Any]:
    """Return a step of each pipeline; each turn begins with the next one, so that none has a better place."""
    first = number % len(pipelines)
    steps = {k: pipelines[k].step() for k in (*range(first, len(pipelines)), *range(first))}
    return [steps[k] for k in range(len(pipelines))]


def _recorded(job: Job, path: Path) -> Any:
    """Return a context manager in which PyTorch's profiler records; at its end, `path` gets the trace."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if job["device"] == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    return torch.profiler.profile(
        activities=activities, on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path))
    )


def compare_with_reference(folder: Path, job: Job, number: int) -> dict[str, Any]:
    """Run the whole model, microbatch after microbatch; return its loss, and how gradients differ."""
    device = device_of(job["device"], 0)
    modules = [build_stage(job, index, device) for index in range(len(job["parts"]))]
    total, loss_function = 0.0, loss_of(job)
    for part, target in zip(*data(job, device), strict=True):
        output = part
        for module in modules:
            output = module(output)
        loss = loss_function(output, target)
        loss.backward()
        total += loss.item()
    difference = largest = 0.0
    seen = 0
    for rank in range(job["devices"]):
        for (index, name), grad in torch.load(folder / f"grads{number}.{rank}.pt", weights_only=True).items():
            expected = modules[index].get_parameter(name).grad.cpu()
            difference = max(difference, (grad - expected).abs().max().item())
            largest = max(largest, expected.abs().max().item())
            seen += 1
    if seen != sum(parameter.requires_grad for module in modules for parameter in module.parameters()):
        raise RuntimeError("a device returned no gradients for some of its parameters")
    return {"reference_loss": total, "difference": difference, "largest": largest}


def _end_with_the_command() -> None:
    """End this process once the command that started it has ended, even by a signal that it cannot handle."""
    os.read(0, 1)  # the command writes nothing, so this returns at the end of the pipe
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_command, daemon=True).start()
    main(Path(sys.argv[1]), int(sys.argv[2]))
