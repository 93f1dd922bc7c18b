"""Standard output takes all that a command prints, or the command fails; standard error never makes it fail.

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
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import BufferedWriter, FileIO, TextIOWrapper, UnsupportedOperation
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from ..base.errors import StandardOutputError, printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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

    Raises
    ------
    StandardOutputError
        If standard output is closed, and then before the block begins, so that a command does no work whose
        answer is lost; or if a write failed, whatever else has happened within the block.
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
