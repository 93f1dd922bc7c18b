"""Find the best plans of random small models by brute force.

``python benchmarks/small_plans.py`` writes the costs of these plans to tests/data/small_plans.csv, one line
for each model. The script continues where the file ends, and leaves out models whose enumeration takes longer
than ``--seconds``. The cost is the least over all partitions, placements and sets of recomputed layers. Each
of these candidates is scheduled exactly, unless a formula shows that no schedule of it is cheaper than one
already found.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from contextlib import suppress
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from helpers.small_models import (
    BEST_PLANS,
    KnownPlan,
    TooHardError,
    digest,
    known_plans,
    optimum,
    random_problem,
)


def main() -> None:
    """Append lines to the file until their number reaches the option `--count`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="lines of the file")
    parser.add_argument("--seconds", type=float, default=3.0, help="most processor time of a problem")
    arguments = parser.parse_args()
    known = known_plans() if BEST_PLANS.exists() else []
    seed = known[-1].seed + 1 if known else 0
    with BEST_PLANS.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not known:
            writer.writerow(KnownPlan._fields)
        lines = len(known)
        while lines < arguments.count:
            problem, begin = random_problem(seed), time.process_time()
            with suppress(TooHardError):
                cost = optimum(problem, arguments.seconds)
                if time.process_time() - begin > arguments.seconds:
                    raise TooHardError
                writer.writerow(KnownPlan(seed, digest(problem), cost))
                file.flush()
                lines += 1
            seed += 1


if __name__ == "__main__":
    main()
