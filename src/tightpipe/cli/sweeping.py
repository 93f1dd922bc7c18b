"""The command ``sweep``."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import click

from ..core.errors import InputError
from ..core.files import STANDARD
from ..experiments.experiment import Experiment
from ..experiments.experiment_file import load_experiment, located
from ..experiments.figure import check_figure
from ..experiments.grid import tasks_of
from ..experiments.guarded_process import Limits
from ..experiments.runner import (
    ExecutorContext,
    dask_executor,
    local_executor,
    slurm_executor,
    solves_that_fit,
)
from ..experiments.store import Store, open_store, seconds_at_most
from ..experiments.study import STORE, enrol, files_in, run_grid, write_conditions, write_parquet, write_study
from ..experiments.task import Task
from ..terminal.console import show_json, show_pairs
from .common import cli, json_option, refuse_beside, say_other_engines
from .filling import has_finished
from .group import finished_work_kept
from .sweep_bar import duration, sweep_bar, title


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
@click.option("--parquet", is_flag=True, help="Write rows.parquet beside rows.csv.")
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
    parquet: bool,
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
        return _say({"solves": len(tasks), "seconds": seconds_at_most(task.row for task in tasks)}, as_json)
    _make(folder)
    files = files_in(folder, Path(experiment).stem, declared.figure)
    with open_store(files.store) as store, finished_work_kept(lambda: has_finished(store)):
        kept = enrol(store, tasks, files, extend=extend or retry_failed, retry_failed=retry_failed)
        if not quiet:
            if kept is not None:
                print(f"the sweep had finished and begins anew: {kept} keeps its solves", file=sys.stderr)
            _say_size(store, (at_once or solves_that_fit(declared.threads)) if executor == "local" else None)
        if store.tally().unfinished:
            write_conditions(experiment, folder)
        limits = Limits(declared.hard_limit, declared.memory_cap, declared.threads)
        with sweep_bar(store, quiet or as_json) as bar:
            rows = run_grid(store, where, limits, files, bar.watch, local=executor == "local")
        write_study(rows, files, declared.figure, declared.baseline)
        if parquet:
            write_parquet(rows, folder)
        files.mark.unlink(missing_ok=True)
        if as_json or not quiet:
            _say({**_progress(store), "rows": str(files.rows)}, as_json)


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


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", source=str(folder)) from None


def _say(pairs: dict[str, object], as_json: bool) -> None:
    show_json(pairs) if as_json else show_pairs(pairs)


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
