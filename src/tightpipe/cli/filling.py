"""Comparisons are run: grids whose rows become a CSV file, with a page and a figure beside it."""

from __future__ import annotations

import csv
import os
import shutil
import sys
from collections.abc import Callable, Sequence

from ..core.errors import InputError, StoppedError
from ..core.printable import printable
from ..experiments.guarded_process import Limits
from ..experiments.runner import local_executor
from ..experiments.store import Store, open_store
from ..experiments.study import Files, enrol, run_grid
from ..experiments.task import COLUMNS, Row, Task
from .common import say_other_engines
from .group import finished_work_kept
from .sweep_bar import sweep_bar

Report = Callable[[Sequence[Row]], None]
"""A function that writes what is made of the rows of a run."""


def fill_table(
    tasks: Sequence[Task], files: Files, hard_limit: float, at_once: int, report: Report, *, extend: bool
) -> None:
    """Run a grid and report on its rows; then raise a StoppedError if solves failed.

    A run that was interrupted goes on, and one in which solves failed tries them again. A run that has
    finished begins anew, unless `extend` says that its solves stay.

    Parameters
    ----------
    tasks
        The tasks of the grid, in the sequence in which they run.
    files
        The files of the rows and of what is made of them.
    hard_limit
        Seconds after which a solve is killed.
    at_once
        Number of solves that run at once, at least 1. Each may take an equal part of the machine's memory.
    report
        Writes the files. It is called after the run.
    extend
        Whether solves of a finished run stay.
    """
    _keep_rows(files)
    limits = Limits(hard_limit, None, max(1, (os.cpu_count() or 1) // at_once))
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
        with sweep_bar(store, quiet=False) as bar:
            rows = run_grid(store, local_executor(at_once), limits, files, bar.watch)
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
            with files.rows.open(encoding="utf-8", errors="replace", newline="") as file:
                if tuple(next(csv.reader(file), ())) != COLUMNS:
                    rule = "has other columns than this version writes; move it away to start anew"
                    raise InputError(rule, source=str(files.rows))
            shutil.copy(files.rows, files.rows.with_name(f"{files.rows.name}.bak"))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(files.rows)) from None
