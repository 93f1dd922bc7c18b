"""A store keeps the solves of one experiment in a file that survives kill -9, power loss and many writers.

The file is an SQLite database: SQLite is embedded and lets several processes write to one file (DuckDB lets
one), and with a write-ahead log that is synchronised at every commit, a crash of the process or of the
machine loses no committed row. All writers are on one machine, because they share the index of the log in
memory; solves on other machines return their results to a process on this one.

A process claims a solve by a lease, which it renews. Once a lease has run out, any process may claim the
solve. Therefore a solve that a killed process was running is run again, and one that it had finished is not.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ..base.errors import InputError, StoppedError
from .task import COLUMNS, Row, Task, Value, column_type

VERSION = 5
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
    """Create the table in an empty file, or check that the file has the table of this version."""
    pragmas = (connection.execute(f"PRAGMA {name}") for name in ("application_id", "user_version"))
    application, found = (int(cursor.fetchone()[0]) for cursor in pragmas)
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application == found == tables == 0:
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


LEASE = 10.0  # seconds; a process renews its leases several times in this time
MOST_ATTEMPTS = 3  # a solve counts as failed once its sweep was killed this many times while running it
_SECONDS_OF_A_HEURISTIC = 3.0  # an estimate, with the start of the process
_WAITED_FOR = (
    "SELECT * FROM solve WHERE key IN (SELECT value FROM json_each(next.payload, '$.after')) "
    "AND position IS NOT NULL AND state IN ('pending', 'running')"
)  # the unfinished solves that the solve `next` has to wait for
_WAIT = 30.0  # seconds that one writer waits for another at most


@dataclass(frozen=True, slots=True)
class Tally:
    """The progress of a sweep; gaps are None if no solve has one."""

    total: int
    done: int
    running: int
    failed: int
    best_gap: float | None
    mean_gap: float | None
    seconds_left: float  #: an estimate of what the unfinished solves take at most, one after another

    @property
    def unfinished(self) -> int:
        """Number of solves that are neither done nor failed."""
        return self.total - self.done - self.failed


class Store:
    """The solves of one experiment in a file, made if missing; a claim holds for `lease` seconds."""

    def __init__(self, path: Path, lease: float = LEASE) -> None:
        self.path, self._lease = path, lease
        try:
            self._connection = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            prepare(self._connection, self.path)
        except sqlite3.Error as error:
            raise InputError(f"cannot be opened as a store: {error}", source=str(self.path)) from None

    def close(self) -> None:
        """Close the file; the last process to do so merges the write-ahead log into the file."""
        self._connection.close()

    def enrol(self, tasks: Sequence[Task]) -> None:
        """Make `tasks` the grid; known ones keep their results, and those of others are no longer shown."""
        with self._writing() as connection:
            connection.execute("UPDATE solve SET position = NULL")
            _insert(connection, tasks)

    def begin_anew(self, tasks: Sequence[Task]) -> Path | None:
        """Make all solves of the grid pending if all are finished, and return the path of the store's copy.

        The copy, with ``.bak`` added to the name, keeps the results. None is returned if a solve of the grid
        is not finished; it may be that another process has just begun anew.
        """
        kept = self.path.with_name(f"{self.path.name}.bak")
        with self._writing() as connection:
            if self.tally().unfinished:
                return None
            with closing(sqlite3.connect(self.path)) as committed, closing(sqlite3.connect(kept)) as copy:
                committed.backup(copy)
            connection.execute("DELETE FROM solve WHERE position IS NOT NULL")
            _insert(connection, tasks)
        return kept

    def claim(self, owner: str) -> Task | None:
        """Claim for `owner` the next solve that is pending or whose lease has run out, and return its task.

        `owner` is a name that no other process has. A solve that starts from the schedules of other
        solves waits until these have ended. If no solve can be claimed, return None.
        """
        now = time.time()
        with self._writing() as connection:
            connection.execute(
                "UPDATE solve SET state = 'failed', error = ? "
                "WHERE state = 'running' AND lease < ? AND attempts >= ?",
                (f"its sweep was killed {MOST_ATTEMPTS} times while it ran", now, MOST_ATTEMPTS),
            )
            found = connection.execute(
                "UPDATE solve SET state = 'running', owner = ?, lease = ?, attempts = attempts + 1 "
                "WHERE key = (SELECT key FROM solve AS next WHERE position IS NOT NULL "
                "AND (state = 'pending' OR (state = 'running' AND lease < ?)) "
                f"AND NOT EXISTS ({_WAITED_FOR}) ORDER BY position LIMIT 1) "
                f"RETURNING {', '.join(COLUMNS)}, payload",
                (owner, now + self._lease, now),
            ).fetchone()
        return None if found is None else Task(Row(*found[:-1]), found[-1])

    def renew(self, owner: str) -> None:
        """Renew all leases of `owner`, so that they hold for their full time from now on."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE solve SET lease = ? WHERE owner = ? AND state = 'running'",
                (time.time() + self._lease, owner),
            )

    def release(self, owner: str) -> None:
        """Make the unfinished solves of `owner` pending again, and do not count these attempts."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE solve SET state = 'pending', owner = NULL, lease = NULL, attempts = attempts - 1 "
                "WHERE owner = ? AND state = 'running'",
                (owner,),
            )

    def finish(self, key: str, owner: str, values: Mapping[str, Value], schedule: bytes | None) -> bool:
        """Write a solve's result unless `owner` has lost its claim, and return whether it was written."""
        cells = ", ".join(f"{name} = ?" for name in values)
        with self._writing() as connection:
            written = connection.execute(
                f"UPDATE solve SET {cells}, schedule = ?, lease = NULL "
                "WHERE key = ? AND owner = ? AND state = 'running'",
                (*values.values(), schedule, key, owner),
            )
        return written.rowcount == 1

    def retry_failed(self) -> int:
        """Make the failed solves pending again and return how many there were."""
        with self._writing() as connection:
            return connection.execute(
                "UPDATE solve SET state = 'pending', attempts = 0, error = NULL "
                "WHERE state = 'failed' AND position IS NOT NULL"
            ).rowcount

    def tally(self) -> Tally:
        """Return the progress of the grid's solves."""
        (counts,) = self._read(
            "SELECT count(*), total(state = 'done'), total(state = 'running'), total(state = 'failed'), "
            "min(gap), avg(gap), total(CASE WHEN state IN ('pending', 'running') "
            "THEN coalesce(time_limit, ?) END) FROM solve WHERE position IS NOT NULL",
            _SECONDS_OF_A_HEURISTIC,
        )
        return Tally(*map(int, counts[:4]), *counts[4:])

    def pending(self) -> list[str]:
        """Return the payloads of the solves of the grid that have not ended."""
        query = "SELECT payload FROM solve WHERE position IS NOT NULL AND state IN ('pending', 'running')"
        return [payload for (payload,) in self._read(query)]

    def rows(self) -> list[Row]:
        """Return the rows of the grid, in the sequence of its tasks."""
        query = f"SELECT {', '.join(COLUMNS)} FROM solve WHERE position IS NOT NULL ORDER BY position"
        return [Row(*cells) for cells in self._read(query)]

    def engines(self) -> Counter[str]:
        """Return the number of done and failed solves by engine, including those that left the grid."""
        query = "SELECT engine, count(*) FROM solve WHERE state IN ('done', 'failed') GROUP BY engine"
        return Counter(dict(self._read(query)))

    def schedule(self, key: str) -> bytes | None:
        """Return the compressed schedule of a solve; None if the solve has no schedule."""
        found = self._read("SELECT schedule FROM solve WHERE key = ?", key)
        return found[0][0] if found else None

    def _read(self, query: str, *values: Value) -> list[Any]:
        """Return all rows that a query finds."""
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise StoppedError(f"{self.path}: {error}") from None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction, which waits for other writers at its beginning, and commit or roll it back."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self._roll_back()
            raise StoppedError(f"{self.path}: {error}") from None
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def open_store(path: Path) -> closing[Store]:
    """Open a store, and close it at the end of the block."""
    return closing(Store(path))


def seconds_at_most(rows: Iterable[Row]) -> float:
    """Return an estimate of the most seconds that the solves of the rows take, one after another."""
    return sum(row.time_limit or _SECONDS_OF_A_HEURISTIC for row in rows)


def _insert(connection: sqlite3.Connection, tasks: Sequence[Task]) -> None:
    """Give the tasks their places in the grid, and insert those that the store does not have."""
    known = ", ".join(COLUMNS)
    marks = ", ".join("?" * (len(COLUMNS) + 2))
    connection.executemany(
        f"INSERT INTO solve ({known}, position, payload) VALUES ({marks}) "
        "ON CONFLICT (key) DO UPDATE SET position = excluded.position",
        ((*astuple(task.row), place, task.payload) for place, task in enumerate(tasks)),
    )
