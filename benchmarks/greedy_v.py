"""Time the compiled greedy V-schedule against a transcription of the published code into plain Python.

``python benchmarks/greedy_v.py`` runs both in one process, after a run that compiles. It also times the list
heuristic, the simulator, `retime` and the validator. The setting is the largest published one, with 32
devices, 256 microbatches and 49,152 operations.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable

import numba
import numpy as np
from seed_greedy_v import SeedGreedyV

from tightpipe import Instance, Memory, Order, __version__, retime, simulate, validate
from tightpipe.base.cores import usable_cores
from tightpipe.heuristics.greedy_v import greedy_v_order
from tightpipe.heuristics.list_schedule import list_order

P, N, F, B, W, C = 32, 256, 9447, 9644, 7193, 887
DELTAS = (454656, -258048, -196608)  # memory of F, B and W: hidden size 6144, 48 heads, sequence 1024
LIMIT = 2 * P * DELTAS[0]


def best_of(repeats: int, run: Callable[[], object]) -> float:
    """Return the shortest wall time of `repeats` runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Time all functions, and print the table."""
    instance = Instance.uniform(
        devices=P, microbatches=N, forward=F, backward=B, weight=W, comm=C, memory=Memory(*DELTAS, LIMIT)
    )
    plain = SeedGreedyV(P, N, F, B, W, C, *DELTAS, LIMIT)
    order = greedy_v_order(instance)
    schedule = simulate(instance, order)
    list_order(instance)
    same = order == Order.from_lists(plain.get_v_schedule()[0])
    seconds = {
        "transcription": best_of(2, plain.get_v_schedule),
        "greedy-v": best_of(5, lambda: greedy_v_order(instance)),
        "list": best_of(2, lambda: list_order(instance)),
        "simulate": best_of(5, lambda: simulate(instance, order)),
        "retime": best_of(2, lambda: retime(instance, order)),
        "validate": best_of(2, lambda: validate(instance, schedule)),
    }
    print(f"{P} devices x {N} microbatches, {len(order)} operations; same order: {same}")
    for name, value in seconds.items():
        print(f"{name:14} {value * 1000:9.1f} ms")
    print(f"transcription / greedy-v: {seconds['transcription'] / seconds['greedy-v']:.1f}")
    versions = f"tightpipe {__version__}, numba {numba.__version__}, numpy {np.__version__}"
    print(f"{usable_cores()} cores, {platform.machine()}, Python {sys.version.split()[0]}, {versions}")


if __name__ == "__main__":
    main()
