"""What a trainer gets for a tenth of a second, a second and a minute: orders of one step with other lengths.

Every microbatch has a length of its own, which is log-normal: ``numpy.random.default_rng(48)``, or another
draw, mean-log 0, times 100, rounded. At each stage F, B and W take a length each, or half of it in the V,
whose stages are half as large; so a fused backward takes two lengths. A device holds the longest p
microbatches, a half of each until its W has run. The objective is the makespan. Seconds are those of the
whole call of `tightpipe.StepPlanner.order` on one thread, with its bound and the check of its answer.

    python benchmarks/one_step.py [-o FILE] [NAME]...

Names choose the rows whose names contain them, e.g. ``16x64`` or ``v 16x64 0.8``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from growing_table import CONDITIONS, conditions, run_script

from tightpipe import CostLaw, Law, Objective, Placement, StepPlanner
from tightpipe.base.files import write_text
from tightpipe.base.tables import csv_text
from tightpipe.terminal import show_table

SECONDS = (0.1, 1.0, 60.0)
COLUMNS = (
    *("step", "limit", "seconds", "method", "cost", "bound", "work", "above_longest", "gap"),
    *CONDITIONS,
)


@dataclass(frozen=True, slots=True)
class Case:
    """A step: a placement, so many devices and microbatches, the spread of the lengths, and their draw."""

    placement: str
    devices: int
    microbatches: int
    sigma: float
    draw: int = 48

    @property
    def name(self) -> str:
        """What stands in the table, and chooses rows."""
        drawn = "" if self.draw == 48 else f" draw {self.draw}"
        return f"{self.placement} {self.devices}x{self.microbatches} {self.sigma}{drawn}"

    @property
    def lengths(self) -> list[int]:
        """The lengths of the microbatches as they arrive."""
        drawn = np.random.default_rng(self.draw).lognormal(0, self.sigma, self.microbatches)
        return np.maximum(1, np.rint(100 * drawn)).astype(int).tolist()

    @property
    def law(self) -> CostLaw:
        """The costs of the stages."""
        placement = Placement(self.placement, self.devices)
        each = Law(tokens=self.devices / placement.stages)
        held, freed = Law(tokens=2 * each.tokens), Law(tokens=-each.tokens)
        times, memory = (
            (each,) * placement.stages,
            [(one,) * placement.stages for one in (held, freed, freed)],
        )
        limit = 2 * sum(sorted(self.lengths)[-self.devices :])
        return CostLaw(
            *(placement, times, times, times),
            comm=2,
            memory=(memory[0], memory[1], memory[2]),
            limit=limit,
            objective=Objective.MAKESPAN,
        )


CASES = [
    *(Case(placement, 16, 64, sigma) for placement in ("linear", "v") for sigma in (0.8, 0.4, 1.2)),
    *(Case(placement, 16, 64, 0.8, 49) for placement in ("linear", "v")),
    *(Case("linear", 8, 32, sigma) for sigma in (0.8, 0.4)),
]


def rows_of(case: Case) -> Iterator[dict[str, object]]:
    """Return one row for each time limit, the longest first, with which the others are compared."""
    planner, longest = StepPlanner(case.law), None
    for limit in reversed(SECONDS):
        begin = perf_counter()
        found = planner.order(case.lengths, time_limit=limit)
        seconds = perf_counter() - begin
        assert found.cost is not None
        assert found.bound is not None
        longest = longest or found.cost
        yield {
            "step": case.name,
            "limit": limit,
            "seconds": round(seconds, 3),
            "method": found.method,
            "cost": found.cost,
            "bound": found.bound,
            "work": max(found.instance.work(device) for device in range(case.devices)),
            "above_longest": round(found.cost / longest - 1, 4),
            "gap": round((found.cost - found.bound) / found.cost, 4),
            **conditions(),
        }


def main() -> None:
    """Solve the steps, write the table, and print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("-o", "--output", type=Path, help="CSV file for the table")
    given = parser.parse_args()
    chosen = [c for c in CASES if not given.names or any(part in c.name for part in given.names)]
    rows = [row for case in chosen for row in rows_of(case)]
    if given.output:
        write_text(given.output, csv_text(COLUMNS, (row.values() for row in rows)))
    shown = COLUMNS[: -len(CONDITIONS)]
    show_table(shown, [[str(row[key]) for key in shown] for row in rows])


if __name__ == "__main__":
    run_script(main, continues=False)
