"""The processes of a run are started, waited for and ended together, if PyTorch is there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from ..base.errors import InputError, NegativeError


class RunError(NegativeError):
    """A process of a pipeline run failed or did not end in time; the message has the end of its output."""


DEVICES = ("cpu", "cuda")
"""The kinds of device on which the processes of a run or a profile can compute."""


def require_torch(purpose: str) -> None:
    """Raise an InputError, which says that `purpose` needs PyTorch, unless that is installed."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:  # a folder that is only named torch has no origin
        raise InputError(
            f"{purpose} needs PyTorch 2.8 or later, which is not installed: pip install 'tightpipe[torch]', "
            "or pip install torch==2.13.0 for the version that is tested"
        )


def require_gpus(devices: int) -> None:
    """Raise an InputError, which says how many GPUs PyTorch finds, if there are fewer than `devices`."""
    from .torch_pipeline import too_few_gpus  # only here, as PyTorch takes seconds

    if problem := too_few_gpus("cuda", devices):
        raise InputError(problem)


def require_pairs() -> None:
    """Raise an InputError if this version of PyTorch cannot run an F and a backward as a pair."""
    found = version("torch")
    if tuple(map(int, found.split(".")[:2])) < (2, 9):
        raise InputError("two operations that run as a pair need 2.9 or later", key="PyTorch", value=found)


_WORKER = Path(__file__).with_name("worker.py")
_POLL_SECONDS = 0.05
_TAIL = 2000  # an error shows at most this number of characters from the end of a process's output


def run_ranks(folder: Path, ranks: int, timeout: float) -> None:
    """Run one process per rank of the job in `folder`; raise a RunError if one fails or is not in time."""
    processes = [_start(folder, rank) for rank in range(ranks)]
    try:
        _wait(folder, processes, time.monotonic() + timeout)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def _start(folder: Path, rank: int) -> subprocess.Popen[bytes]:
    environment = dict(os.environ)
    if sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all processes run on this machine
    with (folder / f"{rank}.log").open("wb") as log:
        command = [sys.executable, "-P", str(_WORKER), str(folder), str(rank)]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


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
