"""The events of a Chrome trace are read one after another, so that gigabytes of them take little memory.

A trace is a list of events, or an object with this list under the key ``traceEvents``. Traces of PyTorch may
have numbers that JSON lacks, such as NaN. The decoder of the standard library accepts them, while libraries
that read JSON piece by piece refuse them.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from ..base.errors import InputError
from ..base.files import STANDARD, read_bytes

EVENTS = "traceEvents"
_CHUNK = 1 << 20  # characters that are read at a time
_LONGEST = 1 << 24  # characters of one event; a longer event counts as damage
_PACKED = b"\x1f\x8b"  # the first bytes of a file that gzip has compressed
_SPACE = re.compile(r"\s*")
_NO_TRACE = "not a Chrome trace, or truncated"
_TOO_MUCH = "not a Chrome trace: nested too deeply, or with a number of thousands of digits"


def trace_entries(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a Chrome trace in the sequence of the file, which may be compressed by gzip.

    Raise an InputError if the file cannot be read, is no Chrome trace, or is truncated or damaged; some
    entries may have been yielded by then.

    Yields
    ------
    tuple of a string and a value
        The key `EVENTS` with one event at a time, and each other key of the trace with its value.
    """
    try:
        with opened(path) as stream:
            yield from _entries(_Text(stream))
    except InputError as error:
        raise (error if error.source else error.at(str(path))) from None
    except RecursionError:
        raise InputError(_TOO_MUCH, source=str(path)) from None


@contextmanager
def opened(path: str | Path) -> Iterator[TextIO]:
    """Open what training has written as text, also if gzip has compressed it.

    Bytes that are not UTF-8 become a replacement character: some names in traces have them, and so have logs
    in which the output of processes is mixed. Raise an InputError if the file cannot be read, also while it
    is read.
    """
    try:
        with BytesIO(read_bytes(path)) if path == STANDARD else open(path, "rb") as plain:
            packed = plain.read(len(_PACKED)) == _PACKED
            plain.seek(0)
            stream = gzip.GzipFile(fileobj=plain) if packed else plain
            yield TextIOWrapper(cast(BinaryIO, stream), encoding="utf-8", errors="replace")
    except FileNotFoundError:
        raise InputError("no such file", source=str(path)) from None
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {error}", source=str(path)) from None


class _Text:
    """A JSON text that is read in pieces when they are needed; what has been decoded is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._text, self._at = stream, "", 0
        self._forgotten = 0  # number of characters that were dropped
        self._decode = json.JSONDecoder().raw_decode

    def peek(self) -> str:
        """Return the next character that is no white space; the empty string at the end of the text."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_on():
                return ""

    def take(self, character: str) -> bool:
        """Go past the next character that is no white space if it is `character`; return whether it was."""
        there = self.peek() == character
        self._at += there
        return there

    def value(self) -> Any:
        """Return the next JSON value, and go past it."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                place = self._forgotten + error.pos
                if not self._read_on():
                    raise InputError(f"{_NO_TRACE}: {error.msg} at character {place:,}") from None
                continue
            except ValueError:
                raise InputError(_TOO_MUCH) from None
            if end == len(self._text) and self._read_on():
                continue  # a number may continue in the next piece
            self._at = end
            return value

    def _read_on(self) -> bool:
        """Read the next piece of the text, and drop the decoded part; return False at the end of the text."""
        self._forgotten += self._at
        self._text, self._at = self._text[self._at :], 0
        if len(self._text) > _LONGEST:
            raise InputError(f"{_NO_TRACE}: an event has more than {_LONGEST:,} characters")
        more = self._stream.read(_CHUNK)
        self._text += more
        return bool(more)


def _entries(text: _Text) -> Iterator[tuple[str, Any]]:
    if text.peek() == "":
        raise InputError(f"{_NO_TRACE}: it is empty")
    if text.peek() == "[":
        yield from ((EVENTS, event) for event in _items(text))
        return
    if not text.take("{"):
        raise InputError("must be a Chrome trace: a list of events, or traceEvents")
    has_events = False
    while not text.take("}"):
        key = text.value()
        if not isinstance(key, str) or not text.take(":"):
            raise InputError(f"{_NO_TRACE}: a key and a colon must begin each entry")
        if key == EVENTS and text.peek() == "[":
            has_events = True
            yield from ((EVENTS, event) for event in _items(text))
        else:
            yield key, text.value()
        text.take(",")
    if not has_events:
        raise InputError("must be a Chrome trace: a list of events, or traceEvents")


def _items(text: _Text) -> Iterator[Any]:
    """Yield the values of a list."""
    text.take("[")
    while not text.take("]"):
        yield text.value()
        text.take(",")
