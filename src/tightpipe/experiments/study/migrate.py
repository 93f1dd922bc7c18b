"""A study of an earlier version is brought to this one: its store or, without a store, its ``rows.csv``."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...core.errors import InputError
from ...core.metrics import imbalance, works
from ..sweep.row import COLUMNS, Row, renamed, row_from_text
from ..sweep.schema import migrate
from ..sweep.store import open_store
from ..sweep.task import Task
from .load import ROWS, STORE


def migrated_rows(folder: Path, tasks: Sequence[Task]) -> list[Row]:
    """Bring a study's store to this version, without running a solve, and return its rows.

    Parameters
    ----------
    folder
        The study's folder. Where it holds no store but ``rows.csv``, only that file's rows are returned.
    tasks
        The tasks of the experiment. Their instances tell the values of columns that ``rows.csv`` lacks.

    Raises
    ------
    InputError
        If the folder holds neither file, or the file cannot be migrated.
    """
    if (folder / STORE).exists() or not (folder / ROWS).exists():
        migrate(folder / STORE)
        with open_store(folder / STORE) as store:
            return store.rows()
    with (folder / ROWS).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        columns = renamed(dict.fromkeys(reader.fieldnames or (), ""))
        if columns.keys() - set(COLUMNS) or "instance_hash" not in columns:
            raise InputError("is not the table of a sweep", source=str(folder / ROWS))
        known = {task.row.instance_hash: task for task in tasks}
        return [_row(cells, known.get(cells["instance_hash"])) for cells in map(renamed, reader)]


def _row(cells: Mapping[str, str], task: Task | None) -> Row:
    """Return the row of `cells`; columns that `cells` lacks get the task's values, or are empty."""
    filled = dict.fromkeys(COLUMNS, "") | ({} if task is None else _of_the_instance(task)) | dict(cells)
    return row_from_text(filled)


def _of_the_instance(task: Task) -> dict[str, str]:
    share = task.row.memory_of_1f1b
    return {
        "memory_of_1f1b": "" if share is None else str(share),
        "imbalance": str(imbalance(works(task.instance))),
    }
