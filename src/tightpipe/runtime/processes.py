"""The processes of a run are started together, waited for, and ended together."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from ..core.errors import RunError

_WORKER = Path(__file__).with_name("worker.py")
_POLL_SECONDS = 0.05
_TAIL = 2000  # an error shows at most this number of characters from the end of a process's output


def run_ranks(folder: Path, ranks: int, timeout: float) -> None:
    """Run one process for each rank of the job in `folder`, and wait for all of them.

    Raises
    ------
    RunError
        If a process fails, or some do not end within `timeout` seconds. In both cases, all processes that
        still run are killed.
    """
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
