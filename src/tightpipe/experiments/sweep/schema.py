"""The table in a sweep's store is created, checked, and migrated from earlier versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ...core.activations import memory_of_1f1b
from ...core.errors import InputError
from ...core.metrics import busy_times, imbalance, works
from .row import COLUMNS, column_type
from .schedule_bytes import unpack
from .task import instance_of

VERSION = 3
"""Version of the table, which every store has as its `PRAGMA user_version`."""

_APPLICATION = 0x74706970  # "tpip": tells our stores from other SQLite files
_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT"}
_TABLE = f"""
CREATE TABLE solve (
    {", ".join(f"{name} {_TYPES[column_type(name)]}" for name in COLUMNS)},
    position INTEGER,       -- place in the experiment's grid; NULL once the experiment no longer has it
    payload TEXT NOT NULL,  -- from which any process can run the solve
    owner TEXT,             -- the process that runs it
    lease REAL,             -- unix time until which the owner's claim holds
    schedule BLOB,          -- deflated JSON
    PRIMARY KEY (key)
) STRICT
"""

_MIGRATIONS: dict[int, str] = {
    1: """
        ALTER TABLE solve ADD COLUMN proof TEXT;
        ALTER TABLE solve ADD COLUMN imbalance REAL;
        ALTER TABLE solve ADD COLUMN memory_of_1f1b REAL;
        UPDATE solve SET memory_of_1f1b = memory_of_1f1b_of(payload);
        UPDATE solve SET imbalance = imbalance_of(payload, schedule) WHERE state = 'done';
    """,
    2: "ALTER TABLE solve RENAME COLUMN tightpipe_version TO engine;",
}
"""For each version, the SQL that migrates a store to the next version. The SQL may call `_FUNCTIONS`."""


def _imbalance_of(payload: str, schedule: bytes | None) -> float:
    return imbalance(works(instance_of(payload)) if schedule is None else busy_times(unpack(schedule)))


_FUNCTIONS: dict[str, Callable[..., float | None]] = {
    "memory_of_1f1b_of": lambda payload: memory_of_1f1b(instance_of(payload)),
    "imbalance_of": _imbalance_of,
}
"""Functions that the SQL of migrations may call, on the payload and the schedule of a solve."""


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the table in an empty file, or check that the file has the table of this version.

    Raises
    ------
    InputError
        If the file is another program's, or a store of another version.
    """
    application, found = (_pragma(connection, name) for name in ("application_id", "user_version"))
    if application == 0 and found == 0 and not _has_tables(connection):
        # in one transaction: if two processes create the store at once, the second one finds the table there
        connection.executescript(
            f"BEGIN IMMEDIATE; {_TABLE.replace('CREATE TABLE', 'CREATE TABLE IF NOT EXISTS')};"
            f"PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;"
        )
    elif application != _APPLICATION:
        raise InputError("is not the store of a sweep; move it away to start anew", source=str(path))
    elif found != VERSION:
        rule = f"is a store of version {found}, this tightpipe reads version {VERSION}"
        what = "run `tightpipe sweep --migrate` on the experiment" if found < VERSION else "update tightpipe"
        raise InputError(f"{rule}: {what}", source=str(path))


def migrate(path: Path) -> None:
    """Bring a store to this version, keeping the old file as ``.bak``.

    Raises
    ------
    InputError
        If there is no store, it cannot be read, or its version cannot be migrated to this one.
    """
    if not path.exists():
        raise InputError("no such store; run the sweep without --migrate", source=str(path))
    try:
        with closing(sqlite3.connect(path)) as connection:
            _migrate(connection, path)
    except sqlite3.Error as error:
        raise InputError(f"cannot be migrated: {error}", source=str(path)) from None


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    found = _pragma(connection, "user_version")
    missing = [step for step in range(found, VERSION) if step not in _MIGRATIONS]
    if _pragma(connection, "application_id") != _APPLICATION or found > VERSION or missing:
        rule = f"version {found} cannot be brought to version {VERSION}; move it away to start anew"
        raise InputError(rule, source=str(path))
    if found < VERSION:
        keep_copy(path)
    for name, function in _FUNCTIONS.items():
        connection.create_function(name, -1, function, deterministic=True)
    for step in range(found, VERSION):
        connection.executescript(f"BEGIN; {_MIGRATIONS[step]}; PRAGMA user_version = {step + 1}; COMMIT;")


def keep_copy(path: Path) -> Path:
    """Copy what the store at `path` holds to the path with ``.bak`` added to its name, and return that path.

    The copy has what was committed. A connection that writes to the store may be open.
    """
    kept = path.with_name(f"{path.name}.bak")
    with closing(sqlite3.connect(path)) as store, closing(sqlite3.connect(kept)) as copy:
        store.backup(copy)
    return kept


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _has_tables(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
