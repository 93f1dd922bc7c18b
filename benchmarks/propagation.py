"""Time the propagation and the shaving of windows, side by side with the same functions of an earlier commit.

In each round, two processes do the same work one after the other, one with the sources of the commit and one
with the sources of this checkout, so that a busy machine slows both alike. The table shows the median CPU
time of each process over all rounds, and the median of the rounds' ratios now / then. Both processes must end
with the same windows.

    python benchmarks/propagation.py COMMIT [ROUNDS]
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
from contextlib import ExitStack
from math import inf
from pathlib import Path
from statistics import median
from types import SimpleNamespace

ROOT = Path(__file__).parents[1]
ROUNDS = 15
SETTINGS = "6.2B-8x24", "6.2B-16x48"
FOLDERS = {"src/tightpipe": "", "solver": "solver", "heuristics": "heuristics"}  # folder: name in the package


def work(name: str) -> tuple[float, str]:
    """Narrow windows with the cost of the greedy V-schedule as horizon, and shave each open order once.

    Returns
    -------
    seconds
        The CPU seconds that narrowing and shaving take together.
    digest
        A hash of the windows.
    """
    from tightpipe import retime
    from tightpipe.core.metrics import cost
    from tightpipe.heuristics import HEURISTICS
    from tightpipe.settings import load_settings
    from tightpipe.solver.queues import queues_of
    from tightpipe.solver.windows import Shaver, windows_of

    instance = load_settings()[name].instance(0)
    target = cost(retime(instance, HEURISTICS["greedy-v"].order(instance)))
    queues = queues_of(instance)
    begin = time.process_time()
    windows = windows_of(queues, target)
    Shaver(windows).sweep(SimpleNamespace(left=inf))  # versions differ in how a time limit is given
    seconds = time.process_time() - begin
    found = windows.earliest, windows.latest, windows.before, windows.after, *windows.frames
    return seconds, hashlib.sha256(b"".join(part.tobytes() for part in found)).hexdigest()


def serve() -> None:
    """Call `work` for each setting that a line of the standard input names, and print its results.

    The results are on one line: the CPU seconds and the hash.
    """
    for line in sys.stdin:
        print(*work(line.strip()), flush=True)


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

    The process reads the names of settings from its standard input (`serve`).
    """
    command = [sys.executable, __file__, "--serve"]
    environ = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )


def ask(process: subprocess.Popen[str], name: str) -> tuple[float, str]:
    """Let a process work once on a setting, and return the CPU seconds and the hash that it answers."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(name + "\n")
    seconds, digest = process.stdout.readline().split()
    return float(seconds), digest


def compare(processes: list[subprocess.Popen[str]], name: str, rounds: int) -> tuple[str, ...]:
    """Return the table's line for the setting `name`; the first round, which compiles, is not counted.

    The first of the two `processes` has the sources of the earlier commit, the second those of now.
    """
    times: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        turn = processes if number % 2 else processes[::-1]
        (one, digest), (other, same) = (ask(process, name) for process in turn)
        assert digest == same, "the two end with different windows"
        times.append((one, other) if number % 2 else (other, one))
    before, now = zip(*times[1:], strict=True)
    ratios = sorted(new / old for old, new in times[1:])
    middle = f"{ratios[len(ratios) // 4]:.3f} to {ratios[-1 - len(ratios) // 4]:.3f}"
    return name, f"{median(before):.3f}", f"{median(now):.3f}", f"{median(ratios):.3f}", middle


def main() -> None:
    """Measure and print the table."""
    from tightpipe.terminal.console import show_table

    commit, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        extract(commit, Path(folder))
        processes = [stack.enter_context(start(path)) for path in (f"{folder}/src", "")]
        show_table(
            ["", f"seconds at {commit}", "seconds now", "now / then", "middle half of the rounds"],
            [compare(processes, name, rounds) for name in SETTINGS],
        )


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
