"""With ``--noise``, the command ``program replay`` runs schedules under random durations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import drawing
from ..core.engine_version import engine_version
from ..core.errors import InputError
from ..core.files import check_writable, write_text
from ..core.instance_file import is_kind, read_json
from ..core.printable import printable
from ..core.retime import retime
from ..core.schedule import Schedule
from ..core.tables import csv_text
from ..core.validate import validate
from ..drawing.output import check_target
from ..noise import Noisy, parse_noises, run_noisy
from ..program import load_program
from ..solving.ensure_compiled import ensure_compiled
from ..terminal.console import show_json, show_table
from .common import summary_beside, valid_schedule

_DIGITS = 1
_COLUMNS = (
    "schedule",
    "planned",
    "mean",
    "deviation",
    "p95",
    "worst",
    "busy",
    "slower",
    "against_first",
    "wins",
)


@dataclass(frozen=True, slots=True)
class NoiseOptions:
    """Options of ``program replay --noise``.

    Parameters
    ----------
    noise
        Models of noise, as texts.
    samples, seed, workers
        As for `run_noisy`.
    top
        Number of operations and messages that are listed for each schedule.
    output, costs, figure
        Files to write: the table of numbers as CSV, the cost in every sample as CSV, and a picture of the
        distributions. None writes no file.
    """

    noise: tuple[str, ...]
    samples: int
    seed: int
    workers: int | None
    top: int
    output: str | None
    costs: str | None
    figure: str | None


def replay_with_noise(files: Sequence[str], options: NoiseOptions, as_json: bool) -> None:
    """Run the schedules of files under noise, write the files that the options name, and print the numbers.

    Raises
    ------
    InputError
        If an option is out of range, or a file is given twice or is neither a valid schedule nor a program.
    """
    models = parse_noises(options.noise)
    for path in filter(None, (options.output, options.costs)):
        check_writable(path)
    if options.figure is not None:
        check_target(options.figure)
    named = {_name(file, files): _schedule(file) for file in files}
    ensure_compiled(("times", "noise"))
    runs = run_noisy(
        list(named.values()), models, samples=options.samples, seed=options.seed, workers=options.workers
    )
    found = dict(zip(named, runs, strict=True))
    rows = [_figures(name, noisy, next(iter(found.values())), found) for name, noisy in found.items()]
    _write(options, found, rows)
    with summary_beside(options.output):
        if as_json:
            asked = {"noise": list(options.noise), "samples": options.samples, "seed": options.seed}
            shown = [{**row, "critical": _critical(found[row["schedule"]], options.top)[1]} for row in rows]
            show_json({**asked, "schedules": shown, "engine": engine_version()})
        else:
            _show(found, rows, options.top)


def _name(file: str, files: Sequence[str]) -> str:
    """Return the name under which a file's schedule is shown.

    It is the file's name without ending, or the whole path if another file has the same name.
    """
    short = Path(file).stem
    if files.count(file) > 1:
        raise InputError("is given twice", key="schedule", value=file)
    return printable(file if [Path(other).stem for other in files].count(short) > 1 else short)


def _schedule(path: str) -> Schedule:
    """Return the schedule that a file holds.

    If the file holds a program, the schedule has the program's order, and the start times are
    those of least cost.
    """
    if not is_kind(read_json(path), "program"):
        return valid_schedule(path).schedule
    program = load_program(path)
    schedule = retime(program.instance, program.order)
    violations = validate(program.instance, schedule)
    if violations:
        raise InputError(f"the program's order breaks a rule: {violations[0]}", source=path)
    return schedule


def _figures(name: str, noisy: Noisy, first: Noisy, found: dict[str, Noisy]) -> dict[str, Any]:
    """Return the line of the table for the schedule `name`, by column; costs and times are in ticks.

    ``busy`` is the mean over the samples of the largest busy time of a device. ``slower`` says by which
    share the mean cost exceeds the planned cost, and ``against_first`` by which share it exceeds the mean
    cost of `first`. ``wins`` is the share of samples in which no schedule in `found` costs less.
    """
    cheapest = np.min([each.costs for each in found.values()], axis=0)
    figures = noisy.distribution
    rounded = {key: round(getattr(figures, key), _DIGITS) for key in ("mean", "deviation", "p95", "worst")}
    return {
        "schedule": name,
        "planned": noisy.planned,
        **rounded,
        "busy": round(float(noisy.busy.mean()), _DIGITS),
        "slower": round(figures.mean / noisy.planned - 1, 4),
        "against_first": round(float(noisy.costs.mean() / first.costs.mean()) - 1, 4),
        "wins": round(float((noisy.costs == cheapest).mean()), 4),
    }


def _critical(noisy: Noisy, top: int) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and lines of the table of the `top` operations and messages where most delay enters."""
    rows = sorted(_passed(noisy), key=lambda row: (-row["delay"], -row["critical"]))[:top]
    return ["what", "device", "critical", "delay"], rows


def _passed(noisy: Noisy) -> Iterator[dict[str, Any]]:
    order = noisy.schedule.order
    for device in range(order.devices):
        for row in range(*order.rows(device).indices(len(order))):
            name = str(order.operation_at(row))
            for what, share, delay in (
                (name, noisy.critical[row], noisy.delay[row]),
                (f"message to {name}", noisy.message_critical[row], noisy.message_delay[row]),
            ):
                if share:
                    figures = {"critical": round(float(share), 4), "delay": round(float(delay), _DIGITS)}
                    yield {"what": what, "device": device, **figures}


def _write(options: NoiseOptions, found: dict[str, Noisy], rows: Sequence[dict[str, Any]]) -> None:
    if options.output is not None:
        write_text(options.output, csv_text(_COLUMNS, [row.values() for row in rows]))
    if options.costs is not None:
        costs = np.stack([noisy.costs for noisy in found.values()], axis=1).round(3).tolist()
        write_text(options.costs, csv_text(["sample", *found], [[k, *row] for k, row in enumerate(costs)]))
    if options.figure is not None:
        points = [
            {"name": name, "planned": noisy.planned, "costs": noisy.costs} for name, noisy in found.items()
        ]
        drawing.draw_distributions(points, options.figure)


def _show(found: dict[str, Noisy], rows: Sequence[dict[str, Any]], top: int) -> None:
    alone = len(found) == 1
    columns = _COLUMNS[:-2] if alone else _COLUMNS
    shares = ("slower", "against_first", "wins")
    show_table(columns, [[f"{row[c]:.2%}" if c in shares else row[c] for c in columns] for row in rows])
    for name, noisy in found.items():
        head, lines = _critical(noisy, top)
        if lines:
            print(
                f"\n{name}: where delays enter: mean ticks, and the share of samples in which it is critical"
            )
            show_table(
                head, [[f"{v:.1%}" if k == "critical" else v for k, v in row.items()] for row in lines]
            )
