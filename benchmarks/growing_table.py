"""CSV files that a benchmark writes line by line; the same command continues a run that was interrupted."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tightpipe.cli.common import say_other_engines
from tightpipe.core.engine_version import engine_version
from tightpipe.core.files import read_text, write_text
from tightpipe.experiments.results_table import of_one_engine
from tightpipe.experiments.run_mark import marked_run


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
    with marked_run(first, (engine_version(), *map(str, run)), begin_anew) as finish:
        for path, columns in tables.items():
            open_table(path, columns)
        yield
        finish()


def open_table(path: Path, columns: Sequence[str]) -> None:
    """Create the file with its header if it does not exist; otherwise remove lines that other engines made.

    A backup keeps the removed lines. A last line that a killed process left incomplete is removed, too.
    """
    if not path.exists():
        write_text(path, ",".join(columns) + "\n")
    content, backup = read_text(path), path.with_name(f"{path.name}.bak")
    whole = content[: content.rfind("\n") + 1]
    kept, others = of_one_engine(whole, engine_version())
    if others:
        write_text(backup, content)
    if kept != content:
        write_text(path, kept)
    say_other_engines(others, backup)


def lines_of(path: Path) -> list[dict[str, str]]:
    """Return the lines of a table, each as a dictionary by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def append(path: Path, columns: Sequence[str], lines: Iterable[Mapping[str, object]]) -> Iterator[None]:
    """Append lines to a table, each as soon as `lines` gives it, and yield after each."""
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        for line in lines:
            writer.writerow(line)
            file.flush()
            yield
