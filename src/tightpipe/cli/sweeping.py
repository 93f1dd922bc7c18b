"""The command ``sweep``, its progress on stderr, and tables that a run fills and continues."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import click

from ..base.cores import usable_cores
from ..base.errors import InputError, StoppedError, about_file, printable
from ..base.files import STANDARD, csv_rows, make_folder, read_text
from ..experiments.axes import OWN
from ..experiments.experiment import Experiment
from ..experiments.experiment_file import load_experiment, located
from ..experiments.grid import (
    ExecutorContext,
    Watch,
    dask_executor,
    local_executor,
    slurm_executor,
    solves_that_fit,
    tasks_of,
)
from ..experiments.guarded_process import Limits, Outcome
from ..experiments.store import Store, Tally, open_store, seconds_at_most
from ..experiments.study import (
    STORE,
    Files,
    check_figure,
    enrol,
    files_in,
    run_grid,
    write_conditions,
    write_study,
)
from ..experiments.task import COLUMNS, Row, Task, Value
from ..terminal import Bar, duration, show_json, show_pairs
from .common import cli, json_option, refuse_beside, say_other_engines, show
from .group import finished_work_kept


def percent(gap: Value) -> str:
    """Return a gap as text in percent, e.g. ``1.25%``; a dash if the gap is unknown."""
    return "-" if gap is None else f"{float(gap):.2%}"


def title(row: Row) -> str:
    """Return a short name for a solve, made of its problem, its changes and its options."""
    words = [row.problem, f"{row.p}x{row.n}", row.memory, row.comm, row.uneven]
    if row.discount != OWN:
        words.append(f"discount {row.discount}")
    if row.offload != OWN:
        words.append(f"offload {row.offload}")
    words += [row.name, f"for {row.objective}"]
    if row.costs != "true":
        words.append(f"{row.costs} costs")
    if row.warm_start is not None:
        words.append(f"from {row.warm_start}")
    if row.time_limit is not None:
        words += [f"{row.time_limit:g} s", f"seed {row.seed}"]
    return printable(" ".join(word for word in words if word and word != OWN))


def watch_on(bar: Bar, store: Store) -> Watch:
    """Return a function that shows on the bar how far the store's grid is, when a task begins or ends."""

    def watch(task: Task, outcome: Outcome | None, solves_at_once: int) -> None:
        tally = store.tally()
        if outcome is not None:
            bar.say(_line(task, outcome, tally))
        text = (
            f"{tally.running} running, {tally.failed} failed, gap best {percent(tally.best_gap)} "
            f"mean {percent(tally.mean_gap)}"
        )
        left = f"at most {duration(tally.seconds_left / max(1, solves_at_once))} left"
        bar.show(tally.done + tally.failed, tally.total, text, left)

    return watch


def _line(task: Task, outcome: Outcome, tally: Tally) -> str:
    values = outcome.values
    if values["state"] == "failed":
        said = f"failed: {values['error']}"
    elif values["cost"] is None:
        said = f"{values['status']}: {values['reason']}"
    else:
        said = f"{values['status']}, cost {values['cost']}, gap {percent(values['gap'])}"
    return f"[{tally.done + tally.failed}/{tally.total}] {title(task.row)}: {said}"


Report = Callable[[Sequence[Row]], None]
"""A function that writes what is made of the rows of a run."""


def fill_table(
    tasks: Sequence[Task], files: Files, hard_limit: float, at_once: int, report: Report, *, extend: bool
) -> None:
    """Run a grid and report on its rows; then raise a StoppedError if solves failed.

    A run that was interrupted goes on, and one in which solves failed tries them again. A run that has
    finished begins anew, unless `extend` says that its solves stay. A solve is killed after `hard_limit`
    seconds; of those `at_once`, each may take an equal part of the machine's memory. `report` is called after
    the run, and writes the files.
    """
    _keep_rows(files)
    limits = Limits(hard_limit, None, max(1, usable_cores() // at_once))
    with open_store(files.store) as store, finished_work_kept(lambda: has_finished(store)):
        kept = enrol(store, tasks, files, extend=extend, retry_failed=True)
        if kept is not None:
            said = f"had finished and begins anew: {kept} keeps its solves; --extend leaves them in"
            print(f"{files.rows} {said}", file=sys.stderr)
        tally = store.tally()
        if tally.unfinished:
            say_other_engines(store.engines(), files.store)
        there = f"{tally.total - tally.unfinished} of them already in {printable(str(files.store))}"
        print(f"{tally.total} rows, {there}", file=sys.stderr)
        with Bar() as bar:
            rows = run_grid(store, local_executor(at_once), limits, files, watch_on(bar, store))
        report([row for row in rows if row.state == "done"])
        errors = [row.error for row in rows if row.state == "failed"]
        if not errors:
            files.mark.unlink(missing_ok=True)
    if errors:
        failed = f"{len(errors)} of the solves failed, the last one: {errors[-1]}"
        raise StoppedError(f"{failed}; the same command tries them again")


def has_finished(store: Store) -> bool:
    """Return whether any solve of the grid has ended."""
    tally = store.tally()
    return tally.unfinished < tally.total


def _keep_rows(files: Files) -> None:
    """Make the folder, and copy rows that no store has, as in a fresh clone; refuse other columns."""
    try:
        files.rows.parent.mkdir(parents=True, exist_ok=True)
        if files.rows.exists() and not files.store.exists():
            with about_file(files.rows):
                if not (rows := csv_rows(read_text(files.rows))) or tuple(rows[0][1]) != COLUMNS:
                    raise InputError("has other columns than this version writes; move it away to start anew")
            shutil.copy(files.rows, files.rows.with_name(f"{files.rows.name}.bak"))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(files.rows)) from None


@cli.command("sweep")
@click.argument("experiment")
@click.option(
    "-o", "--output", metavar="FOLDER", help="Where the results go. [default: results/<name of the file>]"
)
@click.option("--status", is_flag=True, help="Say how far the sweep is, also while it runs, and stop.")
@click.option(
    "--at-once", type=click.IntRange(1), help="Solves run at once. [default: all that fit the cores]"
)
@click.option("--executor", type=click.Choice(["local", "dask", "slurm"]), default="local", show_default=True)
@click.option(
    "--scheduler", metavar="ADDRESS", help="Scheduler of --executor dask, e.g. tcp://10.0.0.1:8786."
)
@click.option(
    "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Jobs for --executor slurm."
)
@click.option("--extend", is_flag=True, help="Keep all solves that are done, also those of a finished sweep.")
@click.option("--retry-failed", is_flag=True, help="Run the failed solves again, and keep the others.")
@click.option("--dry-run", is_flag=True, help="Check the experiment, say how large it is, and stop.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
@json_option
@click.pass_context
def _sweep(
    context: click.Context,
    experiment: str,
    output: str | None,
    status: bool,
    at_once: int | None,
    executor: str,
    scheduler: str | None,
    jobs: int,
    extend: bool,
    retry_failed: bool,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Run the grid of solves that the file EXPERIMENT (TOML) declares, each once.

    Memory of 2p in the file is 2 x p forward activations of one stage, in every placement.

    Finished solves are kept in the folder of the results: an interrupted sweep continues where it
    stopped, and several sweeps may work on one folder at the same time. A sweep that has finished
    begins anew, and keeps its old store as .bak, unless --extend is given.
    """
    if status:
        refuse_beside(context, "--status", ("experiment", "output", "status", "as_json"))
        return _show_status(experiment, output, as_json)
    folder = _folder(experiment, output)
    declared = load_experiment(experiment)
    tasks = _plan(declared, experiment)
    where = _executor(executor, at_once, scheduler, jobs, declared)
    if dry_run:
        return show({"solves": len(tasks), "seconds": seconds_at_most(task.row for task in tasks)}, as_json)
    make_folder(folder)
    files = files_in(folder, Path(experiment).stem, declared.figure)
    _keep_rows(files)
    with open_store(files.store) as store, finished_work_kept(lambda: has_finished(store)):
        kept = enrol(store, tasks, files, extend=extend or retry_failed, retry_failed=retry_failed)
        if not quiet:
            if kept is not None:
                print(f"the sweep had finished and begins anew: {kept} keeps its solves", file=sys.stderr)
            _say_size(store, (at_once or solves_that_fit(declared.threads)) if executor == "local" else None)
        if store.tally().unfinished:
            write_conditions(experiment, folder)
        limits = Limits(declared.hard_limit, declared.memory_cap, declared.threads)
        with Bar(quiet or as_json) as bar:
            rows = run_grid(store, where, limits, files, watch_on(bar, store), local=executor == "local")
        write_study(rows, files, declared.figure, declared.baseline)
        files.mark.unlink(missing_ok=True)
        if as_json or not quiet:
            show({**_progress(store), "rows": str(files.rows)}, as_json)


def _plan(declared: Experiment, experiment: str) -> list[Task]:
    tasks = tasks_of(declared, experiment)
    if declared.figure is not None:
        try:
            check_figure(declared.figure, [task.row for task in tasks])
        except InputError as error:
            raise located(error, experiment) from None
    return tasks


def _executor(
    name: str, at_once: int | None, scheduler: str | None, jobs: int, declared: Experiment
) -> ExecutorContext:
    if (scheduler is not None) != (name == "dask"):
        rule = "goes with --executor dask, which needs it"
        raise InputError(rule, key="scheduler", value=scheduler)
    if name == "dask":
        return dask_executor(str(scheduler))
    return slurm_executor(jobs, declared.slurm) if name == "slurm" else local_executor(at_once)


def _folder(experiment: str, output: str | None) -> Path:
    if output is None and experiment == STANDARD:
        rule = "an experiment on standard input has no name: give the folder with -o"
        raise InputError(rule, key="output", value=None)
    return Path(output) if output is not None else Path("results") / Path(experiment).stem


def _say_size(store: Store, at_once: int | None) -> None:
    tally = store.tally()
    where = "of solving" if at_once is None else f"with {at_once} solves at once"
    seconds = duration(tally.seconds_left / (at_once or 1))
    if tally.unfinished:
        say_other_engines(store.engines(), store.path)
    print(f"{tally.total} solves, {tally.unfinished} to run: at most {seconds} {where}", file=sys.stderr)


def _show_status(experiment: str, output: str | None, as_json: bool) -> None:
    path = _folder(experiment, output) / STORE
    if not path.exists():
        load_experiment(experiment)  # if the file has an error, this is the better message
        raise InputError("no such store: the sweep has not begun", source=str(path))
    with open_store(path) as store:
        rows = store.rows()
        running = [title(row) for row in rows if row.state == "running"]
        failed = [(title(row), row.error) for row in rows if row.state == "failed"]
        unsolved = [(title(row), row.reason) for row in rows if row.state == "done" and row.cost is None]
        if as_json:
            lists = {
                "running_now": running,
                "errors": [{"solve": name, "error": error} for name, error in failed],
                "unsolved": [{"solve": name, "reason": reason} for name, reason in unsolved],
            }
            return show_json({**_progress(store), **lists})
        show_pairs(_progress(store))
        for name in running:
            print(f"running: {name}")
        for name, error in failed:
            print(f"failed: {name}: {error}")
        for name, reason in unsolved:
            print(f"no schedule: {name}: {reason}")


def _progress(store: Store) -> dict[str, object]:
    tally = asdict(store.tally())
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in tally.items()}
