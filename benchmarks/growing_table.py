"""A CSV file that a benchmark extends line by line, and continues after an interruption."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tightpipe.cli.common import say_other_engines
from tightpipe.core.engine_version import engine_version
from tightpipe.core.files import read_text, write_text
from tightpipe.experiments.one_engine import of_one_engine


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


def extend(path: Path, columns: Sequence[str], lines: Iterable[Mapping[str, object]]) -> Iterator[None]:
    """Append lines to a table, each as soon as `lines` gives it, and yield after each."""
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        for line in lines:
            writer.writerow(line)
            file.flush()
            yield
