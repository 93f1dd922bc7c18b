"""A CSV table has one row per solve; an interrupted run of a grid continues from the table alone.

Each row is written by one `write` of one line to a file opened for appending, followed by a flush to disk.
A killed run therefore leaves whole rows and at most one torn last line, which the next row or run removes.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from ..core.errors import InputError, StoppedError
from ..core.files import write_bytes
from ..core.tables import csv_text
from ..solving.methods import find_method
from .sweep.guarded_process import Outcome
from .sweep.row import Row
from .sweep.task import Task

PARAMS = "params"
"""The column of the parameters of solves, in tables whose solves have other parameters than the defaults."""

Cells = dict[str, str]
"""A row of a table as it stands in the file, by column."""


@dataclass(frozen=True, slots=True)
class Solve:
    """A task and its outcome, which is None while the task has not been run."""

    task: Task
    outcome: Outcome | None = None

    @property
    def row(self) -> Row:
        """All that is known of the solve."""
        known = self.task.row
        return known if self.outcome is None else replace(known, **self.outcome.values)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Form:
    """The columns of a table, and the key by which its rows are told apart.

    Parameters
    ----------
    columns
        For each column, in the order of the file, the function that returns the column's value for a solve.
        The value None becomes an empty cell.
    key
        Names of columns whose values are known before a solve. A task is done if the table has a row with
        the task's cells in all of these columns.
    """

    columns: Mapping[str, Callable[[Solve], object]]
    key: tuple[str, ...]

    def key_of(self, task: Task) -> tuple[str, ...]:
        """Return the cells of a task, which need not have been run, in the columns of the key."""
        return tuple(cell_text(self.columns[name](Solve(task))) for name in self.key)


class Table:
    """A CSV file with the columns of a form.

    Parameters
    ----------
    path
        The file. If it does not exist, it is created with its header.
    form
        The columns and the key of the table.

    Raises
    ------
    InputError
        If the file cannot be written, or has other columns.
    """

    def __init__(self, path: str | Path, form: Form) -> None:
        self.path, self.form = Path(path), form
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked() as file:
                self._check_header(file)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None

    def rows(self) -> list[Cells]:
        """Return all rows, oldest first."""
        with self.path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def missing(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks that have to be run: those without a row, and those of installed heuristics.

        A heuristic of an installed package is run again, because it may have been edited since its row was
        computed, and because running it takes little time.
        """
        there = self._by_key()
        return [
            task for task in tasks if self.form.key_of(task) not in there or find_method(task.row.method).code
        ]

    def rows_of(self, tasks: Sequence[Task]) -> list[Cells]:
        """Return the newest row of each task that has one."""
        there = self._by_key()
        keys = map(self.form.key_of, tasks)
        return [there[key] for key in keys if key in there]

    def append(self, solve: Solve) -> None:
        """Add the row of a solve.

        Raises
        ------
        StoppedError
            If the file can no longer be written.
        """
        try:
            with self._locked() as file:
                _write(file, [say(solve) for say in self.form.columns.values()])
        except OSError as error:
            raise StoppedError(f"{self.path}: {error.strerror}") from None

    @property
    def backup(self) -> Path:
        """The file that keeps the table as it was before rows were removed."""
        # beside the target of a symbolic link, where the rows are
        real = self.path.resolve() if self.path.is_symlink() else self.path
        return real.with_name(f"{real.name}.bak")

    def clear(self) -> int:
        """Remove all rows, and return how many there were; if there were any, `backup` keeps the table.

        Raises
        ------
        InputError
            If the backup cannot be written.
        """
        with self._locked() as file:
            there = len(self.rows())
            if there:
                file.seek(0)
                write_bytes(self.backup, file.read())
                file.truncate(0)  # in place, so that a symbolic link leads to the new rows
                _write(file, list(self.form.columns))
        return there

    def set_aside_others(self, engine: str) -> Counter[str]:
        """Keep only the rows of `engine` in the file, and return how many rows of each other engine it had.

        An engine is a version of the code that finds schedules and proves bounds. If rows are removed, the
        file is first copied to `backup`.

        Raises
        ------
        InputError
            If the backup cannot be written.
        """
        with self._locked() as file:
            file.seek(0)
            content = file.read()
            kept, others = of_one_engine(content.decode(), engine)
            if others:
                write_bytes(self.backup, content)
                file.truncate(0)  # in place: another process may have the file open for its next row
                file.write(kept.encode())
                os.fsync(file.fileno())
        return others

    def _by_key(self) -> dict[tuple[str, ...], Cells]:
        return {tuple(row[name] for name in self.form.key): row for row in self.rows()}

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """Open the file under a lock, and remove the last line if a kill has torn it."""
        import fcntl  # only on POSIX; code that only reads tables does not need it

        with self.path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # closing the file releases the lock
            file.seek(0)
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
            yield file

    def _check_header(self, file: BinaryIO) -> None:
        file.seek(0)
        header = file.readline().decode(errors="replace").strip()
        if not header:
            _write(file, list(self.form.columns))
        elif header.split(",") != list(self.form.columns):
            raise InputError(_other_columns(header.split(","), self.form), source=str(self.path))


def _other_columns(header: Sequence[str], form: Form) -> str:
    """Return what to do about a table whose header is not the one of `form`."""
    if {*header} ^ {*form.columns} == {PARAMS}:
        there, here = ("with", "without") if PARAMS in header else ("without", "with")
        return f"is a table of solves {there} --params, and these are {here}: name another file with -o"
    return "has other columns than this version writes; move it away to start anew"


def cell_text(value: object) -> str:
    """Return the text of a value in a cell; None becomes the empty text."""
    return "" if value is None else str(value)


def _write(file: BinaryIO, values: Sequence[object]) -> None:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(map(cell_text, values))
    file.write(line.getvalue().encode())
    os.fsync(file.fileno())


_ENGINE = "engine"
"""The column that names the engine of a row; see `tightpipe.core.engine_version`."""


def of_one_engine(content: str, engine: str) -> tuple[str, Counter[str]]:
    """Return a CSV text with only the rows of `engine`, and the number of rows of each other engine."""
    reader = csv.DictReader(io.StringIO(content))
    rows = list(reader)
    others = Counter(row[_ENGINE] for row in rows if row[_ENGINE] != engine)
    kept = [row.values() for row in rows if row[_ENGINE] == engine]
    return csv_text(reader.fieldnames or (), kept), others
