"""A run that fills a table has a mark beside the table until it has finished.

The mark tells a run that was interrupted, which the same command continues, from one that has finished, which
the same command begins anew. So a table that someone else has filled, as in a fresh clone of a repository, is
never taken for one's own work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import IO

from ..core.errors import InputError

SUFFIX = ".unfinished"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""Format of the times in tables and marks, which are of UTC."""


def mark_of(table: Path) -> Path:
    """Return the path of the mark that a run has while it fills `table`."""
    return table.with_name(f"{table.name}{SUFFIX}")


@contextmanager
def marked_run(
    table: Path, run: Iterable[str], begin_anew: Callable[[], None], oldest: Callable[[], str] = lambda: ""
) -> Iterator[Callable[[], None]]:
    """Hold the mark of a run, and yield the function to call when the run has finished.

    If the mark of the same run is there, the run was interrupted and goes on. Otherwise it begins anew. The
    mark stays if the block ends before the yielded function is called.

    Parameters
    ----------
    table
        The table that the run fills.
    run
        Texts that say what is run; a run with other texts is another run.
    begin_anew
        Function that prepares the table for a run that begins.
    oldest
        Function that returns when the oldest row of the table was finished, in the format `TIME_FORMAT`, or
        an empty text if this is not known. A table with a row that is older than the run was put there
        during an interruption, for example by `git checkout`; then the run begins anew, too.

    Raises
    ------
    InputError
        If another run holds the mark, or the mark cannot be written.
    """
    mark, name = mark_of(table), sha256("\n".join(run).encode()).hexdigest()
    with _held(mark, table) as file:
        begun = _begun(file, name)
        if begun is None or "" != oldest() < begun:
            file.truncate(0)  # a run that is killed while it begins has no mark, and begins once more
            file.flush()
            now = datetime.now(UTC).strftime(TIME_FORMAT)
            begin_anew()
            file.write(json.dumps({"run": name, "begun": now}) + "\n")
            file.flush()
        yield lambda: mark.unlink(missing_ok=True)


@contextmanager
def _held(mark: Path, table: Path) -> Iterator[IO[str]]:
    import fcntl  # only on POSIX; code that only reads tables does not need it

    try:
        file = mark.open("a+", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(mark)) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # closing the file releases the lock
        except BlockingIOError:
            rule = "another run is filling this table: wait until it ends, or give another file with -o"
            raise InputError(rule, source=str(table)) from None
        yield file


def _begun(file: IO[str], name: str) -> str | None:
    """Return when the run `name` began, if the mark is its own."""
    file.seek(0)
    try:
        content = json.loads(file.read())
        return str(content["begun"]) if content["run"] == name else None
    except (ValueError, KeyError, TypeError):
        return None
