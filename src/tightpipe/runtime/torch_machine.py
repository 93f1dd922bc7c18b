"""The parts of a run that differ between CPU and GPUs: device, process group and clock of a process.

On a GPU, a call from Python only queues an operation, so its times are taken from events that the GPU itself
records. The scripts of this folder import this file on machines that have only PyTorch. So it imports nothing
beyond PyTorch and Python's standard library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist


def device_of(kind: str, rank: int) -> torch.device:
    """Return the PyTorch device of a process.

    For the kind ``cpu`` it is the CPU, which all processes share, and for ``cuda`` the GPU numbered `rank`.
    """
    return torch.device(kind, rank) if kind == "cuda" else torch.device(kind)


def group_options(kind: str, folder: Path, rank: int, devices: int) -> dict[str, Any]:
    """Return the arguments of `torch.distributed.init_process_group` for one process of a job.

    The processes find each other through the file ``store`` in `folder`.
    """
    shared = {"init_method": f"file://{folder}/store", "rank": rank, "world_size": devices}
    if kind == "cuda":
        return {"backend": "nccl", "device_id": device_of(kind, rank), **shared}
    return {"backend": "gloo", **shared}


def join(kind: str, folder: Path, rank: int, devices: int) -> None:
    """Let this process join the process group of a job; on the CPU it then computes in one thread."""
    if kind == "cuda":
        torch.cuda.set_device(device_of(kind, rank))
    else:
        torch.set_num_threads(1)  # the processes share the cores of the machine
    dist.init_process_group(**group_options(kind, folder, rank, devices))


def too_few_gpus(kind: str, devices: int) -> str:
    """Return an error message if `kind` is ``cuda`` and there are too few GPUs; otherwise an empty text.

    Each of `devices` devices needs a GPU of its own.
    """
    found = torch.cuda.device_count() if kind == "cuda" else devices
    if found >= devices:
        return ""
    if not found:
        return f"device = {kind}: PyTorch finds no GPU on this machine; cpu would be right"
    return f"device = {kind}: each of the {devices} devices needs a GPU of its own, and PyTorch finds {found}"


class Clock(Protocol):
    """A clock that marks moments while operations run, and tells their times afterwards."""

    def begin(self) -> None:
        """Begin to measure; every mark is made after this call."""

    def mark(self) -> Any:
        """Return a mark of the moment at which all work that was given to the device so far has ended."""

    def settle(self) -> None:
        """Wait until all marked moments have passed."""

    def seconds(self, mark: Any) -> float:
        """Return the time of a mark, once it has passed, in seconds of the clock that all processes share."""


class HostClock:
    """The clock for the CPU, where an operation has ended when its call returns."""

    def begin(self) -> None:
        """Do nothing: the clock always runs."""

    def mark(self) -> float:
        """Return the present time in seconds."""
        return time.perf_counter()

    def settle(self) -> None:
        """Do nothing: all marked moments have passed."""

    def seconds(self, mark: float) -> float:
        """Return the mark itself, which is already in seconds."""
        return mark


class GpuClock:
    """The clock for PyTorch's current GPU, whose marks are events between the GPU's operations.

    - `event`: function that makes an event; None takes the timed events of PyTorch.
    - `wait`: function that waits until the GPU has ended all its work; None takes `torch.cuda.synchronize`.
    """

    def __init__(
        self, event: Callable[[], Any] | None = None, wait: Callable[[], None] | None = None
    ) -> None:
        self._event = event or (lambda: torch.cuda.Event(enable_timing=True))
        self.settle = wait or torch.cuda.synchronize

    def begin(self) -> None:
        """Record a first event at a known time of the machine's clock; other marks are counted from there."""
        self.settle()
        self._first, self._began = self.mark(), time.perf_counter()

    def mark(self) -> Any:
        """Return an event that the GPU records when it has ended all work that was queued so far."""
        event = self._event()
        event.record()
        return event

    def seconds(self, mark: Any) -> float:
        """Return when the GPU recorded the event, in seconds of the machine's clock."""
        passed: float = self._first.elapsed_time(mark)
        return self._began + passed / 1000


def clock_of(kind: str) -> Clock:
    """Return the clock that measures operations on the CPU (`cpu`) or on GPUs (`cuda`)."""
    return GpuClock() if kind == "cuda" else HostClock()
