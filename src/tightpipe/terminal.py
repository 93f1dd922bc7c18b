"""Commands print tables, pairs and JSON on stdout and show progress on stderr; neither stream misbehaves.

Three things are changed in Python's streams while a command runs:

- Where standard output fails, e.g. because the disk is full or the reader of a pipe has left, a write raises
  a `StandardOutputError`. Libraries answer an `OSError` in ways of their own: click and rich end the process
  with exit status 1 at a closed pipe. After the failure all output is dropped, so that Python does not fail
  once more when it empties its buffer at exit.
- What standard error does not take is dropped, as messages must not change the answer of a command.
- Characters that a terminal would obey, such as those of a file's name, are escaped, as are those that the
  encoding of the stream lacks.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import BufferedWriter, FileIO, TextIOWrapper, UnsupportedOperation
from typing import IO, TYPE_CHECKING, Any, Self, TextIO, cast

from .base.errors import StandardOutputError, printable
from .model.result import LogEntry, lines_of
from .model.result import Progress as Watcher

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


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


def duration(seconds: float) -> str:
    """Return a time in seconds as a short text, e.g. ``4 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _state(entry: LogEntry) -> str:
    cost = MISSING if entry.cost is None else entry.cost
    bound = MISSING if entry.bound is None else entry.bound
    return f"cost {cost} bound {bound}"


class Bar:
    """A progress bar on stderr with lines above it; if stderr is no terminal, the lines alone."""

    def __init__(self, quiet: bool = False) -> None:
        from rich.console import Console  # imported here because rich takes long to load
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        self._quiet = quiet
        self._console = Console(file=styled(sys.stderr))
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._progress.add_task("", left="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Print a line above the bar, unless it is quiet."""
        if not self._quiet:
            self._console.print(printable(text), highlight=False, markup=False, soft_wrap=True)

    def show(self, done: int, total: int, text: str, left: str) -> None:
        """Show how many pieces of work are done, a text before the bar, and what is left behind it."""
        self._progress.update(self._task, completed=done, total=total, description=printable(text), left=left)


class ProgressBar(Bar):
    """A bar for a series of pieces of work, of which each has a name, an incumbent and a bound.

    - `total`: number of pieces, for each of which `begin` and `finish` are called.
    - `seconds`: what all together take at most; None if that is unknown.
    """

    def __init__(self, total: int, seconds: float | None) -> None:
        super().__init__()
        self._total, self._done, self._seconds = total, 0, seconds
        self._name, self._last = "", LogEntry(0.0, None, None)
        self._begin = time.monotonic()

    def begin(self, name: str) -> Watcher:
        """Show the next piece of work by name; return a callback that shows its incumbent and bound."""
        self._name, self._last = name, LogEntry(0.0, None, None)
        self._refresh()
        return self._watch

    def finish(self, text: str, seconds_left: float | None) -> None:
        """Count the current piece of work as done, write `text` about it, and show the seconds left."""
        self._done += 1
        self._seconds, self._begin = seconds_left, time.monotonic()
        self.say(f"[{self._done}/{self._total}] {text}")
        self._refresh()

    def _watch(self, entry: LogEntry) -> None:
        self._last = entry
        self._refresh()

    def _refresh(self) -> None:
        left = ""
        if self._seconds is not None:
            seconds = max(0.0, self._seconds - (time.monotonic() - self._begin))
            left = f"at most {duration(seconds)} left"
        self.show(self._done, self._total, f"{self._name}: {_state(self._last)}", left)


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show `text`, e.g. ``explaining``, on stderr until the `with` block ends, if stderr is a terminal."""
    from rich.console import Console  # imported here because rich takes long to load

    with Console(file=styled(sys.stderr)).status(text):
        yield


_LAYOUT = "\n\t"
"""Characters of the output itself, which are not escaped."""


class _Device(FileIO):
    """The file behind a standard stream; after a write has failed, all that follows is dropped."""

    def __init__(self, number: int, may_fail: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._may_fail = may_fail
        self.failure: OSError | None = None

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]
        """Write bytes; raise a `StandardOutputError` at the first failure if this stream may fail."""
        if self.failure is None:
            try:
                return super().write(data)
            except OSError as error:
                self.failure = error
                if self._may_fail:
                    raise StandardOutputError(error) from None
        return memoryview(data).nbytes


class _Escaping(TextIOWrapper):
    """A text stream to a device that escapes what cannot be shown."""

    def __init__(self, stream: TextIOWrapper, may_fail: bool) -> None:
        self.device = _Device(stream.fileno(), may_fail)
        super().__init__(
            self.device if stream.write_through else BufferedWriter(self.device),
            encoding=stream.encoding,
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )

    def write(self, text: str, /) -> int:
        """Write a text; line breaks and tabs are the only control characters that stay."""
        super().write(printable(text, keep=_LAYOUT))
        return len(text)

    def write_styled(self, text: str) -> int:
        """Write a text with the sequences by which a terminal is coloured and the cursor is moved."""
        return super().write(text)


class _Styled:
    """A stream whose `write` lets the sequences for a terminal pass."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.write = getattr(stream, "write_styled", stream.write)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def styled(stream: TextIO) -> IO[str]:
    """Return a stream for the library rich, which writes colours and moves the cursor.

    What it prints of foreign text has to be escaped before.
    """
    return cast("IO[str]", _Styled(stream))


@contextmanager
def dependable_streams() -> Iterator[None]:
    """Change standard output and standard error as the module says, until the `with` block ends.

    Streams that are no files, such as those that a test reads, are left as they are.
    """
    with ExitStack() as stack:
        # a stream that was closed before Python began is None
        errors = sys.stderr or stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(redirect_stderr(_guarded(errors, may_fail=False)))
        stack.enter_context(redirect_stdout(_guarded(sys.stdout, may_fail=True)))
        yield


@contextmanager
def delivered_output() -> Iterator[None]:
    """Make sure that standard output has taken all that was printed within the `with` block.

    Raise a StandardOutputError if standard output is closed, and then before the block begins, so that a
    command does no work whose answer is lost; or if a write failed, whatever else has happened within the
    block.
    """
    if sys.stdout is None:
        raise StandardOutputError(OSError(errno.EBADF, "it is closed; for no output, send it to /dev/null"))
    try:
        yield
    finally:
        sys.stdout.flush()
        if isinstance(sys.stdout, _Escaping) and sys.stdout.device.failure is not None:
            raise StandardOutputError(sys.stdout.device.failure)  # a library may have swallowed the first


def _guarded(stream: TextIO, may_fail: bool) -> TextIO:
    if not isinstance(stream, TextIOWrapper) or not _is_file(stream):
        return stream
    with suppress(OSError):
        stream.flush()
    return _Escaping(stream, may_fail)


def _is_file(stream: TextIO) -> bool:
    try:
        stream.fileno()
    except UnsupportedOperation:
        return False
    return True
