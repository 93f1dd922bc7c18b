"""CSV files that a benchmark writes line by line; the same command continues a run that was interrupted."""

from __future__ import annotations

import csv
import errno
import io
import os
import platform
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, TypeVar

import click

from tightpipe.base.cores import usable_cores
from tightpipe.base.errors import InputError, StoppedError
from tightpipe.base.files import read_text, write_text
from tightpipe.base.sources import engine_version
from tightpipe.base.tables import csv_text
from tightpipe.cli.common import say_other_engines
from tightpipe.experiments.study import mark_of

_Key = TypeVar("_Key")
CONDITIONS = ("cores", "machine", "python_version", "ortools_version", "engine")
"""The last columns of every table: where and by what a line was made. Limits and seeds have other columns."""


def conditions() -> dict[str, object]:
    """Return the columns `CONDITIONS` of a line that is made now."""
    return {
        "cores": usable_cores(),
        "machine": platform.machine(),
        "python_version": platform.python_version(),
        "ortools_version": version("ortools"),
        "engine": engine_version(),
    }


def conditions_text(lines: Iterable[Mapping[str, str]]) -> str:
    """Return the conditions of all lines, for the foot of a page; those that a table lacks are left out."""
    said = {
        "engine": "tightpipe {}",
        "ortools_version": "OR-Tools {}",
        "python_version": "Python {}",
        "cores": "{} cores",
    }
    made = dict.fromkeys(
        ", ".join(text.format(line[key]) for key, text in said.items() if line.get(key)) for line in lines
    )
    return "; ".join(made)


def run_script(main: Callable[[], object], *, continues: bool = True) -> None:
    """Run the main function of a benchmark, and end the process as `tightpipe` does, without a traceback.

    The exit status is 2 after bad input, 1 if the run stopped, and 130 if it was interrupted. `continues`
    says whether the same command then goes on where it was.
    """
    name = Path(sys.argv[0]).name
    try:
        main()
    except (InputError, StoppedError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else 1)
    except (KeyboardInterrupt, click.Abort):
        print(f"{name}: interrupted{'; the same command continues' * continues}", file=sys.stderr)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)


@contextmanager
def open_tables(tables: Mapping[Path, Sequence[str]], run: Sequence[object], extend: bool) -> Iterator[None]:
    """Open the tables that a run fills, and count the run as finished when the block ends without an error.

    If the same run was interrupted before, its lines stay; otherwise the tables begin with their headers
    alone, and backups keep the lines of earlier runs.

    Parameters
    ----------
    tables
        The columns of each file.
    run
        The options of the run: one with other options, or of another engine, is another run.
    extend
        Whether the lines that are there stay in either case.
    """

    def begin_anew() -> None:
        for path in () if extend else tables:
            if path.exists() and lines_of(path):
                path.replace(path.with_name(f"{path.name}.bak"))

    first = next(iter(tables))
    with _marked_run(first, (engine_version(), *map(str, run)), begin_anew) as finish:
        for path, columns in tables.items():
            open_table(path, columns)
        yield
        finish()


def open_table(path: Path, columns: Sequence[str]) -> None:
    """Create the file with its header if it does not exist; otherwise remove lines that other engines made.

    A backup keeps the removed lines. A last line that a killed process left incomplete is removed, too.

    Raises
    ------
    InputError
        If lines of this engine have other columns.
    """
    if not path.exists():
        write_text(path, ",".join(columns) + "\n")
    content, backup = read_text(path), path.with_name(f"{path.name}.bak")
    whole = content[: content.rfind("\n") + 1]
    kept, others = of_one_engine(whole, engine_version())
    head, _, rest = kept.partition("\n")
    if head != ",".join(columns):
        if rest:
            raise InputError("has other columns than this script writes: remove it", source=str(path))
        kept = ",".join(columns) + "\n"
    if others:
        write_text(backup, content)
    if kept != content:
        write_text(path, kept)
    say_other_engines(others, backup)


def lines_of(path: Path) -> list[dict[str, str]]:
    """Return the lines of a table, each as a dictionary by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def append(
    path: Path, columns: Sequence[str], groups: Iterable[Iterable[Mapping[str, object]]]
) -> Iterator[None]:
    """Append groups of lines to a table, each as soon as it is complete, and yield after each.

    A run that is interrupted has all lines of a group or none, so that it goes on with whole groups.
    """
    with path.open("ab", buffering=0) as file:
        for group in groups:
            text = io.StringIO()
            csv.DictWriter(text, columns, lineterminator="\n").writerows(list(group))
            _write_whole(file, text.getvalue().encode(), path)
            yield


def _write_whole(file: io.FileIO, content: bytes, path: Path) -> None:
    """Write all of the content at the end of the file, or nothing and raise a StoppedError."""
    size = os.fstat(file.fileno()).st_size
    try:
        if file.write(content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        file.truncate(size)
        raise StoppedError(f"{path} cannot be written: {error.strerror}") from None


def fill(
    path: Path,
    columns: Sequence[str],
    keys: Sequence[_Key],
    key_of: Callable[[dict[str, str]], _Key],
    line_of: Callable[[_Key], Mapping[str, object]],
    workers: int,
    lines_of_a_process: int | None = None,
) -> list[dict[str, str]]:
    """Compute the missing lines of a table in several processes, append them, and return all lines.

    The table is to have a line for each of `keys`; `key_of` returns the key of a line that is there, and
    `line_of` computes the line of a key. The table must be open. A process computes at most
    `lines_of_a_process` lines; None for as many as come.
    """
    there = {key_of(row) for row in lines_of(path)}
    todo = [key for key in keys if key not in there]
    options: dict[str, Any] = {"max_tasks_per_child": lines_of_a_process}
    options |= {"initializer": signal.signal, "initargs": (signal.SIGINT, signal.SIG_IGN)}
    with ProcessPoolExecutor(workers, **options) as pool:  # only this process handles Ctrl-C
        try:
            lines = ([line] for line in pool.map(line_of, todo))
            for done, _ in enumerate(append(path, columns, lines), 1):
                if done % 100 == 0 or done == len(todo):
                    print(f"{path.name}: {done} of {len(todo)}", flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    return lines_of(path)


def of_one_engine(content: str, engine: str) -> tuple[str, Counter[str]]:
    """Return a CSV text with only the rows of `engine`, and the number of rows of each other engine."""
    reader = csv.DictReader(io.StringIO(content))
    rows = list(reader)
    others = Counter(row["engine"] for row in rows if row["engine"] != engine)
    kept = [row.values() for row in rows if row["engine"] == engine]
    return csv_text(reader.fieldnames or (), kept), others


@contextmanager
def _marked_run(
    table: Path, run: Iterable[str], begin_anew: Callable[[], None]
) -> Iterator[Callable[[], None]]:
    """Hold the mark of a run, and yield the function to call when the run has finished.

    If the mark of the same run is there, the run was interrupted and goes on. Otherwise it begins anew. The
    mark stays if the block ends before the yielded function is called. A run with other texts is another run.

    Raises
    ------
    InputError
        If another run holds the mark, or the mark cannot be written.
    """
    mark, name = mark_of(table), sha256("\n".join(run).encode()).hexdigest()
    with _held(mark, table) as file:
        file.seek(0)
        if file.read().strip() != name:
            file.truncate(0)  # a run that is killed while it begins has no mark, and begins once more
            file.flush()
            begin_anew()
            file.write(f"{name}\n")
            file.flush()
        yield lambda: mark.unlink(missing_ok=True)


def _is_file(path: Path, file: IO[str]) -> bool:
    """Return whether an open file is still the one at this path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _held(mark: Path, table: Path) -> Iterator[IO[str]]:
    import fcntl  # imported here because Windows, where the tests are collected too, does not have it

    try:
        file = mark.open("a+", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(mark)) from None
    with file:
        rule = "another run is filling this table: wait until it ends, or give another file with -o"
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # closing the file releases the lock
        except BlockingIOError:
            raise InputError(rule, source=str(table)) from None
        # a run that finished between these two calls has removed the file, and its lock protects nothing
        if not _is_file(mark, file):
            raise InputError(rule, source=str(table))
        yield file
