"""A table is filled by running the solves of a grid, and goes on where a run of this grid was interrupted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..core.engine_version import engine_version
from ..core.errors import StoppedError
from ..core.printable import printable
from ..experiments.results_table import Solve, Table
from ..experiments.run_mark import marked_run
from ..experiments.sweep.executor import local_executor
from ..experiments.sweep.guarded_process import Limits, Outcome
from ..experiments.sweep.runner import run_sweep
from ..experiments.sweep.store import Store, open_store
from ..experiments.sweep.task import Task, loops_of_payload
from ..solving.ensure_compiled import compile_ahead
from .common import say_other_engines
from .sweep_bar import sweep_bar


@contextmanager
def table_run(table: Table, tasks: Sequence[Task], *, extend: bool) -> Iterator[Callable[[], None]]:
    """Prepare a table for the run of a grid, and yield the function to call when the run has finished.

    A run that was interrupted goes on, and any other begins with an empty table. With `extend`, the rows that
    are there stay in either case.

    Raises
    ------
    InputError
        If another run is filling the table, or a file cannot be written.
    """

    def begin_anew() -> None:
        removed = 0 if extend else table.clear()
        if removed:
            said = f"begins anew: {table.backup} keeps {removed} row(s) of an earlier run"
            print(f"{table.path} {said}; --extend leaves them in", file=sys.stderr)

    def oldest() -> str:
        return "" if extend else min((row.get("finished_at", "") for row in table.rows()), default="")

    solves = ("\t".join(table.form.key_of(task)) for task in tasks)
    with marked_run(table.path, solves, begin_anew, oldest) as finish:
        yield finish


def fill_table(table: Table, tasks: Sequence[Task], hard_limit: float, at_once: int = 1) -> list[str]:
    """Run the tasks that have no row, and append each row as its solve finishes.

    A row that another version of the solvers has written does not count. Such rows are moved to
    `table.backup` before the first solve.

    Parameters
    ----------
    table
        The table.
    tasks
        The tasks of the grid, in the sequence in which they run.
    hard_limit
        Seconds after which a solve is killed.
    at_once
        Number of solves that run at once, at least 1. Each may take an equal part of the machine's memory.

    Returns
    -------
    list of str
        Why solves failed, a text for each. Failed solves leave no row, so that the next run tries them again.
    """
    say_other_engines(table.set_aside_others(engine_version()), table.backup)
    todo = table.missing(tasks)
    there = f"{len(tasks) - len(todo)} of them already in {printable(str(table.path))}"
    print(f"{len(tasks)} rows, {there}", file=sys.stderr)
    if not todo:
        return []
    # here, so that no solve has to wait for the compiler
    compile_ahead(group for task in todo for group in loops_of_payload(task.payload))
    with open_store(None) as store:
        store.enrol(todo)
        _run(store, table, hard_limit, at_once)
        return [str(row.error) for row in store.rows() if row.state == "failed"]


def _run(store: Store, table: Table, hard_limit: float, at_once: int) -> None:
    limits = Limits(hard_limit, None, max(1, (os.cpu_count() or 1) // at_once))
    with sweep_bar(store, quiet=False) as bar:

        def watch(task: Task, outcome: Outcome | None, solves_at_once: int) -> None:
            if outcome is not None and outcome.values["state"] == "done":
                table.append(Solve(task, outcome))
            bar.watch(task, outcome, solves_at_once)

        run_sweep(store, local_executor(at_once), limits, watch)


def refuse_failures(errors: Sequence[str]) -> None:
    """Raise a StoppedError if solves failed."""
    if errors:
        failed = f"{len(errors)} of the solves failed, the last one: {errors[-1]}"
        raise StoppedError(f"{failed}; the same command tries them again")
