"""Prove the optima of random small instances, and write them to tests/data/small_optima.csv.

``python benchmarks/small_optima.py`` continues where the file ends, with one line for each instance, and
leaves out instances whose optimum is not proven within the time limit. CP-SAT's lattice model finds the
optimum, starting from the best heuristic. A second proof, without bounds and windows, then shows that no
schedule is cheaper: by brute force for few operations, otherwise by the plain model, if it succeeds in time.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from tightpipe import Instance, Status, solve
from tightpipe.params.budget import UNLIMITED
from tightpipe.solver.cpsat.plain import PlainModel
from tightpipe.solver.cpsat.race import search

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.brute_force import optimum
from helpers.small_instances import OPTIMA, Known, digest, known_optima, small_instance

_FEW = 18  # operations up to which brute force is quick


def prove(seed: int, seconds: float) -> Known | None:
    """Return the optimum of a seed's instance; None if the optimum is not proven within `seconds`."""
    instance = small_instance(seed)
    result = solve(instance, "cpsat", workers=1, time_limit=seconds)
    if result.status is not Status.OPTIMAL:
        return None
    assert result.cost is not None
    return Known(seed, digest(instance), result.cost, _proof(instance, result.cost, seconds))


def _proof(instance: Instance, cost: int, seconds: float) -> str:
    if 3 * instance.stages * instance.microbatches <= _FEW:
        assert optimum(instance) == cost, instance
        return "brute"
    model = PlainModel(instance, cost - 1, 0, fifo=True)
    found = search(model, UNLIMITED.within(seconds), lambda *_: None)
    assert found.schedule is None, instance
    return "plain" if found.exhausted else "lattice"


def main() -> None:
    """Append lines to the file until their number reaches the option `--count`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000, help="lines of the file")
    parser.add_argument("--seconds", type=float, default=4.0, help="time limit of each proof")
    arguments = parser.parse_args()
    known = known_optima() if OPTIMA.exists() else []
    begin = known[-1].seed + 1 if known else 0
    with OPTIMA.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not known:
            writer.writerow(Known.__slots__)
        lines, seed = len(known), begin
        while lines < arguments.count:
            proven = prove(seed, arguments.seconds)
            seed += 1
            if proven is not None:
                writer.writerow([getattr(proven, key) for key in Known.__slots__])
                file.flush()
                lines += 1


if __name__ == "__main__":
    main()
