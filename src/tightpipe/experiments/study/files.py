"""The files of a study: its rows, the experiment and the machine are written, and the rows are read again."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from ...core.engine_version import engine_version
from ...core.errors import InputError
from ...core.files import read_text, write_bytes, write_text
from ...core.schedule import Schedule
from ...core.tables import csv_text
from ..sweep.row import COLUMNS, Row, row_from_text
from ..sweep.store import open_store
from ..sweep.task import unpack

STORE = "store.sqlite"
ROWS = "rows.csv"
UNFINISHED = ".unfinished"


def mark_of(rows: Path) -> Path:
    """Return the path of the mark that lies beside a study's rows until the study has finished.

    It tells a run that was interrupted, which goes on, from one that has finished, which begins anew.
    """
    return rows.with_name(f"{rows.name}{UNFINISHED}")


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
    return Study(folder, read_rows(folder / ROWS))


def read_rows(path: Path) -> tuple[Row, ...]:
    """Read the rows of a CSV file.

    Raises
    ------
    InputError
        If the file has other columns.
    """
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            rule = "has other columns than this version reads; move it away, and run the solves anew"
            raise InputError(rule, source=str(path))
        return tuple(map(row_from_text, reader))


_PACKAGES = ("ortools", "highspy", "pulp", "numba", "numpy")


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as a CSV file."""
    write_text(path, csv_text(COLUMNS, [astuple(row) for row in rows]))


def write_parquet(rows: Sequence[Row], folder: Path) -> None:
    """Write the rows into a folder as ``rows.parquet``.

    Raises
    ------
    InputError
        If pyarrow is not installed.
    """
    import pandas as pd  # imported here, because most sweeps write no such file

    frame = pd.DataFrame([asdict(row) for row in rows], columns=list(COLUMNS))
    try:  # converted, else a column of integers with missing values would be one of floats
        content = frame.convert_dtypes().to_parquet(None, index=False)
    except ImportError:
        rule = "needs pyarrow: pip install 'tightpipe[parquet]'"
        raise InputError(rule, key="parquet") from None
    write_bytes(folder / "rows.parquet", content)


def write_conditions(experiment: str | Path, folder: Path) -> None:
    """Write the experiment of a sweep and a description of the machine into a folder.

    ``experiment.toml`` is a copy of the experiment file. ``environment.json`` describes the machine and names
    the engine and the versions of packages.
    """
    write_text(folder / "experiment.toml", read_text(experiment))
    environment = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_average": os.getloadavg()[2],  # over 15 minutes: it tells whether the cores do other work too
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "engine": engine_version(),
        **{package: version(package) for package in _PACKAGES},
    }
    write_text(folder / "environment.json", json.dumps(environment, indent=2) + "\n")
