"""The commands ``compare``, ``table`` and ``realistic``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from .. import drawing
from ..core.allowance import Allowance
from ..core.errors import InputError
from ..core.files import check_writable, write_text
from ..core.instance import Objective
from ..experiments.compare import COLUMNS, Task, choose_settings, lacking, missing, plan, row_of, run
from ..experiments.compare_report import latest, markdown
from ..experiments.compare_report import latex_table as compare_latex
from ..experiments.latex_table import write_latex
from ..experiments.published_tables import FIELDS, table_cells, to_csv, wide
from ..experiments.published_tables import latex_table as published_latex
from ..experiments.realistic import COLUMNS as REALISTIC_COLUMNS
from ..experiments.realistic import choose_realistic, missing_realistic, plan_realistic, run_realistic
from ..experiments.realistic import lacking as lacking_realistic
from ..experiments.realistic_report import draw_avoided, newest, realistic_markdown
from ..experiments.row_store import Row, RowStore, migrate_table
from ..solving.ensure_compiled import ensure_compiled
from ..terminal.console import show_json, show_table
from ..terminal.progress_bar import progress_bar
from .common import check_latex, cli, json_option, latex_options, search_options, show, summary_beside

_migrate_option = click.option(
    "--migrate", is_flag=True, help="Bring the CSV of an earlier version to this one's columns, and stop."
)


@cli.command("compare")
@click.option("--settings", default="active", show_default=True, help="active, all, or names.")
@click.option(
    "--memory",
    default="2p",
    show_default=True,
    help="Limits, e.g. 2p,2.5p,3p; p is what p forward activations of one stage take, in every placement.",
)
@click.option("--methods", default="greedy-v,best", show_default=True, help="Names from `tightpipe methods`.")
@click.option(
    "--objective", type=click.Choice([str(o) for o in Objective]), default="device_span", show_default=True
)
@click.option("-o", "--output", default="results/paper_table.csv", show_default=True, help="CSV to extend.")
@click.option("--link-occupancy", type=int, default=0, help="Ticks that a message keeps its link busy.")
@_migrate_option
@click.option("--fresh", is_flag=True, help="Compute all rows anew; the old file is kept as .bak.")
@latex_options
@search_options(75.0)
@json_option
def _compare(
    settings: str,
    memory: str,
    methods: str,
    objective: str,
    output: str,
    link_occupancy: int,
    migrate: bool,
    fresh: bool,
    latex: str | None,
    caption: str | None,
    time_limit: float,
    workers: int | None,
    seed: int,
    max_memory: float | None,
    as_json: bool,
) -> None:
    """Compare methods on the papers' settings: one CSV row per setting, memory limit and method.

    Rows that are already in the CSV (same setting, limit, method, options and versions) are not
    computed again, so an interrupted run continues where it stopped.
    """
    check_latex(latex, caption)
    names = [name.strip() for name in methods.split(",")]
    allowance = Allowance(time_limit, workers, seed, max_memory=max_memory)
    chosen = choose_settings(settings)
    tasks = plan(chosen, memory.split(","), names, Objective(objective), allowance, link_occupancy)
    if Path(output).suffix != ".csv":
        raise InputError("must end in .csv", key="output", value=output)
    if migrate:
        return show({"csv": output, "migrated": migrate_table(Path(output), COLUMNS, lacking)}, as_json)
    if fresh and Path(output).exists():
        old = Path(output).resolve()  # a symbolic link keeps its target's path, where the new rows will be
        old.replace(f"{old}.bak")
    store = RowStore(Path(output), COLUMNS)
    todo = missing(tasks, store)
    print(f"{len(tasks)} rows, {len(tasks) - len(todo)} of them already in {output}", file=sys.stderr)
    if todo:
        ensure_compiled()  # otherwise the seconds of the first rows would include the compilation
    _run_tasks(todo, store)
    if latex is not None:
        write_latex(compare_latex(store.rows(), caption), latex)
    with summary_beside(latex):
        _write_report(store, output, names[0], as_json)


def _run_tasks(tasks: Sequence[Task], store: RowStore) -> None:
    left = sum(_seconds(task) for task in tasks)
    with progress_bar(len(tasks), left) as bar:
        for task, result in run(tasks, store, lambda t: bar.begin(f"{t.label} {t.method}")):
            row = row_of(task, result)
            left -= _seconds(task)
            shown = ("status", "bubble_rate", "bound", "gap")
            numbers = " ".join(f"{column} {row[column]}" for column in shown)
            text = f"{task.label} {task.method}: {numbers} in {result.seconds:.1f} s"
            bar.finish(f"{text}; {result.reason}" if result.reason else text, left)


def _seconds(task: Task) -> float:
    """Return about the longest time that a task takes, in seconds."""
    return (task.allowance.time_limit or 0.0) if task.searches else 2.0


def _write_report(store: RowStore, output: str, baseline: str, as_json: bool) -> None:
    rows = latest(store.rows())
    stem = output.removesuffix(".csv")
    write_text(f"{stem}.md", markdown(rows, baseline))
    drawing.draw_bubble_rates([_numbers(row) for row in rows], f"{stem}.png")
    if as_json:
        show_json({"csv": output, "markdown": f"{stem}.md", "figure": f"{stem}.png", "rows": rows})
    else:
        print(Path(f"{stem}.md").read_text(encoding="utf-8"), end="")


def _numbers(row: Row) -> dict[str, Any]:
    """Return the fields of a CSV row that the figure draws, with numbers instead of texts."""
    label = row["setting"] if row["m_offset"] == "0" else f"{row['setting']} 2p{int(row['m_offset']):+d}"
    integers = {key: int(row[key]) if row[key] else None for key in ("cost", "work", "bound")}
    rate = float(row["bubble_rate"]) if row["bubble_rate"] else None
    return {"setting": label, "method": row["method"], "bubble_rate": rate, **integers}


@cli.command("table")
@click.argument("number", type=click.Choice(["5", "8"]))
@click.option("-o", "--output", metavar="CSV", help="[default: results/table<NUMBER>.csv]")
@latex_options
@json_option
def _table(number: str, output: str | None, latex: str | None, caption: str | None, as_json: bool) -> None:
    """Print table NUMBER of the zero-bubble paper: published bubble rate, ours, difference."""
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
@click.option("-o", "--output", default="results/realistic.csv", show_default=True, help="CSV to extend.")
@_migrate_option
@search_options(60.0)
@json_option
def _realistic(
    settings: str,
    output: str,
    migrate: bool,
    time_limit: float,
    workers: int | None,
    seed: int,
    max_memory: float | None,
    as_json: bool,
) -> None:
    """Run greedy, CP-SAT, improve and best on the suite of realistic instances, side by side with bounds.

    Rows that are already in the CSV are not computed again, so an interrupted run continues.
    """
    if Path(output).suffix != ".csv":
        raise InputError("must end in .csv", key="output", value=output)
    if migrate:
        rows = migrate_table(Path(output), REALISTIC_COLUMNS, lacking_realistic)
        return show({"csv": output, "migrated": rows}, as_json)
    allowance = Allowance(time_limit, workers, seed, max_memory=max_memory)
    tasks = plan_realistic(choose_realistic(settings), allowance)
    store = RowStore(Path(output), REALISTIC_COLUMNS)
    todo = missing_realistic(tasks, store)
    print(f"{len(tasks)} rows, {len(tasks) - len(todo)} of them already in {output}", file=sys.stderr)
    if todo:
        ensure_compiled()
    with progress_bar(len(todo), time_limit * len(todo) / 2) as bar:
        for done, (task, result) in enumerate(run_realistic(todo, store, bar.begin), 1):
            text = f"{task.name} {task.method}: {result.status} cost {result.cost} bound {result.bound}"
            text = f"{text} in {result.seconds:.1f} s"
            text = f"{text}; {result.reason}" if result.schedule is None else text
            bar.finish(text, time_limit * (len(todo) - done) / 2)
    _write_realistic(store, output, as_json)


def _write_realistic(store: RowStore, output: str, as_json: bool) -> None:
    rows = newest(store.rows())
    stem = output.removesuffix(".csv")
    write_text(f"{stem}.md", realistic_markdown(rows))
    draw_avoided(rows, f"{stem}.png")
    if as_json:
        show_json({"csv": output, "markdown": f"{stem}.md", "figure": f"{stem}.png", "rows": rows})
    else:
        print(Path(f"{stem}.md").read_text(encoding="utf-8"), end="")
