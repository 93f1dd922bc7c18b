"""Study where the bound of theorem 5 of docs/theorem.md is the least makespan, on random settings.

``python benchmarks/theorem_makespan.py`` prints a table. Where V-Beat misses the bound, `best` looks for a
cheaper schedule and for a stronger bound. It is limited by the work that it counts and not by the clock, so
that every run gives the same table.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import click
from theorem_cases import Case, draw

from tightpipe import Objective, solve
from tightpipe.heuristics import HEURISTICS
from tightpipe.heuristics.v_beat import meets_bound
from tightpipe.kernels.compiled import ensure_compiled
from tightpipe.model.metrics import cost
from tightpipe.registry.starts import schedule_of
from tightpipe.solver.bounds.formulas import splits_bound

FULL_MEMORY = 8  # in quarters of p activations, as `draw` takes it
REGIONS = (
    "theorem 6, short W's",
    "theorem 6, long W's",
    "between, enough whole W's, b ≤ f",
    "between, enough whole W's, b > f",
    "between, a whole W is missing",
    "W's too short to fill the end, b ≤ f",
    "W's too short to fill the end, b > f",
)
COLUMNS = ("settings at 2p", "number", "V-Beat meets it", "met", "optimum higher", "open", "largest gap")


class Line(NamedTuple):
    """What is known of a setting; costs in ticks."""

    region: str  #: one of `REGIONS`
    least: int  #: the bound of theorem 5
    beat: int  #: the makespan of V-Beat
    cost: int  #: the least makespan known
    bound: int  #: the largest bound known


def region(case: Case) -> str:
    """Return the region in which a setting lies."""
    p, f, b, w, c = case.devices, *case.costs
    fills = (p - 1) * (f + 3 * c) <= (2 * p - 1) * w
    if meets_bound(p, case.microbatches, case.times, whole=True):
        return REGIONS[fills]
    if not fills:
        return REGIONS[5 + (b > f)]
    whole = -(-(p - 1) * max(0, f + 2 * c - b) // w) - (-(p - 1) * (b + c) // w)
    return REGIONS[2 + (b > f)] if whole < 2 * p else REGIONS[4]


def _is_wanted(devices: int, case: Case) -> bool:
    return case.devices <= devices and 5 * case.times.weight >= 2 * case.times.forward


def measure(devices: int, effort: float, number: int) -> Line:
    """Return the line of setting `number`, with at most `devices` devices and W's of 0.4 F's or longer."""
    case = draw(FULL_MEMORY, number, partial(_is_wanted, devices))
    case = replace(case, microbatches=2 * case.devices + 2)  # further ones add nothing but work
    instance = replace(case.instance, objective=Objective.MAKESPAN)
    least = splits_bound(instance).value
    beat = cost(schedule_of(instance, HEURISTICS["v-beat"]))
    if beat == least:
        return Line(region(case), least, beat, beat, least)
    result = solve(instance, "best", effort=effort, workers=1, seed=0)
    assert result.cost is not None
    return Line(region(case), least, beat, min(beat, result.cost), result.bound)


def markdown(lines: Sequence[Line]) -> str:
    """Return a table with a line for each region."""
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for name in REGIONS:
        own = [line for line in lines if line.region == name]
        met = sum(line.cost == line.least for line in own)
        higher = sum(line.bound > line.least for line in own)
        counts = len(own), sum(line.beat == line.least for line in own), met, higher, len(own) - met - higher
        gap = max((line.cost / line.least - 1 for line in own), default=0.0)
        rows.append((name, *map(str, counts), f"{gap:.2%}"))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


@click.command()
@click.option(
    "--settings", type=click.IntRange(1), default=120, show_default=True, help="Number of settings."
)
@click.option("--devices", type=click.IntRange(2, 16), default=8, show_default=True, help="Most devices.")
@click.option("--effort", type=float, default=1.0, show_default=True, help="Limit of a search, as in solve.")
@click.option("--workers", type=click.IntRange(1, 1024), default=2, show_default=True, help="Processes.")
def main(settings: int, devices: int, effort: float, workers: int) -> None:
    """Print the table."""
    ensure_compiled()
    with ProcessPoolExecutor(workers) as pool:
        print(markdown(list(pool.map(partial(measure, devices, effort), range(settings)))))


if __name__ == "__main__":
    main()
