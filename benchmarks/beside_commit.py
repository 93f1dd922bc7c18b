"""Time the compiled loops side by side with an earlier commit: does a change make it slower?

In each round, two processes do the same work one after the other, one with the sources of the commit and one
with the sources of this checkout, so that a busy machine slows both alike. The table shows the median CPU
time of each process over all rounds, and the median of the rounds' ratios now / then. Both processes must
come to the same result.

    python benchmarks/beside_commit.py COMMIT [ROUNDS] [JOB ...]
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from math import inf
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[1]
ROUNDS = 15
FOLDERS = {"src/tightpipe": "", "solver": "solver", "heuristics": "heuristics"}  # folder: name in the package


def settings(name: str) -> Any:
    """Return an instance of the published settings."""
    from tightpipe.settings import load_settings

    return load_settings()[name].instance(0)


def greedy(name: str) -> Any:
    """Return the greedy V-schedule of a setting."""
    from tightpipe import retime
    from tightpipe.heuristics import HEURISTICS

    return retime(settings(name), HEURISTICS["greedy-v"].order(settings(name)))


def scarce(devices: int, microbatches: int, limit: int) -> Any:
    """Return an instance in the V placement; `limit` is the memory limit in half activations."""
    from tightpipe import Instance, Memory

    memory = Memory(forward=2, backward=-1, weight=-1, limit=limit)
    costs = {"forward": 18522, "backward": 20086, "weight": 9337, "comm": 601}
    return Instance.uniform(devices=devices, microbatches=microbatches, **costs, memory=memory)


def large() -> Any:
    """Return an instance of 32 devices and 256 microbatches."""
    return scarce(32, 256, 128)


def windows(name: str) -> Callable[[], bytes]:
    """Narrow windows with the cost of the greedy V-schedule as horizon, and shave each open order once."""
    from tightpipe.model.metrics import cost
    from tightpipe.solver.queues import queues_of
    from tightpipe.solver.windows import Shaver, windows_of

    queues, target = queues_of(settings(name)), cost(greedy(name))

    def run() -> bytes:
        found = windows_of(queues, target)
        Shaver(found).sweep(SimpleNamespace(left=inf))  # versions differ in how a time limit is given
        parts = found.earliest, found.latest, found.before, found.after, *found.frames
        return b"".join(part.tobytes() for part in parts)

    return run


def local_search(devices: int, microbatches: int) -> Callable[[], bytes]:
    """Improve a schedule of list scheduling at 1.5p activations with a fixed number of moves."""
    from tightpipe import retime
    from tightpipe.heuristics import HEURISTICS
    from tightpipe.model.metrics import cost
    from tightpipe.params.budget import Budget
    from tightpipe.solver.improve import improve

    instance = scarce(devices, microbatches, 3 * devices)
    begin = retime(instance, HEURISTICS["list"].order(instance))
    return lambda: str(cost(improve(instance, Budget(effort=2.0), begin).schedule)).encode()


def prefixes(name: str) -> Callable[[], bytes]:
    """Search the prefixes of the first and the last device under the cost of the greedy V-schedule."""
    from tightpipe.model.metrics import cost
    from tightpipe.params.budget import UNLIMITED
    from tightpipe.solver.prefixes import search_prefixes, start_windows

    found = start_windows(settings(name), cost(greedy(name)))

    def run() -> bytes:
        return str(search_prefixes(settings(name), found, (0, 7), UNLIMITED, 20_000).bound).encode()

    return run


def heuristic(method: str) -> Callable[[], bytes]:
    """Run a heuristic on 32 devices with 256 microbatches."""
    from tightpipe.heuristics import HEURISTICS

    return lambda: HEURISTICS[method].order(large()).operations.tobytes()


def times(function: str) -> Callable[[], bytes]:
    """Give an order on 32 devices with 256 microbatches its start times."""
    import tightpipe
    from tightpipe.heuristics import HEURISTICS

    instance, timed = large(), getattr(tightpipe, function)
    order = HEURISTICS["v-beat"].order(instance)
    return lambda: timed(instance, order).start.tobytes()


JOBS: dict[str, Callable[[], Callable[[], bytes]]] = {
    "windows, 6.2B-8x24": lambda: windows("6.2B-8x24"),
    "windows, 6.2B-16x48": lambda: windows("6.2B-16x48"),
    "local search, 8x24": lambda: local_search(8, 24),
    "local search, 16x48": lambda: local_search(16, 48),
    "prefixes, 1.5B-8x24": lambda: prefixes("1.5B-8x24"),
    "list, 32x256": lambda: heuristic("list"),
    "due-date, 32x256": lambda: heuristic("due-date"),
    "simulate, 32x256": lambda: times("simulate"),
    "retime, 32x256": lambda: times("retime"),
}
"""What is timed: each entry makes its data ready and returns the work, which returns its result."""


def serve() -> None:
    """Do each job that a line of the standard input names; print its CPU seconds and a hash of its result."""
    ready: dict[str, Callable[[], bytes]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready[name] = JOBS[name]()
        begin = time.process_time()
        result = ready[name]()
        print(time.process_time() - begin, hashlib.sha256(result).hexdigest(), flush=True)


def extract(commit: str, folder: Path) -> None:
    """Write the package of a commit into a folder, laid out as it is installed."""
    run = ["git", "archive", commit, *FOLDERS]
    archive = subprocess.run(run, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    for source, inside in FOLDERS.items():
        if inside:
            (folder / source).rename(folder / "src/tightpipe" / inside)


def start(path: str) -> subprocess.Popen[str]:
    """Start a process with the package in the folder `path`, or with the installed one if `path` is empty.

    The process reads the names of jobs from its standard input (`serve`).
    """
    command = [sys.executable, __file__, "--serve"]
    environ = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def ask(process: subprocess.Popen[str], name: str) -> tuple[float, str]:
    """Let a process do a job once, and return the CPU seconds and the hash that it answers."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(name + "\n")
    seconds, digest = process.stdout.readline().split()
    return float(seconds), digest


def compare(processes: list[subprocess.Popen[str]], name: str, rounds: int) -> tuple[str, ...]:
    """Return the table's line for the job `name`; the first round, which compiles, is not counted.

    The first of the two `processes` has the sources of the earlier commit, the second those of now.
    """
    pairs, note = list[tuple[float, float]](), ""
    for number in range(rounds + 1):
        turn = processes if number % 2 else processes[::-1]
        (one, digest), (other, same) = (ask(process, name) for process in turn)
        note = note if digest == same else "another result"
        pairs.append((one, other) if number % 2 else (other, one))
    before, now = zip(*pairs[1:], strict=True)
    ratios = sorted(new / old for old, new in pairs[1:])
    middle = f"{ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f}"
    return name, f"{median(before):.4f}", f"{median(now):.4f}", f"{median(ratios):.3f}", middle, note


def main() -> None:
    """Measure and print the table."""
    from tightpipe.terminal import show_table

    commit, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    names = sys.argv[3:] or list(JOBS)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        extract(commit, Path(folder))
        processes = [stack.enter_context(start(path)) for path in (f"{folder}/src", "")]
        show_table(
            ["", f"seconds at {commit}", "seconds now", "now / then", "middle half of the rounds", ""],
            [compare(processes, name, rounds) for name in names],
        )


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
