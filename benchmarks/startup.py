"""Time the small commands and the import of tightpipe, side by side with ``import numpy``.

Each round runs all commands once, one after the other, so that a busy machine slows all alike. The table
shows the median wall time of each command over all rounds, and the median ratio to the time of
``import numpy`` in the same round. The goals are that the import takes at most 3 times as long as
``import numpy``, and a command at most 4 times as long.

    python benchmarks/startup.py [ROUNDS]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tightpipe import Instance, save_schedule, solve
from tightpipe.terminal import show_table

ROUNDS = 15
BASE = "import numpy"
TIGHTPIPE = str(Path(sys.executable).with_name("tightpipe"))


def commands(schedule: Path) -> dict[str, list[str]]:
    """Return the commands to measure, by name; the first is the one that the others are compared with."""
    return {
        BASE: [sys.executable, "-c", BASE],
        "import tightpipe": [sys.executable, "-c", "import tightpipe"],
        "tightpipe --help": [TIGHTPIPE, "--help"],
        "tightpipe methods": [TIGHTPIPE, "methods"],
        "tightpipe validate": [TIGHTPIPE, "validate", str(schedule)],
    }


def seconds(command: Sequence[str]) -> float:
    """Return the wall time of a command, in seconds."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin


def measure(rounds: int) -> list[dict[str, float]]:
    """Return the wall time of each command in seconds, for each round."""
    with tempfile.TemporaryDirectory() as folder:
        schedule = Path(folder) / "schedule.json"
        instance = Instance.uniform(devices=2, microbatches=4, forward=10, backward=12, weight=8)
        save_schedule(solve(instance, "list").schedule, schedule)
        todo = commands(schedule)
        for command in todo.values():
            seconds(command)  # not counted: brings the files of all commands into the disk cache
        return [{name: seconds(command) for name, command in todo.items()} for _ in range(rounds)]


def main() -> None:
    """Measure the commands, and print the table."""
    times = measure(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
    show_table(["", "seconds", "times import numpy"], [
        (
            name,
            f"{median(row[name] for row in times):.3f}",
            f"{median(row[name] / row[BASE] for row in times):.2f}",
        )
        for name in times[0]
    ])  # fmt: skip


if __name__ == "__main__":
    main()
