"""Functions that print results as tables, pairs or JSON on stdout, and show progress on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..base.errors import printable
from ..model.result import LogEntry, lines_of
from ..model.result import Progress as Watcher
from .standard_streams import styled

MISSING = "-"


def show_json(data: Any) -> None:
    """Print data as one JSON object on one line."""
    sys.stdout.write(json.dumps(data) + "\n")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; None is shown as a dash."""
    from rich.console import Console  # imported here because rich takes long to load
    from rich.markup import escape
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(MISSING if value is None else escape(printable(str(value))) for value in row))
    # Where stdout is no terminal, e.g. a pipe, the table is as wide as its columns need.
    width = None if sys.stdout.isatty() else 400
    Console(file=styled(sys.stdout), width=width, highlight=False).print(table)


def show_pairs(pairs: dict[str, Any]) -> None:
    """Print a line with key and value for each pair; a value of None gets no line."""
    print(lines_of({key: value if value is None else printable(str(value)) for key, value in pairs.items()}))


def _state(entry: LogEntry) -> str:
    cost = MISSING if entry.cost is None else entry.cost
    bound = MISSING if entry.bound is None else entry.bound
    return f"cost {cost} bound {bound}"


class _Bar:
    """A progress bar on stderr; if stderr is no terminal, only a line for each finished piece of work."""

    def __init__(self, total: int, seconds: float | None) -> None:
        from rich.console import Console  # imported here because rich takes long to load
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        self._total, self._done, self._seconds = total, 0, seconds
        self._name, self._last = "", LogEntry(0.0, None, None)
        self._begin = time.monotonic()
        self._console = Console(file=styled(sys.stderr))
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._progress.add_task("", total=total, left="")

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, name: str) -> Watcher:
        """Show the next piece of work by name; return a callback that shows its incumbent and bound."""
        self._name, self._last = name, LogEntry(0.0, None, None)
        self._refresh()
        return self._watch

    def finish(self, text: str, seconds_left: float | None) -> None:
        """Count the current piece of work as done, write `text` about it, and show the seconds left."""
        self._done += 1
        self._seconds, self._begin = seconds_left, time.monotonic()
        self._console.print(
            f"[{self._done}/{self._total}] {printable(text)}", highlight=False, markup=False, soft_wrap=True
        )
        self._refresh()

    def _watch(self, entry: LogEntry) -> None:
        self._last = entry
        self._refresh()

    def _refresh(self) -> None:
        left = ""
        if self._seconds is not None:
            seconds = max(0.0, self._seconds - (time.monotonic() - self._begin))
            left = (
                f"at most {seconds / 60:.0f} min left" if seconds >= 60 else f"at most {seconds:.0f} s left"
            )
        text = f"{printable(self._name)}: {_state(self._last)}"
        self._progress.update(self._task, completed=self._done, description=text, left=left)


@contextmanager
def progress_bar(total: int, seconds: float | None) -> Iterator[_Bar]:
    """Show the progress of `total` pieces of work on stderr until the block of the `with` statement ends.

    Yields a bar, whose `begin` and `finish` are called for each piece. All pieces are expected to take at
    most `seconds` together; None means that this time is unknown.
    """
    with _Bar(total, seconds) as bar:
        yield bar


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show `text`, e.g. ``explaining``, on stderr until the `with` block ends, if stderr is a terminal."""
    from rich.console import Console  # imported here because rich takes long to load

    with Console(file=styled(sys.stderr)).status(text):
        yield
