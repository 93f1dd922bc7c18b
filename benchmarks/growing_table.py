"""A CSV file that a benchmark extends line by line, and continues after it was interrupted."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tightpipe.cli.common import say_other_engines
from tightpipe.core.engine_version import engine_version
from tightpipe.core.files import read_text, write_text
from tightpipe.experiments.one_engine import of_one_engine


def open_table(path: Path, columns: Sequence[str]) -> None:
    """Let the file exist, with its header and without lines of other engines, which a backup keeps.

    A last line that a killed process left without its end is removed.
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
    """Return the lines of a table, by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def extend(path: Path, columns: Sequence[str], lines: Iterable[Mapping[str, object]]) -> Iterator[None]:
    """Write lines to the end of a table, each at once, and yield after each."""
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        for line in lines:
            writer.writerow(line)
            file.flush()
            yield
