"""One run from start to end: profile a model, schedule it, train it, measure it, and report.

``make demo`` profiles a small transformer on this machine, once as the two stages of 1F1B and once as the
four stages of a V. It makes two schedules: 1F1B, and the schedule of `best` at the memory of 1F1B. With each
of them it trains twice in PyTorch, with one process per device. The first run gives the step times of the
table. The second run has the profiler, which slows a step by several per cent, and its traces are measured.

The page ``report.html`` in the folder of ``--output`` shows the planned and the traced schedules one beneath
the other. The other files in this folder are those that the commands `profile`, `solve`, `run --trace` and
`measure` would have written. On a machine with fewer than two free cores, the processes wait for a core, and
the measured times include these waits.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tightpipe import Placement, Schedule, load_schedule, measure, save_instance, save_schedule, solve
from tightpipe.core.metrics import peak_memory
from tightpipe.core.schedule_file import MEASURED
from tightpipe.report import render, report_of_files
from tightpipe.runtime import RunModel, RunReport, TransformerShape, profile_stages, run_schedule
from tightpipe.terminal.console import show_table

DEVICES = 2


class Case(NamedTuple):
    """A schedule of the demonstration; `fused` says that its backwards are fused."""

    name: str
    placement: str
    method: str
    fused: bool


CASES = (Case("1f1b", "linear", "1f1b", True), Case("best", "v", "best", False))


def planned(case: Case, shape: TransformerShape, limit: int | None, options: argparse.Namespace) -> Schedule:
    """Profile the stages of a case, and return the case's schedule for the measured costs.

    The instance with these costs and the schedule are saved in the folder of ``--output``. `limit` is the
    memory limit of each device in bytes; None means no limit.
    """
    placement = Placement(case.placement, DEVICES)
    profile = profile_stages(
        shape, placement.stages, route=placement.routes[0], device="cpu", fused=case.fused
    )
    instance = profile.instance(
        devices=DEVICES, microbatches=options.microbatches, placement=case.placement, limit=limit
    )
    save_instance(instance, options.output / f"{case.name}-costs.json")
    schedule = solve(instance, case.method, time_limit=options.seconds, workers=DEVICES).schedule
    assert schedule is not None
    save_schedule(schedule, options.output / f"{case.name}.json", method=case.method)
    return schedule


def trained(
    case: Case, schedule: Schedule, shape: TransformerShape, options: argparse.Namespace
) -> RunReport:
    """Train with a schedule, first without and then with traces, and return the report of the first run.

    The schedule that is measured from the traces is saved beside the planned one.
    """
    model = RunModel(
        "transformer",
        width=shape.hidden,
        layers=shape.layers // schedule.instance.stages,
        batch=shape.microbatch,
        sequence=shape.sequence,
        heads=shape.heads,
    )
    traces = options.output / f"{case.name}-traces"
    report = run_schedule(schedule, model, merge=case.fused, device="cpu")
    run_schedule(schedule, model, merge=case.fused, device="cpu", trace=traces)
    found = measure(traces, schedule=schedule)
    save_schedule(found.schedule, options.output / f"{case.name}-measured.json", method=MEASURED)
    return report


def row_of(case: Case, report: RunReport) -> dict[str, str]:
    """Return the table's line for a run, by column; times are in milliseconds."""
    predicted, measured = report.predicted_span / 1000, report.measured.largest_span / 1000
    return {
        "schedule": case.name,
        "predicted ms": f"{predicted:.1f}",
        "measured ms": f"{measured:.1f}",
        "predicted bubble": f"{report.predicted_bubble_rate:.1%}",
        "measured bubble": f"{report.measured.bubble_rate:.1%}",
        "loss": f"{report.loss:.6f}",
        "loss of one process": f"{report.reference_loss:.6f}",
    }


def main() -> None:
    """Run the demonstration, print its table, and write its page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0, help="time limit of the search")
    parser.add_argument("-o", "--output", type=Path, default=Path("demo"), help="folder for all files")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    shape = TransformerShape(options.layers, options.hidden, options.hidden // 64, options.sequence)
    rows, limit = [], None
    for case in CASES:
        print(f"{case.name}: profile and schedule", file=sys.stderr)
        schedule = planned(case, shape, limit, options)
        limit = limit or int(peak_memory(schedule).max())
        print(f"{case.name}: train in {DEVICES} processes", file=sys.stderr)
        rows.append(row_of(case, trained(case, schedule, shape, options)))
    show_table(list(rows[0]), [tuple(row.values()) for row in rows])
    paths = [options.output / f"{case.name}{part}.json" for case in CASES for part in ("", "-measured")]
    report = report_of_files([(str(path), load_schedule(path)) for path in paths])
    losses = "; ".join(f"loss of {row['schedule']} {row['loss']}" for row in rows)
    title = "A transformer on two devices: plans and measurements"
    conditions = f"All times in microseconds; {losses}; loss of one process {rows[0]['loss of one process']}"
    page = options.output / "report.html"
    page.write_text(render(replace(report, title=title, conditions=conditions)), encoding="utf-8")
    print(f"{page}: open it in a browser")


if __name__ == "__main__":
    main()
