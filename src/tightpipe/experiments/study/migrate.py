"""Bring an earlier version's study to this one: its store, or where there is none the columns of its rows."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...core.errors import InputError
from ...core.metrics import imbalance, works
from ..sweep.row import COLUMNS, Row, row_from_text
from ..sweep.schema import migrate
from ..sweep.store import open_store
from ..sweep.task import Task
from .load import ROWS, STORE


def migrated_rows(folder: Path, tasks: Sequence[Task]) -> list[Row]:
    """Bring a study's store to this version and return its rows, which nothing is solved for.

    Parameters
    ----------
    folder
        The study's folder. Where it holds no store but ``rows.csv``, only that file's rows are returned.
    tasks
        Those of the experiment, whose instances tell what the columns say that such a file lacks.

    Raises
    ------
    InputError
        If the folder holds neither, or one that cannot be migrated.
    """
    if (folder / STORE).exists() or not (folder / ROWS).exists():
        migrate(folder / STORE)
        with open_store(folder / STORE) as store:
            return store.rows()
    with (folder / ROWS).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        unknown = set(reader.fieldnames or ()) - set(COLUMNS)
        if unknown or "instance_hash" not in (reader.fieldnames or ()):
            raise InputError("is not the table of a sweep", source=str(folder / ROWS))
        known = {task.row.instance_hash: task for task in tasks}
        return [_row(cells, known.get(cells["instance_hash"])) for cells in reader]


def _row(cells: Mapping[str, str], task: Task | None) -> Row:
    """Read a row; columns that it lacks are those of the task, or empty."""
    filled = dict.fromkeys(COLUMNS, "") | ({} if task is None else _of_the_instance(task)) | dict(cells)
    return row_from_text(filled)


def _of_the_instance(task: Task) -> dict[str, str]:
    share = task.row.memory_of_1f1b
    return {
        "memory_of_1f1b": "" if share is None else str(share),
        "imbalance": str(imbalance(works(task.instance))),
    }
