"""The commands ``compare``, ``paper table`` and ``paper realistic``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from ..base.errors import InputError
from ..base.files import check_writable, write_text
from ..base.tables import write_latex
from ..experiments.axes import OWN
from ..experiments.experiment import FigureKind, choose_names, choose_settings, usual_hard_limit
from ..experiments.presets import (
    FIELDS,
    Comparison,
    table_cells,
    tasks_of_files,
    tasks_of_realistic,
    tasks_of_settings,
    to_csv,
    wide,
)
from ..experiments.presets import latex_table as published_latex
from ..experiments.study import Files, files_beside, write_study
from ..experiments.task import Row, Task
from ..model.costs import Objective
from ..params.budget import Allowance
from ..settings import load_realistic
from ..terminal import show_json, show_table
from .common import check_latex, cli, json_option, latex_options, paper, search_options, summary_beside
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
    comparison = Comparison(
        tuple((memory or (OWN if own else "2p")).split(",")),
        tuple(name.strip() for name in (methods or ("list,best" if own else "greedy-v,best")).split(",")),
        objective or OWN,
        allowance,
    )
    path = _csv(output or f"results/{'own' if own else 'paper'}_table.csv")
    if own and settings is not None:
        raise InputError("give instance files or settings, not both", key="settings", value=settings)
    tasks = (
        tasks_of_files(instances, comparison)
        if own
        else tasks_of_settings(choose_settings(settings or "active"), comparison)
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
    """Run a comparison, write and print its page, or the rows as JSON."""

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
    target = output or f"results/table{number}.csv"
    check_latex(latex, caption)
    check_writable(target)
    cells = table_cells(int(number))
    write_text(target, to_csv(cells))
    if latex is not None:
        write_latex(published_latex(cells, caption), latex)
    equal = sum(cell.difference == 0 for cell in cells)
    with summary_beside(target), summary_beside(latex):
        if as_json:
            rows = [{field: getattr(cell, field) for field in FIELDS} for cell in cells]
            show_json({"csv": target, "cells": rows, "equal": equal})
            return
        show_table(*wide(cells))
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
    tasks = tasks_of_realistic(choose_names(settings, load_realistic()), allowance)
    files = files_beside(_csv(output))
    _compare_tasks(tasks, files, FigureKind.AVOIDED, "greedy-v", allowance, at_once, extend, None, as_json)
