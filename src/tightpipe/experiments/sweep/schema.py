"""The table in a sweep's store is created, or checked."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from ...core.errors import InputError
from .row import COLUMNS, column_type

VERSION = 4
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
        rule = f"is a store of version {found}, and this tightpipe reads version {VERSION} only"
        raise InputError(f"{rule}: move it away, and run the sweep anew", source=str(path))


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
