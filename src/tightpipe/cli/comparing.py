"""The commands ``compare``, ``paper``, ``plot`` and ``report``: results side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from .. import drawing
from ..base.errors import InputError, printable
from ..base.files import STANDARD, check_writable, make_folder, write_text
from ..base.tables import write_latex
from ..experiments import presets
from ..experiments.axes import OWN
from ..experiments.experiment import FigureKind, choose_names, choose_settings, usual_hard_limit
from ..experiments.study import Files, files_beside, write_study
from ..experiments.task import Row, Task
from ..model.costs import Objective
from ..params.budget import Allowance
from ..settings import load_realistic
from ..terminal import ProgressBar, show_json, show_table
from .common import (
    check_latex,
    cli,
    json_option,
    latex_options,
    paper,
    search_options,
    summary_beside,
    valid_schedule,
)
from .sweeping import fill_table

_extend_option = click.option(
    "--extend", is_flag=True, help="Keep all solves that are done, also those of a finished run."
)

_at_once_option = click.option(
    "--at-once",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Solves run at once; each has as many threads as --workers says.",
)


@cli.command("compare")
@click.argument("instances", nargs=-1, metavar="[INSTANCES]...")
@click.option("--settings", help="active, all, or names of settings.  [default: active; with INSTANCES none]")
@click.option(
    "--memory",
    help="Memory limits, e.g. 2p,2.5p,3p, where p means p forward activations of one stage; or own, "
    "the limit in the file.  [default: 2p; with INSTANCES own]",
)
@click.option(
    "--methods",
    help="Names from `tightpipe methods`, or module:function of your own; the others are measured against "
    "the first.  "
    "[default: greedy-v,best; with INSTANCES list,best]",
)
@click.option(
    "--objective",
    type=click.Choice([str(o) for o in Objective]),
    help="The cost to minimise.  [default: device_span; with INSTANCES their own]",
)
@click.option(
    "-o",
    "--output",
    help="CSV to write.  [default: results/paper_table.csv; with INSTANCES results/own_table.csv]",
)
@_extend_option
@latex_options
@_at_once_option
@search_options(75.0, "effort")
@json_option
def _compare(
    instances: tuple[str, ...],
    settings: str | None,
    memory: str | None,
    methods: str | None,
    objective: str | None,
    output: str | None,
    extend: bool,
    latex: str | None,
    caption: str | None,
    at_once: int,
    as_json: bool,
    allowance: Allowance,
) -> None:
    """Compare methods on the papers' settings, or on own INSTANCES: one CSV row for each solve.

    INSTANCES are instance files (JSON or TOML); each is named after its file without the suffix. For the
    schedule families of one model file, see `tightpipe plan --alternatives`.

    Finished solves are kept in a store beside the CSV: a command that was interrupted continues where it
    stopped. One that has finished begins anew, and keeps its old store as .bak, unless --extend is given.
    """
    check_latex(latex, caption)
    own = bool(instances)
    comparison = presets.Comparison(
        tuple((memory or (OWN if own else "2p")).split(",")),
        tuple(name.strip() for name in (methods or ("list,best" if own else "greedy-v,best")).split(",")),
        objective or OWN,
        allowance,
    )
    path = _csv(output or f"results/{'own' if own else 'paper'}_table.csv")
    if own and settings is not None:
        raise InputError("give instance files or settings, not both", key="settings", value=settings)
    tasks = (
        presets.tasks_of_files(instances, comparison)
        if own
        else presets.tasks_of_settings(choose_settings(settings or "active"), comparison)
    )
    files = files_beside(path, None if latex is None else Path(latex))
    first = comparison.methods[0]
    _compare_tasks(tasks, files, FigureKind.SETTINGS, first, allowance, at_once, extend, caption, as_json)


def _csv(output: str) -> Path:
    if Path(output).suffix != ".csv":
        raise InputError("must end in .csv", key="output", value=output)
    return Path(output)


def _compare_tasks(
    tasks: Sequence[Task],
    files: Files,
    figure: FigureKind,
    baseline: str,
    allowance: Allowance,
    at_once: int,
    extend: bool,
    caption: str | None,
    as_json: bool,
) -> None:
    def report(rows: Sequence[Row]) -> None:
        if not rows:
            return
        page = write_study(rows, files, figure, baseline, caption)
        with summary_beside(None if files.latex is None else str(files.latex)):
            if as_json:
                said = {"csv": str(files.rows), "markdown": str(files.page), "figure": f"{files.figure}.png"}
                show_json({**said, "rows": [asdict(row) for row in rows]})
            else:
                print(page, end="")

    fill_table(tasks, files, usual_hard_limit(allowance.time_limit or 0.0), at_once, report, extend=extend)


@paper.command("table")
@click.argument("number", metavar="NUMBER", type=click.Choice(["5", "8"]))
@click.option("-o", "--output", metavar="CSV", help="[default: results/table<NUMBER>.csv]")
@latex_options
@json_option
def _table(number: str, output: str | None, latex: str | None, caption: str | None, as_json: bool) -> None:
    """Print table NUMBER of the zero-bubble paper: published bubble rate, ours, difference.

    NUMBER is 5 or 8.
    """
    target = output or str(make_folder("results") / f"table{number}.csv")
    check_latex(latex, caption)
    check_writable(target)
    cells = presets.table_cells(int(number))
    write_text(target, presets.to_csv(cells))
    if latex is not None:
        write_latex(presets.latex_table(cells, caption), latex)
    equal = sum(cell.difference == 0 for cell in cells)
    with summary_beside(target), summary_beside(latex):
        if as_json:
            rows = [{field: getattr(cell, field) for field in presets.FIELDS} for cell in cells]
            show_json({"csv": target, "cells": rows, "equal": equal})
            return
        show_table(*presets.wide(cells))
        print(f"{equal} of {len(cells)} cells agree to 4 decimals; bubble rate = (cost - work) / cost")


@paper.command("realistic")
@click.option("--settings", default="all", show_default=True, help="all, or names of the suite's instances.")
@click.option("-o", "--output", default="results/realistic.csv", show_default=True, help="CSV to write.")
@_extend_option
@_at_once_option
@search_options(60.0, "effort")
@json_option
def _realistic(
    settings: str, output: str, extend: bool, at_once: int, as_json: bool, allowance: Allowance
) -> None:
    """Run greedy, CP-SAT, improve and best on the realistic instances, side by side with bounds.

    Finished solves are kept in a store beside the CSV: a command that was interrupted continues where it
    stopped. One that has finished begins anew, and keeps its old store as .bak, unless --extend is given.
    """
    tasks = presets.tasks_of_realistic(choose_names(settings, load_realistic()), allowance)
    files = files_beside(_csv(output))
    _compare_tasks(tasks, files, FigureKind.AVOIDED, "greedy-v", allowance, at_once, extend, None, as_json)


@cli.command("plot")
@click.argument("schedules", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="PICTURE",
    help="File to write: .png, .svg or .pdf; - for a PNG on standard output.",
)
@click.option("--memory", is_flag=True, help="Add the memory of each device as a second panel.")
@click.option("--text", is_flag=True, help="Draw as text on stdout, one line per device.")
@click.option("--from", "start", type=int, metavar="TICK", help="First tick to show.")
@click.option("--to", "end", type=int, metavar="TICK", help="Last tick to show.")
@click.option("--width", type=float, metavar="INCHES", help="Width of the picture. [default: 7]")
@click.option("--scale", type=click.IntRange(1), help="Ticks per character of --text.")
@json_option
def _plot(
    schedules: tuple[str, ...],
    output: str | None,
    memory: bool,
    text: bool,
    start: int | None,
    end: int | None,
    width: float | None,
    scale: int | None,
    as_json: bool,
) -> None:
    """Draw the schedule files SCHEDULES; several share one time axis.

    With --from and --to, only the time between these two ticks is drawn, as large as it fits.
    """
    if not text and output is None:
        raise InputError("give a picture with -o, or --text to draw on stdout")
    if output is None and width is not None:
        raise InputError("is that of a picture, which -o names", key="width", value=width)
    drawn = [(path, valid_schedule(path)) for path in schedules]
    window = (start, end)
    pictures = [drawing.draw_text(c.schedule, scale=scale, window=window) for _, c in drawn] if text else []
    if output is not None:
        check_writable(output)
        labels = [(content.method or printable(Path(path).stem), content.schedule) for path, content in drawn]
        bounds = [content.bound for _, content in drawn]
        drawing.draw_gantt(labels, path=output, memory=memory, bounds=bounds, window=window, width=width)
    with summary_beside(output):
        if as_json:
            show_json({"output": output, "text": pictures or None})
        elif text:
            print("\n\n".join(pictures))


@paper.command("gallery")
@click.option("-o", "--output", default="gallery.png", show_default=True, metavar="PICTURE")
@click.option(
    "--only", metavar="NAMES", help="Heuristics to draw, e.g. 1f1b,greedy-v, or block. [default: all of them]"
)
@json_option
def _gallery(output: str, only: str | None, as_json: bool) -> None:
    """Draw every schedule family at 4 devices and 8 microbatches on one page."""
    check_writable(output)
    presets.draw_gallery(output, None if only is None else [name.strip() for name in only.split(",")])
    if as_json:
        with summary_beside(output):
            show_json({"output": output})


@cli.command("report")
@click.argument("paths", nargs=-1, required=True)
@click.option("-o", "--output", metavar="PAGE", help="HTML file to write. [default: FOLDER/report.html]")
@click.option("--no-relax", is_flag=True, help="Do not compute what weaker constraints would give.")
@json_option
def _report(paths: tuple[str, ...], output: str | None, no_relax: bool, as_json: bool) -> None:
    """Write one HTML page about the study in the folder PATHS, or about the schedule files PATHS.

    The page has a table that sorts and filters, the figures, and for each row its schedule to zoom and
    pan, beneath the heuristic's, with an explanation. It needs no network.
    """
    from ..report import render, report_of_files, report_of_study  # imported late: loads the plotting library

    for path in paths:
        if path != STANDARD and not Path(path).exists():
            raise InputError("no such file or folder", source=path)
    folders = [path for path in paths if Path(path).is_dir()]
    if folders and len(paths) > 1:
        raise InputError("give one folder of a study, or schedule files", key="paths", value=folders[0])
    if not folders and output is None:
        rule = "give the page to write with -o; only in a study's folder it has a place of its own"
        raise InputError(rule, key="output", value=None)
    target = output or str(Path(paths[0]) / "report.html")
    check_writable(target)
    if folders:
        report = report_of_study(Path(paths[0]))
    else:
        report = report_of_files([(path, valid_schedule(path)) for path in paths])
    drawn = sum(entry.schedule is not None for entry in report.entries)
    with ProgressBar(drawn, None) as bar:
        page = render(report, relax=not no_relax, finished=lambda entry: bar.finish(entry.label, None))
    write_text(target, page)
    rows, size = len(report.entries), len(page.encode())
    with summary_beside(target):
        if as_json:
            show_json({"output": target, "rows": rows, "schedules": drawn, "bytes": size})
        else:
            print(f"{printable(target)}: {rows} rows, {drawn} schedules, {size / 1e6:.1f} MB")
