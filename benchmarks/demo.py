"""One run from start to end: profile a model, schedule it, train it, measure it, and report.

``make demo`` profiles a small transformer on this machine, once for three placements. It makes the
schedules 1F1B and interleaved 1F1B, and lets tightpipe choose placement and schedule in the memory of the
faster one of the two, as predicted. It trains in PyTorch with all three, with one process per device: first
a step of each in turn, without the profiler, which gives the step times of the table, and then each by
itself with the profiler, which slows a step by several per cent and gives the traces that are measured.

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

from predictions import fused_share, model_of, predicted, profiled, published, recommended

from tightpipe import Schedule, load_schedule, measure, save_instance, save_schedule
from tightpipe.model.metrics import cost
from tightpipe.model.schedule_file import MEASURED
from tightpipe.report import render, report_of_files
from tightpipe.runtime import (
    MOST_STEPS,
    STEPS,
    Profile,
    RunReport,
    TransformerShape,
    run_in_turn,
    run_schedule,
)
from tightpipe.terminal import show_table

BASELINES = ("1F1B", "interleaved 1F1B")
CHOSEN = "chosen"


def scheduled(shape: TransformerShape, options: argparse.Namespace) -> tuple[Profile, dict[str, Schedule]]:
    """Profile the layers, and return the profile and the schedules by name, each saved with its instance."""
    print("profile", file=sys.stderr)
    profile = profiled(shape, MOST_STEPS)
    schedules = {name: published(profile, name, options.microbatches) for name in BASELINES}
    print("choose placement and schedule", file=sys.stderr)
    schedules[CHOSEN] = recommended(profile, min(schedules.values(), key=cost), options.seconds)
    for name, schedule in schedules.items():
        save_instance(schedule.instance, options.output / f"{file_of(name)}-costs.json")
        save_schedule(schedule, options.output / f"{file_of(name)}.json")
    return profile, schedules


def file_of(name: str) -> str:
    """Return the name of a schedule in the names of its files."""
    return name.lower().replace(" ", "-")


def traced(name: str, schedule: Schedule, shape: TransformerShape, output: Path) -> None:
    """Train with a schedule and the profiler, and save the schedule that the traces measure."""
    traces = output / f"{file_of(name)}-traces"
    run_schedule(schedule, model_of(shape, schedule), steps=STEPS, trace=traces)
    found = measure(traces, schedule=schedule)
    save_schedule(found.schedule, output / f"{file_of(name)}-measured.json", method=MEASURED)


def row_of(name: str, schedule: Schedule, report: RunReport, mean: float) -> dict[str, str]:
    """Return the table's line for a schedule, by column; measured are those of the step of median time.

    `mean` is the predicted step in ticks, in which the times of operations vary as in the profile.
    """
    return {
        "schedule": name,
        "placement": schedule.instance.placement.name,
        "fused": f"{fused_share(schedule):.0%}",
        "planned ms": f"{report.predicted_span / 1000:.1f}",
        "predicted ms": f"{mean / 1000:.1f}",
        "measured ms": f"{report.measured_span / 1000:.1f}",
        "planned bubble": f"{report.predicted_bubble_rate:.1%}",
        "measured bubble": f"{report.measured.bubble_rate(whole=True):.1%}",
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
    parser.add_argument("--microbatches", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=15.0, help="time limit of the search in a placement")
    parser.add_argument("--turns", type=int, default=60, help="steps of each schedule without the profiler")
    parser.add_argument("-o", "--output", type=Path, default=Path("demo"), help="folder for all files")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    shape = TransformerShape(options.layers, options.hidden, options.hidden // 64, options.sequence)
    profile, schedules = scheduled(shape, options)
    print(f"train with all schedules, {options.turns} steps of each in turn", file=sys.stderr)
    runs = [(schedule, model_of(shape, schedule)) for schedule in schedules.values()]
    reports = dict(zip(schedules, run_in_turn(runs, steps=options.turns + 1), strict=True))
    print("train with each schedule and the profiler", file=sys.stderr)
    for name, schedule in schedules.items():
        traced(name, schedule, shape, options.output)
    rows = [
        row_of(name, schedule, reports[name], predicted(profile, schedule))
        for name, schedule in schedules.items()
    ]
    show_table(list(rows[0]), [tuple(row.values()) for row in rows])
    paths = [
        options.output / f"{file_of(name)}{part}.json" for name in schedules for part in ("", "-measured")
    ]
    report = report_of_files([(str(path), load_schedule(path)) for path in paths])
    steps = [
        f"{row['schedule']}: {row['predicted ms']} ms predicted, {row['measured ms']} ms measured, "
        f"loss {row['loss']}"
        for row in rows
    ]
    title = "A transformer on two devices: plans and measurements"
    conditions = (
        f"The charts are of steps with the profiler, in microseconds. Without it: {'; '.join(steps)}; "
        f"loss of one process {rows[0]['loss of one process']}"
    )
    page = options.output / "report.html"
    page.write_text(render(replace(report, title=title, conditions=conditions)), encoding="utf-8")
    print(f"{page}: open it in a browser")


if __name__ == "__main__":
    main()
