"""The commands ``compare``, ``table`` and ``realistic``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from .. import drawing
from ..core.allowance import Allowance
from ..core.errors import InputError
from ..core.files import check_writable, write_text
from ..core.instance import Objective
from ..core.tables import LatexTable, write_latex
from ..experiments.compare import (
    FILES_FORM,
    SETTINGS_FORM,
    Comparison,
    tasks_of_files,
    tasks_of_settings,
)
from ..experiments.compare_report import latest, markdown, memory_label
from ..experiments.compare_report import latex_table as compare_latex
from ..experiments.published_tables import FIELDS, table_cells, to_csv, wide
from ..experiments.published_tables import latex_table as published_latex
from ..experiments.realistic import REALISTIC_FORM, choose_realistic, plan_realistic
from ..experiments.realistic_report import draw_avoided, newest, realistic_markdown
from ..experiments.results_table import Cells, Table
from ..experiments.sweep.axes import OWN
from ..experiments.sweep.experiment import usual_hard_limit
from ..experiments.sweep.problems import choose_settings
from ..experiments.sweep.task import Task
from ..terminal.console import show_json, show_table
from .common import (
    allowance_options,
    check_latex,
    cli,
    json_option,
    latex_options,
    max_memory_option,
    summary_beside,
)
from .comparing_plans import show_alternatives
from .filling import fill_table, refuse_failures, table_run
from .group import finished_work_kept

_extend_option = click.option(
    "--extend", is_flag=True, help="Leave in the rows that the CSV has, and compute only those that it lacks."
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
@click.option(
    "--settings",
    help="active, all, or names of settings.  [default: active; with INSTANCES none]",
)
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
@click.option("--link-occupancy", type=int, default=0, help="Ticks that a message keeps its link busy.")
@click.option(
    "--placements",
    is_flag=True,
    help="Compare placements and schedule families for one model file, each with its own best partition.",
)
@_extend_option
@latex_options
@_at_once_option
@allowance_options(75.0, max_memory_option)
@json_option
@click.pass_context
def _compare(
    context: click.Context,
    instances: tuple[str, ...],
    settings: str | None,
    memory: str | None,
    methods: str | None,
    objective: str | None,
    output: str | None,
    link_occupancy: int,
    placements: bool,
    extend: bool,
    latex: str | None,
    caption: str | None,
    at_once: int,
    allowance: Allowance,
    as_json: bool,
) -> None:
    """Compare methods on the papers' settings, or on own INSTANCES: one CSV row for each solve.

    INSTANCES are instance files (JSON or TOML); each is named after its file without the suffix. With
    --placements, INSTANCES is one model file, which plans cut into stages; the table is the one that
    `tightpipe plan --alternatives` shows, and -o names a folder.

    If the same command was interrupted before, it continues where it stopped. Otherwise it begins anew, and
    keeps the rows of an earlier run as .bak. With --extend, these stay in the CSV, and the same instance,
    limit, method, options and versions are not computed again.
    """
    check_latex(latex, caption)
    if placements:
        _refuse_beside_placements(context)
        return show_alternatives(_one_model(instances), output, allowance, as_json)
    own = bool(instances)
    comparison = Comparison(
        tuple((memory or (OWN if own else "2p")).split(",")),
        tuple(name.strip() for name in (methods or ("list,best" if own else "greedy-v,best")).split(",")),
        objective or OWN,
        allowance,
        link_occupancy,
    )
    path = _csv(output or f"results/{'own' if own else 'paper'}_table.csv")
    if own:
        if settings is not None:
            raise InputError("give instance files or settings, not both", key="settings", value=settings)
        tasks = tasks_of_files(instances, comparison)
    else:
        tasks = tasks_of_settings(choose_settings(settings or "active"), comparison)
    table = Table(path, FILES_FORM if own else SETTINGS_FORM)
    report = _Report(
        latest,
        lambda rows: markdown(rows, comparison.methods[0]),
        _draw_rates,
        lambda rows: compare_latex(rows, caption),
        latex,
    )
    _fill_and_report(table, tasks, allowance, at_once, extend, report, as_json)


def _csv(output: str) -> Path:
    if Path(output).suffix != ".csv":
        raise InputError("must end in .csv", key="output", value=output)
    return Path(output)


def _one_model(files: tuple[str, ...]) -> str:
    if len(files) != 1:
        raise InputError(f"goes with one model file, not with {len(files)} files", key="placements")
    return files[0]


def _refuse_beside_placements(context: click.Context) -> None:
    """Raise an InputError if an option is given that a comparison of placements does not use."""
    allowed = {"instances", "output", "placements", "time_limit", "workers", "seed", "as_json"}
    for key, value in context.params.items():
        if key not in allowed and context.get_parameter_source(key) is ParameterSource.COMMANDLINE:
            rule = "does not go with --placements: the model file says what is compared"
            raise InputError(rule, key=key.replace("_", "-"), value=value)


@dataclass(frozen=True, slots=True)
class _Report:
    """The functions that report on the rows of a table.

    Parameters
    ----------
    newest
        Function that keeps one row of each solve. The functions below get only these rows.
    page
        Function that returns a page in Markdown.
    draw
        Function that draws a figure to a path.
    latex
        Function that returns a LaTeX table; None for a command without such a table.
    latex_file
        File for the LaTeX table; None if no such file was asked for.
    """

    newest: Callable[[Sequence[Cells]], list[Cells]]
    page: Callable[[Sequence[Cells]], str]
    draw: Callable[[Sequence[Cells], str], None]
    latex: Callable[[Sequence[Cells]], LatexTable] | None = None
    latex_file: str | None = None


def _fill_and_report(
    table: Table,
    tasks: Sequence[Task],
    allowance: Allowance,
    at_once: int,
    extend: bool,
    report: _Report,
    as_json: bool,
) -> None:
    """Fill a table, write a report on its rows, and then raise a StoppedError if solves failed.

    The page and the figure are written beside the table's file. The page is also printed or, if `as_json`,
    the rows in its place. If the table has no row, no report is written.
    """
    stem = str(table.path.with_suffix(""))
    kept = finished_work_kept(lambda: len(table.missing(tasks)) < len(tasks))
    with table_run(table, tasks, extend=extend) as finish, kept:
        errors = fill_table(table, tasks, usual_hard_limit(allowance.time_limit or 0.0), at_once)
        # an extended table may have rows of a solve under several conditions: those of `tasks` come last
        rows = report.newest([*table.rows(), *table.rows_of(tasks)])
        if rows:
            page = report.page(rows)
            write_text(f"{stem}.md", page)
            report.draw(rows, f"{stem}.png")
        if not errors:
            finish()
    if rows:
        if report.latex is not None and report.latex_file is not None:
            write_latex(report.latex(rows), report.latex_file)
        with summary_beside(report.latex_file):
            if as_json:
                files = {"csv": str(table.path), "markdown": f"{stem}.md", "figure": f"{stem}.png"}
                show_json({**files, "rows": rows})
            else:
                print(page, end="")
    refuse_failures(errors)


def _draw_rates(rows: Sequence[Cells], path: str) -> None:
    """Draw the bubble rates of a table, with one panel per objective."""
    objectives, limits = {row["objective"] for row in rows}, {memory_label(row) for row in rows}
    drawn = [_numbers(row, len(objectives) > 1, len(limits) > 1) for row in rows]
    drawing.draw_bubble_rates(drawn, path)


def _numbers(row: Cells, several_objectives: bool, several_limits: bool) -> dict[str, Any]:
    """Return the values of a row that the figure draws, as numbers instead of texts."""
    limited = several_limits or int(row["m_offset"] or 0) != 0
    integers = {key: int(row[key]) if row[key] else None for key in ("cost", "work", "bound")}
    return {
        "panel": row["objective"] if several_objectives else "",
        "setting": f"{row['setting']} {memory_label(row)}" if limited else row["setting"],
        "bubble_rate": float(row["bubble_rate"]) if row["bubble_rate"] else None,
        **{key: row[key] for key in ("method", "placement", "engine")},
        **integers,
    }


@cli.command("table")
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


@cli.command("realistic")
@click.option("--settings", default="all", show_default=True, help="all, or names of the suite's instances.")
@click.option("-o", "--output", default="results/realistic.csv", show_default=True, help="CSV to write.")
@_extend_option
@_at_once_option
@allowance_options(60.0, max_memory_option)
@json_option
def _realistic(
    settings: str,
    output: str,
    extend: bool,
    at_once: int,
    allowance: Allowance,
    as_json: bool,
) -> None:
    """Run greedy, CP-SAT, improve and best on the suite of realistic instances, side by side with bounds.

    If the same command was interrupted before, it continues where it stopped. Otherwise it begins anew, and
    keeps the rows of an earlier run as .bak; with --extend, they stay and are not computed again.
    """
    path = _csv(output)
    tasks = plan_realistic(choose_realistic(settings), allowance)
    report = _Report(newest, realistic_markdown, draw_avoided)
    table = Table(path, REALISTIC_FORM)
    _fill_and_report(table, tasks, allowance, at_once, extend, report, as_json)
