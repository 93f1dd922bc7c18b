"""What the tests of sweeps share: small experiments, and the command as a process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tightpipe.experiments.study import STORE, load_study
from tightpipe.experiments.task import Row

TIGHTPIPE = str(Path(sys.executable).with_name("tightpipe"))
INSTANCE = {
    "devices": 2,
    "microbatches": 4,
    "forward": 10,
    "backward": 12,
    "weight": 8,
    "comm": 1,
    "memory": {"forward": 2, "backward": -1, "weight": -1, "limit": 8},
}
SMALL = """\
instances = ["small.json"]
memory = ["smallest", "2p"]
methods = ["list", "cpsat"]
time_limits = [20]
"""


def write_experiment(folder: Path, text: str = SMALL, name: str = "experiment.toml") -> Path:
    """Write an experiment on a 2 x 4 instance."""
    (folder / "small.json").write_text(json.dumps(INSTANCE))
    path = folder / name
    path.write_text(text)
    return path


def start(experiment: Path, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a sweep as a process of its own."""
    return subprocess.Popen(
        [TIGHTPIPE, "sweep", str(experiment), "-o", str(folder), *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def rows_of(folder: Path) -> tuple[Row, ...]:
    return load_study(folder).rows if (folder / STORE).exists() else ()


def solve_processes(parent: int | None = None) -> list[psutil.Process]:
    """Return the children of a process, by default this one, that run a solve. Git is a child now and then, too."""
    return [process for process in psutil.Process(parent).children() if _solves(process)]


def _solves(process: psutil.Process) -> bool:
    try:
        return "tightpipe.experiments.guarded_process" in process.cmdline()
    except psutil.Error:  # it has ended
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for what another process does; a generous limit, as it only ends tests that have failed."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
