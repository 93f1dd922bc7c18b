"""A sweep writes its rows, its configuration and its environment into its folder."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, astuple
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from ...core.engine_version import engine_version
from ...core.errors import InputError
from ...core.files import read_text, write_bytes, write_text
from ...core.tables import csv_text
from ..sweep.row import COLUMNS, Row
from .load import ROWS

_PACKAGES = ("ortools", "highspy", "pulp", "numba", "numpy")


def write_rows(rows: Sequence[Row], folder: Path) -> None:
    """Write the rows into a folder as ``rows.csv``."""
    write_text(folder / ROWS, csv_text(COLUMNS, [astuple(row) for row in rows]))


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
