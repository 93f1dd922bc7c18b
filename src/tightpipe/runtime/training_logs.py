"""What training has written is read: traces event by event, and records in logs, such as a profile.

A Chrome trace may have gigabytes, so its events are read one after another, by the decoder of the standard
library, which takes the numbers in traces of PyTorch that JSON lacks, such as NaN.

A record of a log is a message of several lines. A logger puts its prefix before the first line only
(``INFO:megatron.core.timers:``), a launcher its own before every line (``[default0]:`` of torchrun, ``0: ``
of srun, a time stamp), and the lines of several processes may come mixed. No list of prefixes would be
complete, so a reader describes the lines by patterns, and what stands before a match is the prefix.

A line belongs to the last record before it whose first line begins with the prefix of this line; times in
prefixes count as equal. A line for which there is no such record is astray. If a record is not whole by this
rule, all lines up to the first line of the next record belong to it.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO, cast

from ..base.errors import InputError, about_file
from ..base.files import STANDARD, read_bytes
from ..model.placement import Placement
from .profile_table import KINDS, Profile, Samples, check_time, make_profile

EVENTS = "traceEvents"
_CHUNK = 1 << 20  # characters that are read at a time
_LONGEST = 1 << 24  # characters of one event; a longer event counts as damage
_PACKED = b"\x1f\x8b"  # the first bytes of a file that gzip has compressed
_SPACE = re.compile(r"\s*")
_NO_TRACE = "not a Chrome trace, or truncated"
_TOO_MUCH = "not a Chrome trace: nested too deeply, or with a number of thousands of digits"


def trace_entries(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a Chrome trace in the sequence of the file, which may be compressed by gzip.

    An entry is the key `EVENTS` with one event at a time, or another key of the trace with its value. Some
    may have been yielded before an InputError says that the file is truncated or damaged.
    """
    try:
        with about_file(path), opened(path) as stream:
            yield from _entries(_Text(stream))
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
    text.take("[")
    while not text.take("]"):
        yield text.value()
        text.take(",")


Record = list[re.Match[str]]
"""The matches of the lines of one record, beginning with its first line."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_TIME = re.compile(
    r"(?:\s*(?:"
    r"\d{4}[-/.]\d\d[-/.]\d\d"  # a date
    r"|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?"  # a time of day
    r"|(?<![\d.])\d+\.\d+(?![\d.])"  # seconds, but not the numbers of an address
    r"|(?<!\d)\d{10,19}(?!\d)"  # seconds or parts of them since 1970
    r")[TZ]?)+",
    re.ASCII,
)
_COMPARED = 256  # characters of a prefix that count


class _Line(NamedTuple):
    """A line of a log with content: its prefix with all times masked, and the match of the content."""

    prefix: str
    content: re.Match[str]
    begins: bool


class _Group(NamedTuple):
    """A first line with what may belong to it: by the prefixes, or as what follows before the next record."""

    record: Record
    astray: Record
    following: Record


def log_records(
    text: str, first: re.Pattern[str], further: re.Pattern[str], is_whole: Callable[[Record, Record], bool]
) -> list[Record]:
    """Return the records of a log, in the sequence of their first lines.

    `first` and `further` are patterns of the content of a record's first line and of its other lines; they
    end with ``$``, and what stands before the match is the prefix. `is_whole` is given a record by prefixes
    and the lines astray before the next record, and returns whether all belong where they are.
    """
    found = []
    for group in _groups(_lines(text, first, further)):
        by_prefix = is_whole(group.record, group.astray)
        found.append(group.record if by_prefix else group.following)
    return found


def _lines(text: str, first: re.Pattern[str], further: re.Pattern[str]) -> Iterator[_Line]:
    for line in _COLOUR.sub("", text).splitlines():
        plain = line.rstrip()
        begin = first.search(plain)
        if match := begin or further.search(plain):
            prefix = _TIME.sub("#", plain[: match.start()][:_COMPARED])
            yield _Line(prefix, match, begin is not None)


def _groups(lines: Iterable[_Line]) -> list[_Group]:
    groups: list[_Group] = []
    latest: dict[str, _Group] = {}  # by each text with which the first line of a record begins
    for prefix, content, begins in lines:
        if begins:
            groups.append(_Group([content], [], [content]))
            latest |= dict.fromkeys((prefix[:k] for k in range(len(prefix) + 1)), groups[-1])
        elif groups:
            owner = latest.get(prefix.rstrip())
            (groups[-1].astray if owner is None else owner.record).append(content)
            groups[-1].following.append(content)
    return groups


_ILP = "Performing ILP with:"
_ILP_NAMES = ("f", "b", "w", "c", "f_mem", "b_mem", "w_mem", "mem_limit")
_NAMED = rf"(?<!\w)(?:{'|'.join(_ILP_NAMES)})=[^=]*"
_PAIR = re.compile(rf"(?<!\w)(?P<name>{'|'.join(_ILP_NAMES)})=(?P<text>[^=]*?)(?=,?\s*$|,\s*\w+=)")
_FIRST = re.compile(rf"{_ILP}.*$")
_FURTHER = re.compile(rf"{_NAMED}(?:,\s*{_NAMED})*$")
_KIB_PER_MB = 1024


def read_zero_bubble_log(path: str | Path, *, placement: str | None = None) -> Profile:
    """Return the profile of the last record ``Performing ILP with`` in a log of the zero-bubble runtime.

    The record has the times ``f``, ``b`` and ``w`` of the operations and ``c`` of a message, in microseconds.
    It also has the changes of memory ``f_mem``, ``b_mem`` and ``w_mem`` and the memory limits ``mem_limit``,
    which are in MB in the log and in KiB in the profile. Each value is a tuple with one entry per device, and
    an entry is a number or a list with one number per chunk; only ``c`` is a single number. Loggers and
    launchers may put anything before the lines of the record.

    `placement` determines the stage of each chunk; None means linear for one chunk and V for two chunks.

    Raise an InputError if the log has no such record, or the record lacks a value; the message names the
    value.
    """
    with about_file(path), opened(path) as log:
        return _from_record(_last_record(log.read()), placement)


def _last_record(text: str) -> dict[str, Any]:
    records = log_records(text, _FIRST, _FURTHER, lambda one, _: _texts(one).keys() == set(_ILP_NAMES))
    if not records:
        raise InputError(f"has no record '{_ILP} f=..., b=..., w=..., c=...'")
    texts = _texts(records[-1])
    return {name: _value(texts, name) for name in _ILP_NAMES}


def _texts(record: Record) -> dict[str, str]:
    """Return the text after each ``name=`` of a record, up to the next name or the end of the line."""
    found: dict[str, str] = {}
    for line in record:
        for pair in _PAIR.finditer(line[0]):
            found.setdefault(pair["name"], pair["text"].strip())
    return found


def _value(texts: dict[str, str], name: str) -> Any:
    if name not in texts:
        raise InputError(f"the record lacks {name}=", key=name)
    try:
        with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
            return ast.literal_eval(texts[name])
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise InputError("must be a number or a tuple of numbers", key=name, value=texts[name]) from None


def _from_record(record: dict[str, Any], placement: str | None) -> Profile:
    per_device = {name: _matrix(name, record[name]) for name in _ILP_NAMES if name not in ("c", "mem_limit")}
    devices, chunks = len(per_device["f"]), len(per_device["f"][0])
    placed = Placement(placement or ("linear" if chunks == 1 else "v"), devices, chunks)
    samples: Samples = {}
    memory: dict[tuple[int, str], float] = {}
    for kind in KINDS:
        times, held = per_device[kind.lower()], per_device[f"{kind.lower()}_mem"]
        for device in range(devices):
            for chunk, stage in enumerate(placed.stages_on(device)):
                took = _entry(times, device, chunk, kind.lower())
                samples[stage, kind] = [check_time(took, f"{kind.lower()} of stage {stage}")]
                memory[stage, kind] = _entry(held, device, chunk, f"{kind.lower()}_mem") * _KIB_PER_MB
    profile = make_profile(samples, memory, check_time(_scalar("c", record["c"]), "c"))
    limits = [row[0] for row in _matrix("mem_limit", record["mem_limit"])]
    whole = tuple(round(value * _KIB_PER_MB) for value in limits)
    return replace(profile, limits=whole)


def _matrix(name: str, value: Any) -> list[list[float]]:
    """Return a value of the record as one row per device, with one number per chunk."""
    rows = list(value) if isinstance(value, list | tuple) else [value]
    wide = [list(row) if isinstance(row, list | tuple) else [row] for row in rows]
    if not wide or any(not row for row in wide):
        raise InputError("must have a number for every device", key=name, value=value)
    return [[_scalar(name, number) for number in row] for row in wide]


def _entry(rows: list[list[float]], device: int, chunk: int, name: str) -> float:
    if device >= len(rows) or chunk >= len(rows[device]):
        raise InputError(f"has no value for chunk {chunk} of device {device}", key=name)
    return rows[device][chunk]


def _scalar(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e12:
        raise InputError("must be a number", key=name, value=value)
    return float(value)
