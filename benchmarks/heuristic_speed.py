"""Time every heuristic at 32 devices x 256 microbatches: making the order, and simulating it.

``python benchmarks/heuristic_speed.py`` prints the fastest of three runs for each heuristic, after a run that
compiles.
"""

from __future__ import annotations

import os
import platform
import sys
import time

import numba
import numpy as np

from tightpipe import Instance, Memory, __version__, simulate
from tightpipe.heuristics import HEURISTICS, Heuristic

P, N = 32, 256


def instance_for(heuristic: Heuristic) -> Instance:
    """Return an instance of 32 x 256 in the heuristic's first placement, without a memory limit."""
    return Instance.uniform(
        devices=P,
        microbatches=N,
        forward=10,
        backward=12,
        weight=8,
        comm=1,
        placement=heuristic.placements[0],
        memory=Memory(2, -1, -1, None),
    )


def main() -> None:
    """Measure all heuristics, and print the table."""
    print("heuristic          operations   order [ms]   simulate [ms]")
    for heuristic in HEURISTICS.values():
        instance = instance_for(heuristic)
        order = heuristic.order(instance)
        simulate(instance, order)
        made, simulated = [], []
        for _ in range(3):
            begin = time.perf_counter()
            order = heuristic.order(instance)
            made.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            simulate(instance, order)
            simulated.append(time.perf_counter() - begin)
        print(f"{heuristic.name:18} {len(order):10} {min(made) * 1e3:12.1f} {min(simulated) * 1e3:15.1f}")
    versions = f"tightpipe {__version__}, numba {numba.__version__}, numpy {np.__version__}"
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {sys.version.split()[0]}, {versions}")


if __name__ == "__main__":
    main()
