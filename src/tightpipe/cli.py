"""The command line: ``tightpipe solve | bound | validate | compare | plot | methods``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from tightpipe.solver.bounds import all_bounds

from . import __version__, plot
from .console import progress_bar, show_json, show_pairs, show_table
from .errors import DeadlockError, InfeasibleError, InputError, NoScheduleError
from .experiments.compare import COLUMNS, Task, choose_settings, missing, plan, row_of, run
from .experiments.compare_report import latest, markdown
from .experiments.gallery import draw_gallery
from .experiments.published_tables import FIELDS, table_cells, to_csv, wide
from .experiments.row_store import Row, RowStore
from .instance import Instance, Objective
from .instance_file import load_instance, write_text
from .metrics import bubble_rate, cost
from .options import Options
from .result import Result
from .schedule_file import ScheduleFile, load_schedule, save_schedule
from .solve import METHODS, solve
from .validate import Violation, validate

_INTERRUPTED = 130
_Command = TypeVar("_Command", bound=Callable[..., Any])

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")


def _search_options(time_limit: float) -> Callable[[_Command], _Command]:
    """Add the options of every command that searches."""

    def add(command: _Command) -> _Command:
        for option in (
            click.option("--seed", type=int, default=0, show_default=True, help="Seed of random choices."),
            click.option("--workers", type=int, help="Threads. [default: all cores]"),
            click.option(
                "--time-limit", type=float, default=time_limit, show_default=True, help="Seconds per solve."
            ),
        ):
            command = option(command)
        return command

    return add


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tightpipe")
def cli() -> None:
    """Find pipeline-parallel training schedules and prove how good they are.

    Exit status: 0 success; 1 the answer is no (invalid schedule, infeasible instance); 2 bad input.
    """


@cli.command("solve")
@click.argument("instance")
@click.option("--method", default="cpsat", show_default=True, help="A name from `tightpipe methods`.")
@click.option(
    "--warm-start", default="best", show_default=True, help="A heuristic, a schedule file, best or none."
)
@click.option("-o", "--output", metavar="SCHEDULE", help="Write the schedule to this file.")
@_search_options(60.0)
@_json
@click.pass_context
def _solve(
    context: click.Context,
    instance: str,
    method: str,
    warm_start: str,
    output: str | None,
    time_limit: float,
    workers: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Solve the instance in the file INSTANCE (JSON or TOML)."""
    problem = load_instance(instance)
    if output is not None:
        _check_writable(output)
    with progress_bar(1, time_limit) as bar:
        result = solve(
            problem,
            method,
            time_limit=time_limit,
            workers=workers,
            seed=seed,
            warm_start=_warm_start(warm_start),
            progress=bar.begin(method),
        )
    if output is not None and result.schedule is not None:
        save_schedule(result.schedule, output, method=result.method, bound=result.bound)
    _show_result(result, output, as_json)
    context.exit(0 if result.schedule is not None else 1)


def _warm_start(text: str) -> Any:
    if text == "none":
        return None
    return load_schedule(text).schedule if os.path.exists(text) else text


def _show_result(result: Result, output: str | None, as_json: bool) -> None:
    data = result.to_dict()
    if as_json:
        show_json({**data, "output": output if result.schedule is not None else None})
        return
    if result.schedule is None:
        print(f"tightpipe: {result.status}: {result.reason}", file=sys.stderr)
        return
    del data["log"]
    for key in ("bubble_rate", "gap"):
        data[key] = None if data[key] is None else f"{data[key]:.6f}"
    show_pairs({**data, "output": output})


@cli.command("bound")
@click.argument("instance")
@_json
@click.pass_context
def _bound(context: click.Context, instance: str, as_json: bool) -> None:
    """Print every lower bound of the cost of INSTANCE that applies, and the best."""
    problem = load_instance(instance)
    _refuse_infeasible(problem)
    bounds = all_bounds(problem)
    best = max(bounds, key=lambda bound: bound.value)
    if as_json:
        fields = ("name", "value", "seconds", "argument")
        rows = [{field: getattr(bound, field) for field in fields} for bound in bounds]
        show_json({"best": best.value, "name": best.name, "bounds": rows})
        return
    show_table(["bound", "value", "seconds", "argument"], [
        (b.name, b.value, f"{b.seconds:.3f}", b.argument) for b in bounds
    ])  # fmt: skip
    print(f"best: {best.value} ({best.name})")


@cli.command("validate")
@click.argument("schedule")
@_json
@click.pass_context
def _validate(context: click.Context, schedule: str, as_json: bool) -> None:
    """Check the schedule in the file SCHEDULE against every rule of the model."""
    content = load_schedule(schedule)
    violations = _claims(content) if not (found := _violations(content)) else found
    value = cost(content.schedule)
    if as_json:
        broken = [{"rule": v.rule, "message": v.message} for v in violations]
        show_json({"valid": not violations, "cost": value, "violations": broken})
    elif violations:
        print("\n".join(map(str, violations)))
    else:
        print(f"valid: cost {value}, bubble rate {bubble_rate(content.schedule):.6f}")
    context.exit(1 if violations else 0)


def _violations(content: ScheduleFile) -> list[Violation]:
    return validate(content.schedule.instance, content.schedule)


def _claims(content: ScheduleFile) -> list[Violation]:
    """Check what the file says about a schedule that is valid."""
    value = cost(content.schedule)
    found = []
    if content.cost is not None and content.cost != value:
        found.append(Violation("cost", f"the file claims {content.cost}, the schedule costs {value}"))
    if content.bound is not None and content.bound > value:
        found.append(
            Violation("bound", f"the file claims a bound of {content.bound}, above the cost {value}")
        )
    return found


@cli.command("methods")
@_json
def _methods(as_json: bool) -> None:
    """List the methods with placement, memory and source."""
    fields = ("name", "kind", "placements", "memory", "source")
    rows = [{field: getattr(method, field) for field in fields} for method in METHODS.values()]
    if as_json:
        show_json({"methods": rows})
        return
    show_table(fields, [
        (row["name"], row["kind"], " ".join(row["placements"]), row["memory"], row["source"]) for row in rows
    ])  # fmt: skip


@cli.command("plot")
@click.argument("schedules", nargs=-1, required=True)
@click.option("-o", "--output", metavar="PICTURE", help="File to write: .png, .svg or .pdf.")
@click.option("--memory", is_flag=True, help="Add the memory of each device as a second panel.")
@click.option("--text", is_flag=True, help="Draw as text on stdout, one line per device.")
@click.option("--scale", type=click.IntRange(1), help="Ticks per character of --text.")
@_json
def _plot(
    schedules: tuple[str, ...], output: str | None, memory: bool, text: bool, scale: int | None, as_json: bool
) -> None:
    """Draw the schedule files SCHEDULES; several share one time axis."""
    if not text and output is None:
        raise InputError("give a picture with -o, or --text", key="output", value=None)
    drawn = [(path, _valid_schedule(path)) for path in schedules]
    pictures = [plot.draw_text(content.schedule, scale=scale) for _, content in drawn] if text else []
    if output is not None:
        _check_writable(output)
        labels = [(content.method or Path(path).stem, content.schedule) for path, content in drawn]
        bounds = [content.bound for _, content in drawn]
        plot.draw_gantt(labels, path=output, memory=memory, bounds=bounds)
    if as_json:
        show_json({"output": output, "text": pictures or None})
    elif text:
        print("\n\n".join(pictures))


def _valid_schedule(path: str) -> ScheduleFile:
    content = load_schedule(path)
    violations = _violations(content)
    if violations:
        raise InfeasibleError(f"{path}: not drawn, the schedule is invalid: {violations[0]}")
    return content


@cli.command("table")
@click.argument("number", type=click.Choice(["5", "8"]))
@click.option("-o", "--output", metavar="CSV", help="[default: results/table<NUMBER>.csv]")
@_json
def _table(number: str, output: str | None, as_json: bool) -> None:
    """Print table NUMBER of the zero-bubble paper: published bubble rate, ours, difference."""
    target = output or f"results/table{number}.csv"
    _check_writable(target)
    cells = table_cells(int(number))
    write_text(target, to_csv(cells))
    equal = sum(cell.difference == 0 for cell in cells)
    if as_json:
        rows = [{field: getattr(cell, field) for field in FIELDS} for cell in cells]
        show_json({"csv": target, "cells": rows, "equal": equal})
        return
    show_table(*wide(cells))
    print(f"{equal} of {len(cells)} cells agree to 4 decimals; bubble rate = (cost - work) / cost")


@cli.command("gallery")
@click.option("-o", "--output", default="results/gallery.png", show_default=True, metavar="PICTURE")
@_json
def _gallery(output: str, as_json: bool) -> None:
    """Draw every schedule family at 4 devices and 8 microbatches on one page."""
    _check_writable(output)
    draw_gallery(output)
    if as_json:
        show_json({"output": output})


@cli.command("compare")
@click.option("--settings", default="active", show_default=True, help="active, all, or names.")
@click.option(
    "--memory", default="2p", show_default=True, help="Limits in forward activations, e.g. 2p,2.5p,3p."
)
@click.option(
    "--methods", default="greedy-v,cpsat", show_default=True, help="Names from `tightpipe methods`."
)
@click.option(
    "--objective", type=click.Choice([str(o) for o in Objective]), default="device_span", show_default=True
)
@click.option("-o", "--output", default="results/paper_table.csv", show_default=True, help="CSV to extend.")
@click.option("--fresh", is_flag=True, help="Compute all rows anew; the old file is kept as .bak.")
@_search_options(75.0)
@_json
def _compare(
    settings: str,
    memory: str,
    methods: str,
    objective: str,
    output: str,
    fresh: bool,
    time_limit: float,
    workers: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Compare methods on the papers' settings: one CSV row per setting, memory limit and method.

    Rows that are already in the CSV (same setting, limit, method, options and versions) are not
    computed again, so an interrupted run continues where it stopped.
    """
    names = [name.strip() for name in methods.split(",")]
    options = Options(time_limit, workers, seed)
    tasks = plan(choose_settings(settings), memory.split(","), names, Objective(objective), options)
    if Path(output).suffix != ".csv":
        raise InputError("must end in .csv", key="output", value=output)
    if fresh and Path(output).exists():
        Path(output).replace(output + ".bak")
    store = RowStore(Path(output), COLUMNS)
    todo = missing(tasks, store)
    print(f"{len(tasks)} rows, {len(tasks) - len(todo)} of them already in {output}", file=sys.stderr)
    _run_tasks(todo, store)
    _write_report(store, output, names[0], as_json)


def _run_tasks(tasks: Sequence[Task], store: RowStore) -> None:
    left = sum(_seconds(task) for task in tasks)
    with progress_bar(len(tasks), left) as bar:
        for task, result in run(tasks, store, lambda t: bar.begin(f"{t.setting.name} {t.method}")):
            row = row_of(task, result)
            left -= _seconds(task)
            shown = ("status", "bubble_rate", "bound", "gap")
            numbers = " ".join(f"{column} {row[column]}" for column in shown)
            bar.finish(f"{task.setting.name} {task.method}: {numbers} in {result.seconds:.1f} s", left)


def _seconds(task: Task) -> float:
    """Return the most time that a task takes, about."""
    return (task.options.time_limit or 0.0) if task.searches else 2.0


def _write_report(store: RowStore, output: str, baseline: str, as_json: bool) -> None:
    rows = latest(store.rows())
    stem = output.removesuffix(".csv")
    write_text(f"{stem}.md", markdown(rows, baseline))
    plot.draw_bubble_rates([_numbers(row) for row in rows], f"{stem}.png")
    if as_json:
        show_json({"csv": output, "markdown": f"{stem}.md", "figure": f"{stem}.png", "rows": rows})
    else:
        print(Path(f"{stem}.md").read_text(encoding="utf-8"), end="")


def _numbers(row: Row) -> dict[str, Any]:
    """Turn the fields that the figure draws into numbers."""
    label = row["setting"] if row["m_offset"] == "0" else f"{row['setting']} 2p{int(row['m_offset']):+d}"
    integers = {key: int(row[key]) if row[key] else None for key in ("cost", "work", "bound")}
    rate = float(row["bubble_rate"]) if row["bubble_rate"] else None
    return {"setting": label, "method": row["method"], "bubble_rate": rate, **integers}


def _refuse_infeasible(instance: Instance) -> None:
    reason = instance.infeasibility()
    if reason is not None:
        raise InfeasibleError(reason)


def _check_writable(path: str) -> None:
    """Raise before the work rather than after it."""
    folder = Path(path).parent
    if not folder.is_dir():
        raise InputError("cannot be written: there is no such folder", source=path)
    if Path(path).is_dir():
        raise InputError("cannot be written: it is a folder", source=path)
    if not os.access(folder, os.W_OK):
        raise InputError("cannot be written: the folder is read-only", source=path)


def _fail(message: str, status: int) -> NoReturn:
    print(f"tightpipe: {message}", file=sys.stderr)
    sys.exit(status)


def main() -> None:
    """Run the command line; every failure is one line on stderr and an exit status."""
    try:
        sys.exit(cli.main(prog_name="tightpipe", standalone_mode=False))
    except click.ClickException as error:
        _fail(" ".join(error.format_message().split()), 2)
    except InputError as error:
        _fail(str(error), 2)
    except (InfeasibleError, NoScheduleError, DeadlockError) as error:
        _fail(str(error), 1)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted; what was finished is kept, the same command continues", _INTERRUPTED)
