"""A study holds the rows of a sweep and their schedules, as read from the sweep's folder."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import InputError
from ...core.schedule import Schedule
from ..sweep.row import COLUMNS, Row, row_from_text
from ..sweep.store import open_store
from ..sweep.task import unpack

STORE = "store.sqlite"
ROWS = "rows.csv"


@dataclass(frozen=True, slots=True)
class Study:
    """The results of a sweep.

    Parameters
    ----------
    folder
        The sweep's folder, e.g. ``results/memory``.
    rows
        All rows in the order of the experiment's grid.
    """

    folder: Path
    rows: tuple[Row, ...]

    def schedule(self, row: Row) -> Schedule | None:
        """Return the schedule of a row; None if the solve found none, or the folder has no store."""
        path = self.folder / STORE
        if not path.exists():
            return None
        with open_store(path) as store:
            packed = store.schedule(row.key)
        return None if packed is None else unpack(packed)


def load_study(folder: str | Path) -> Study:
    """Read the rows of a sweep from its store or, if the folder has none, from ``rows.csv``.

    Raises
    ------
    InputError
        If the folder holds neither file, or the file cannot be read.
    """
    folder = Path(folder)
    if (folder / STORE).exists():
        with open_store(folder / STORE) as store:
            return Study(folder, tuple(store.rows()))
    if not (folder / ROWS).exists():
        raise InputError(f"holds neither {STORE} nor {ROWS}: no sweep was run into it", source=str(folder))
    with (folder / ROWS).open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise InputError(
                "has other columns than this version reads; run the sweep anew", source=str(folder / ROWS)
            )
        return Study(folder, tuple(map(row_from_text, reader)))
