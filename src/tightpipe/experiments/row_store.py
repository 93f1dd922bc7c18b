"""A CSV file that grows row by row and survives being killed.

A row is one `write` of one line to a file opened for appending, followed by a flush to disk, so a
killed run leaves whole rows and at most one torn last line, which the next run removes.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from filelock import FileLock

from ..core.errors import InputError
from ..core.files import read_text, write_text

Row = dict[str, str]


class Keyed(Protocol):
    """A task that knows columns of its row before it is done."""

    def key_columns(self) -> Mapping[str, object]:
        """Return them by name."""


Task = TypeVar("Task", bound=Keyed)


class RowStore:
    """Rows with fixed columns in a CSV file.

    Parameters
    ----------
    path
        The file; created with its header when it is not there.
    columns
        Names of the columns, in order.

    Raises
    ------
    InputError
        If the file cannot be written, or has other columns.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, tuple(columns)
        self._lock = FileLock(f"{path}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock:
                self._repair()
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None

    def rows(self) -> list[Row]:
        """Return all rows, oldest first."""
        with self.path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def missing(self, tasks: Sequence[Task], key: Sequence[str]) -> list[Task]:
        """Return the tasks without a row that agrees with them in the columns `key`."""

        def key_of(columns: Mapping[str, object]) -> tuple[str, ...]:
            return tuple(_field(columns[column]) for column in key)

        there = {key_of(row) for row in self.rows()}
        return [task for task in tasks if key_of(task.key_columns()) not in there]

    def append(self, row: Mapping[str, object]) -> None:
        """Add one row; None becomes an empty field."""
        with self._lock:
            self._write([row[column] for column in self.columns])

    def _write(self, values: Sequence[object]) -> None:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(map(_field, values))
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.getvalue().encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def _repair(self) -> None:
        """Cut a torn last line, and see to the header."""
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self.path, whole)
        if whole == 0:
            self._write(self.columns)
            return
        header = content[: content.index(b"\n")].decode(errors="replace").strip().split(",")
        if tuple(header) != self.columns:
            rule = (
                "has other columns than this version writes; --migrate brings a table of an earlier version"
            )
            raise InputError(f"{rule} to them, else move it away to start anew", source=str(self.path))


def migrate_table(path: Path, columns: Sequence[str], lacking: Callable[[Row], Mapping[str, object]]) -> int:
    """Bring a table of an earlier version to these columns, keeping the old file as ``.bak``.

    Parameters
    ----------
    path
        The table.
    columns
        Names of the columns that it is to have, in order.
    lacking
        Returns by column what a row says in those that earlier versions lack; None where that is not known.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    InputError
        If the file cannot be read, or is not the table of an earlier version.
    """
    content = read_text(path)
    rows = list(csv.DictReader(io.StringIO(content)))
    try:
        filled = [{**lacking(row), **row} for row in rows]
        cells = [columns, *([_field(row[column]) for column in columns] for row in filled)]
        if not rows or any(len(row) != len(columns) for row in filled):
            raise InputError("it has other columns" if rows else "it has no rows")
    except (KeyError, ValueError) as error:
        raise InputError(f"is not the table of an earlier version: {error}", source=str(path)) from None
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(cells)
    write_text(path.with_name(f"{path.name}.bak"), content)
    write_text(path, text.getvalue())
    return len(rows)


def _field(value: object) -> str:
    return "" if value is None else str(value)
