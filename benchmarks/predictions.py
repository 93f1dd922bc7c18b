"""Compare predicted with measured step times of five schedules in real PyTorch, on two devices.

For each placement the stages of one transformer are profiled, with fused or split backwards. Schedules are
made for the profiles, and PyTorch trains with each schedule. The goals, on a machine with two quiet cores,
are that every predicted step time is within 10 % of the measured one, and that the prediction ranks two
schedules rightly wherever their measured times differ by more than 5 %.

    python benchmarks/predictions.py [--rounds 9] [--output results/predictions.csv]

A round profiles and runs everything once, in about two minutes. The speed of a machine that others share
changes from minute to minute. So the error of a prediction is taken within each round, against the run that
followed the profile, and the table has the medians of many short rounds. The columns are

- `predicted_ms`, `measured_ms`, `fastest_ms`: the predicted step time, the median step of a run, and its
  fastest step, each as the median of all rounds. Where the last two are far apart, the machine was not quiet;
- `error`: predicted / median step - 1, the median of all rounds; `lower_quartile` and
  `upper_quartile` are the errors between which the middle half of the rounds lies;
- `load`: the largest load average at the end of a round, which is how many processes wanted a core in the
  last minute: about 2 if nothing else ran.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Sequence
from functools import cache, partial
from itertools import combinations
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from tightpipe import Instance, Schedule, solve
from tightpipe.core.engine_version import engine_version
from tightpipe.core.placement import Placement
from tightpipe.runtime import RunModel, TransformerShape, profile_stages, run_schedule
from tightpipe.terminal.console import show_table

DEVICES, MICROBATCHES, LAYERS = 2, 8, 4
GOAL, CLOSE = 0.10, 0.05


class Case(NamedTuple):
    """A schedule that is predicted and run; `fused` says that all its backwards are fused."""

    name: str
    placement: str
    method: str
    fused: bool


CASES = (
    Case("1F1B", "linear", "1f1b", True),
    Case("ZB-H1", "linear", "zb-h1", False),
    Case("interleaved 1F1B", "loop", "interleaved-1f1b", True),
    Case("ZB-V", "v", "greedy-v", False),
    Case("best on V", "v", "best", False),
)


def profiled(shape: TransformerShape, steps: int, placement: str, fused: bool) -> Instance:
    """Profile the stages of a placement, and return the instance with the measured costs.

    `steps` is the largest number of training steps that are measured; with `fused`, backwards are fused.
    """
    placed = Placement(placement, DEVICES)
    profile = profile_stages(
        shape, placed.stages, route=placed.routes[0], device="cpu", fused=fused, repeats=steps
    )
    for text in profile.warnings:
        print(f"{placement}: {text}", file=sys.stderr)
    return profile.instance(devices=DEVICES, microbatches=MICROBATCHES, placement=placement)


def schedule_of(instance: Instance, method: str, seconds: float) -> Schedule:
    """Return the schedule of a method; a method that searches has `seconds` as time limit."""
    schedule = solve(instance, method, time_limit=seconds, workers=DEVICES).schedule
    assert schedule is not None
    return schedule


def measure(
    case: Case, instance: Instance, shape: TransformerShape, options: argparse.Namespace
) -> list[float]:
    """Run the schedule of a case, and return three step times in milliseconds.

    They are the predicted time, the median of the measured times, and the shortest of the measured times.
    """
    model = RunModel(
        "transformer",
        width=shape.hidden,
        layers=LAYERS // instance.stages,
        batch=shape.microbatch,
        sequence=shape.sequence,
        heads=shape.heads,
    )
    report = run_schedule(
        schedule_of(instance, case.method, options.seconds), model, steps=options.steps, device="cpu"
    )
    for kind, of_stages in report.ratios().items():
        said = ", ".join(f"{ratio:.2f}" for ratio in of_stages.values())
        print(f"{case.name}: predicted / measured {kind}: {said}", file=sys.stderr)
    times = report.predicted_span, report.measured.largest_span, min(report.step_spans)
    return [time / 1000 for time in times]


def rows_of(found: dict[Case, list[list[float]]], load: float) -> list[dict[str, Any]]:
    """Return a row for each schedule; the module's docstring explains most columns.

    `found` holds for each case what `measure` returned in each round. `load` is the column of this name.
    """
    rows = []
    for case, rounds in found.items():
        predicted, measured, fastest = (median(column) for column in zip(*rounds, strict=True))
        errors = [one / other - 1 for one, other, _ in rounds]
        lower, error, upper = quantiles(errors, method="inclusive") if len(errors) > 1 else errors * 3
        rows.append(
            {
                "schedule": case.name,
                "predicted_ms": round(predicted, 1),
                "measured_ms": round(measured, 1),
                "fastest_ms": round(fastest, 1),
                "error": round(error, 4),
                "lower_quartile": round(lower, 4),
                "upper_quartile": round(upper, 4),
                "rounds": len(rounds),
                "load": round(load, 1),
                "engine": engine_version(),
            }
        )
    return rows


def wrong_pairs(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the pairs of schedules that the prediction ranks wrongly.

    Pairs whose measured times differ by at most the share `CLOSE` are left out.
    """
    return [
        f"{one['schedule']} and {other['schedule']}"
        for one, other in combinations(rows, 2)
        if abs(one["measured_ms"] / other["measured_ms"] - 1) > CLOSE
        and (one["measured_ms"] < other["measured_ms"]) != (one["predicted_ms"] < other["predicted_ms"])
    ]


def main() -> None:
    """Profile, predict and run in rounds, and print the table after each round."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--steps", type=int, default=9, help="training steps of each run, and measured steps of each profile"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="time limit of a search")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("-o", "--output", help="CSV file for the table")
    options = parser.parse_args()
    shape = TransformerShape(LAYERS, options.hidden, options.hidden // 64, options.sequence)
    found: dict[Case, list[list[float]]] = {case: [] for case in CASES}
    load = 0.0
    for _ in range(options.rounds):
        instance_of = cache(partial(profiled, shape, options.steps))
        for case in CASES:
            instance = instance_of(case.placement, case.fused)
            found[case].append(measure(case, instance, shape, options))
        load = max(load, os.getloadavg()[0])
        rows = rows_of(found, load)
        show_table(list(rows[0]), [tuple(row.values()) for row in rows])
    missed = [row["schedule"] for row in rows if abs(row["error"]) > GOAL]
    print(f"errors above {GOAL:.0%}: {', '.join(missed) or 'none'}")
    print(f"ranked wrongly: {', '.join(wrong_pairs(rows)) or 'none'}")
    if options.output:
        with Path(options.output).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
