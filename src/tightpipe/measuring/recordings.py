"""Traces are read as recordings, of PyTorch's profiler or Nsight Systems, whose ranges are named.

A `Recording` has the named ranges of time of one process. A program marks a range around a piece of work, and
the range then has the times at which the CPU launched that work. Where a GPU did the work, both readers find
when it ran there instead.

**PyTorch's profiler (Kineto)** writes one JSON file per process. Ranges of ``record_function`` are of the
category ``user_annotation``. For each of them the profiler also writes a range of the category
``gpu_user_annotation`` per stream, from the first to the last kernel of the range on that stream. If a trace
has such GPU ranges, only the stream with the most of them is read, because the other streams carry messages.

**Nsight Systems** exports its reports as SQLite databases. The table ``NVTX_EVENTS`` has the ranges, with
times in nanoseconds. The name of a range is in the column ``text``, or in the table ``StringIds`` under the
range's ``textId``. ``globalTid`` has the number of the process in the 24 bits above the lowest 24. Launches
and kernels say when the work ran. Launches of all threads of the process count, because PyTorch launches
backwards in threads of their own while the thread of the range waits. Kernels of NCCL do not count: they are
messages.

**Names** say which operation of the pipeline ran in a range: ``tightpipe <operation>``, which tightpipe's own
runtime records and other runtimes should record; ``PP:<action>``, which PyTorch's pipeline runtime records by
itself; and names that patterns describe. In PyTorch's actions I is the gradient of the input, which is B
here, and B is both gradients, which is BW here.
"""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ..base.errors import InputError, about_file
from ..base.files import STANDARD
from ..model.operation import COMPUTES, Operation, OpKind
from ..runtime.profile_table import Profile, Samples, make_profile
from ..runtime.training_logs import EVENTS, opened, trace_entries
from .megatron_timers import MARK

_OWN = "tightpipe "
_ACTION = re.compile(r"PP:(\d{1,9})([FIBW])(\d{1,9})", re.ASCII)
_MESSAGE = re.compile(r"PP:\d{1,9}(?:SEND|RECV)_[FB]\d{1,9}", re.ASCII)
_KIND_OF = {"F": OpKind.F, "I": OpKind.B, "B": OpKind.BW, "W": OpKind.W}
_GROUPS = ("stage", "chunk", "microbatch")
_COMM = "COMM"
_MOST_DIGITS = 9


class Named(NamedTuple):
    """What the name of a range says; an entry is None where the name does not say it.

    `waits` tells whether the range may begin before the operation's input has arrived. `kind` is None for a
    range in which messages are sent or received.
    """

    kind: OpKind | None
    stage: int | None
    chunk: int | None
    microbatch: int | None
    waits: bool


Reader = Callable[[str], Named | None]
"""A function that returns what the name of a range says; None if it says nothing about the pipeline."""


def reader_of(patterns: Iterable[str]) -> Reader:
    """Return the reader of names that match one of the patterns, or without any, of the two known forms.

    Raise an InputError if a pattern is no ``<F|B|W|BW|COMM>:<regular expression>``, or has another group.
    """
    parsed = list(map(_parsed, patterns))
    return (lambda name: _by_patterns(parsed, name)) if parsed else _by_form


_Pattern = tuple[OpKind | None, re.Pattern[str]]


def _parsed(text: str) -> _Pattern:
    kind, colon, expression = text.partition(":")
    if not colon or kind not in (*(one.name for one in COMPUTES), _COMM):
        rule = r"must be <F|B|W|BW|COMM>:<regular expression>, e.g. F:forward (?P<microbatch>\d+)"
        raise InputError(rule, key="pattern", value=text)
    try:
        regex = re.compile(expression, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"not a regular expression: {error}", key="pattern", value=text) from None
    for group in regex.groupindex:
        if group not in _GROUPS:
            raise InputError(f"known groups are {', '.join(_GROUPS)}", key="pattern", value=group)
    return None if kind == _COMM else OpKind[kind], regex


def _by_patterns(patterns: Iterable[_Pattern], name: str) -> Named | None:
    for kind, regex in patterns:
        if match := regex.search(name):
            numbers = {key: _digits(key, text) for key, text in match.groupdict().items() if text is not None}
            stage, chunk, microbatch = map(numbers.get, _GROUPS)
            return Named(kind, stage, chunk, microbatch, False)
    return None


def _digits(key: str, text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise InputError(f"the group {key} must match a number from 0", key="pattern", value=text)
    return int(text)


def _by_form(name: str) -> Named | None:
    if name.startswith(_OWN):
        try:
            kind, stage, microbatch = Operation.parse(name.removeprefix(_OWN))
        except InputError:
            return None
        return Named(kind, stage, None, microbatch, False)
    if match := _ACTION.fullmatch(name):
        return Named(_KIND_OF[match[2]], int(match[1]), None, int(match[3]), True)
    return Named(None, None, None, None, False) if _MESSAGE.fullmatch(name) else None


Wanted = Callable[[str], object]
"""Function that returns a true value if ranges of a name are needed; readers drop all others."""


class Range(NamedTuple):
    """A named interval of a process's time, in nanoseconds of its own clock."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Recording:
    """The ranges that one process has recorded."""

    source: str  #: name of the file, with the process if the file has several; for the texts of errors
    ranges: tuple[Range, ...]  #: the ranges of the wanted names, in any sequence
    rank: int | None = None  #: rank of the process in its job; None if the file does not have it


_ON_GPU = "gpu_user_annotation"
_LAST_MICROSECOND = 2e15  # microseconds, 63 years; traces count from 1970 or later


def read_kineto(path: str | Path, wanted: Wanted) -> Recording:
    """Return the recording of a trace, which may be compressed by gzip."""
    by_gpu_stream: dict[str, list[Range]] = defaultdict(list)
    on_host: list[Range] = []
    rest: dict[str, Any] = {}
    with about_file(path):
        for key, entry in trace_entries(path):
            if key != EVENTS:
                rest[key] = entry
            elif _is_range(entry) and wanted(entry["name"]):
                of_gpu = entry.get("cat") == _ON_GPU
                stream = by_gpu_stream[f"{entry.get('pid')} {entry.get('tid')}"] if of_gpu else on_host
                stream.append(_range(entry))
    ranges = max(by_gpu_stream.values(), key=len) if by_gpu_stream else on_host
    return Recording(str(path), tuple(_later(ranges, rest.get("baseTimeNanoseconds"))), _rank(rest))


def _is_range(event: Any) -> bool:
    return isinstance(event, dict) and event.get("ph") == "X" and isinstance(event.get("name"), str)


def _range(event: dict[str, Any]) -> Range:
    start, took = (_number(event, key) for key in ("ts", "dur"))
    return Range(event["name"], start, start + took)


def _number(event: dict[str, Any], key: str) -> int:
    """Return the time `key` of an event in nanoseconds; traces have microseconds, as numbers or as texts."""
    value = event.get(key)
    try:
        if isinstance(value, bool) or not 0 <= (number := float(value)) < _LAST_MICROSECOND:  # type: ignore[arg-type]
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        rule = "must be a number of microseconds, at least 0"
        raise InputError(rule, key=f"{event['name']}.{key}", value=value) from None
    return round(number * 1000)


def _later(ranges: list[Range], base: Any) -> list[Range]:
    """Return the ranges with `base` added to their times; unchanged if `base` is no number of nanoseconds."""
    if not isinstance(base, int) or not 0 <= base < 1 << 61:
        return ranges
    return [Range(name, base + start, base + end) for name, start, end in ranges]


def _rank(rest: dict[str, Any]) -> int | None:
    job = rest.get("distributedInfo")
    rank = job.get("rank") if isinstance(job, dict) else None
    return rank if isinstance(rank, int) and rank >= 0 else None


_WAITS = (
    "a range includes the wait for its receive: times are those of the shortest of all microbatches, and too "
    "long where every one of them waited"
)


def read_chrome_trace(*paths: str | Path, comm: int | None = None) -> Profile:
    """Return the profile of traces of PyTorch's profiler (2.9 and later), one file per rank.

    Durations come from the ranges ``PP:<action>`` of PyTorch's pipeline runtime. A range includes the wait
    for its receive, so the shortest one over all microbatches counts. An F without a backward after it does
    not count: it belongs to a validation pass, whose forwards are shorter. At stage 0 the whole backward is a
    W. Traces have neither communication times nor memory, as the warnings of the profile say: communication
    takes `comm` microseconds, or 0 if it is None, and memory is None.

    Raise an InputError if a file is no trace, or a stage has no range of some kind; the message lists the
    missing ones. Where all backwards but those of stage 0 are fused, there are no ranges of B and W alone.
    """
    samples: Samples = {}
    actions = [action for path in paths for action in _actions(path)]
    for kind, stage, took, trained in actions:
        if trained:
            name = "W" if (kind, stage) == (OpKind.BW, 0) else kind.name
            nothing = (kind, stage) == (OpKind.B, 0)  # in PyTorch, the B of stage 0 does nothing
            samples.setdefault((stage, name), []).append(0.0 if nothing else took)
    if (0, "W") in samples:
        samples[0, "B"] = [0.0]
    where = ", ".join(map(str, paths))
    if not actions:
        raise InputError(
            "has no ranges PP:<stage><F|I|B|W><microbatch>; record with torch.profiler", source=where
        )
    try:
        profile = make_profile(samples, {}, comm)
    except InputError as error:
        fused = any(stage and kind is OpKind.BW for kind, stage, *_ in actions)
        hint = "; its backwards are fused: record a schedule that splits I and W" if fused else ""
        raise InputError(f"{error.rule}{hint}", source=where) from None
    return replace(profile, warnings=(*profile.warnings, _WAITS))


def _actions(path: str | Path) -> Iterator[tuple[OpKind, int, float, bool]]:
    """Yield kind, stage and microseconds of each action of a trace, and False for an F without a backward."""
    by_microbatch: dict[tuple[int, int], list[tuple[OpKind, float]]] = defaultdict(list)
    recording, read = read_kineto(path, lambda name: name.startswith("PP:")), reader_of(())
    for ranged in sorted(recording.ranges, key=attrgetter("start")):
        named = read(ranged.name)
        if named and named.kind is not None and named.stage is not None and named.microbatch is not None:
            took = (ranged.end - ranged.start) / 1000
            by_microbatch[named.stage, named.microbatch].append((named.kind, took))
    for (stage, _), ran in by_microbatch.items():
        kinds = [kind for kind, _ in ran]
        for (kind, took), following in zip(ran, [*kinds[1:], OpKind.F], strict=True):
            yield kind, stage, took, (kind, following) != (OpKind.F, OpKind.F)


_LAUNCHES, _KERNELS = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"
_NEEDED = {
    _LAUNCHES: {"start", "globalTid", "correlationId"},
    _KERNELS: {"start", "end", "globalPid", "correlationId", "shortName"},
    "StringIds": {"id", "value"},
}
_QUERY = f"""
    SELECT CAST(launch.start AS INTEGER), CAST(kernel.start AS INTEGER), CAST(kernel.end AS INTEGER)
    FROM {_LAUNCHES} launch
    JOIN {_KERNELS} kernel ON kernel.correlationId = launch.correlationId
        AND kernel.globalPid >> 24 = launch.globalTid >> 24
    LEFT JOIN StringIds name ON name.id = kernel.shortName
    WHERE launch.globalTid >> 24 & 0xFFFFFF = ? AND coalesce(name.value, '') NOT LIKE 'nccl%'
        AND launch.start IS NOT NULL AND kernel.start BETWEEN 0 AND kernel.end AND kernel.end < 1 << 61
"""


def has_kernels(report: sqlite3.Connection) -> bool:
    """Return whether a report has the tables of launches and kernels, with all columns that are needed."""
    return all(
        needed <= {row[1] for row in report.execute(f"PRAGMA table_info({table})")}
        for table, needed in _NEEDED.items()
    )


def on_gpu(report: sqlite3.Connection, process: int, ranges: Sequence[Range]) -> list[Range]:
    """Return the ranges of a process, timed from the start of their first kernel to the end of their last.

    A range in which no kernel was launched keeps the times of the host, which has the same clock.
    """
    by_start = sorted(ranges, key=lambda ranged: ranged.start)
    starts = [ranged.start for ranged in by_start]
    ran: dict[int, tuple[int, int]] = {}
    for launched, start, end in report.execute(_QUERY, (process,)):
        k = bisect_right(starts, launched) - 1
        if k >= 0 and launched <= by_start[k].end:
            first, last = ran.get(k, (start, end))
            ran[k] = min(first, start), max(last, end)
    return [Range(ranged.name, *ran.get(k, ranged[1:])) for k, ranged in enumerate(by_start)]


_EVENTS = "NVTX_EVENTS"
_COLUMNS = ("start", "end", "text", "textId", "globalTid")
_THREAD_BITS, _PROCESS_MASK = 24, 0xFFFFFF
_LAST_NANOSECOND = 1 << 61


def read_nsight(path: str | Path, wanted: Wanted) -> list[Recording]:
    """Return one recording for each process that has wanted ranges in an exported report."""
    processes: dict[int, list[Range]] = defaultdict(list)
    with about_file(path):
        file = f"file:{quote(str(Path(path).resolve()))}?mode=ro"
        try:
            with closing(sqlite3.connect(file, uri=True)) as report:
                report.text_factory = lambda raw: raw.decode(errors="replace")
                for name, start, end, thread in _rows(report):
                    if isinstance(name, str) and wanted(name):
                        process = thread >> _THREAD_BITS & _PROCESS_MASK if isinstance(thread, int) else 0
                        processes[process].append(Range(name, *_times(name, start, end)))
                if has_kernels(report):
                    processes = {number: on_gpu(report, number, found) for number, found in processes.items()}
        except (sqlite3.Error, UnicodeDecodeError) as error:  # sqlite3 cannot decode a message
            raise InputError(f"not an SQLite export of Nsight Systems, or damaged: {error}") from None
    several = len(processes) > 1
    return [
        Recording(f"{path} (process {process})" if several else str(path), tuple(ranges))
        for process, ranges in sorted(processes.items())
    ]


def _rows(report: sqlite3.Connection) -> Iterator[tuple[object, ...]]:
    """Yield name, start, end and thread of each row with an end; a row without an end is a marker."""
    columns = {row[1] for row in report.execute(f"PRAGMA table_info({_EVENTS})")}
    if not columns:
        raise InputError(
            "has no NVTX ranges (no table NVTX_EVENTS); record with nsys profile --trace=cuda,nvtx, and "
            "export with nsys export --type sqlite"
        )
    missing = [name for name in _COLUMNS if name not in columns - {"textId"} and name != "textId"]
    if missing:
        raise InputError("the table NVTX_EVENTS lacks this column", key=missing[0])
    name, join = "e.text", ""
    if "textId" in columns and report.execute("PRAGMA table_info(StringIds)").fetchone():
        name, join = "coalesce(e.text, s.value)", "LEFT JOIN StringIds s ON s.id = e.textId"
    yield from report.execute(
        f"SELECT {name}, e.start, e.end, e.globalTid FROM {_EVENTS} e {join} WHERE e.end IS NOT NULL"
    )


def _times(name: str, start: object, end: object) -> tuple[int, int]:
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start <= end < _LAST_NANOSECOND:
        raise InputError("start and end must be nanoseconds, at least 0", key=name, value=(start, end))
    return start, end


_SQLITE = b"SQLite format 3\0"  # the first bytes of an SQLite file
_SUFFIXES = (".json", ".json.gz", ".sqlite")
_PIECE = 1 << 20  # characters of a file by which it is recognised
_TRACE = re.compile(r"\s*(?:\{|\[\s*[\[{\]])|SQLite format 3")
"""How traces begin; a log may begin with ``[`` too, as in ``[rank0]:``."""


def read_recordings(paths: Sequence[str | Path], wanted: Wanted) -> list[Recording]:
    """Return the recordings of all processes from traces of Kineto (JSON) or Nsight (SQLite), also mixed."""
    recordings: list[Recording] = []
    seen: set[Path] = set()
    for path in files_of(paths):
        if path != STANDARD and (real := Path(path).resolve()) in seen:
            raise InputError("is named twice; give one trace of each rank", source=str(real))
        seen.add(Path(path).resolve())
        if _begins_with(path, _SQLITE):
            recordings += read_nsight(path, wanted)
        else:
            recordings.append(read_kineto(path, wanted))
    if not recordings:
        raise InputError("no range says which operation ran", source=", ".join(map(str, paths)))
    return recordings


def files_of(paths: Sequence[str | Path]) -> list[str | Path]:
    """Return the files that are traces: a folder stands for all traces in it, sorted by name."""
    files: list[str | Path] = []
    for path in paths:
        if path == STANDARD or not Path(path).is_dir():
            files.append(path)
            continue
        inside = sorted(file for file in Path(path).iterdir() if file.name.endswith(_SUFFIXES))
        if not inside:
            raise InputError(f"the folder has no traces ({', '.join(_SUFFIXES)})", source=str(path))
        files += inside
    return files


def is_timer_log(path: str | Path) -> bool:
    """Return whether a file is a log with timers of Megatron-LM; False if it cannot be read."""
    try:
        if not Path(path).is_file():
            return False
        with opened(path) as log:
            begin = log.read(_PIECE)
            return not _TRACE.match(begin) and MARK in begin + log.read()
    except (OSError, InputError):
        return False


def _begins_with(path: str | Path, content: bytes) -> bool:
    """Return whether a file begins with these bytes; False if it cannot be read, which its reader reports."""
    try:
        if not Path(path).is_file():
            return False
        with open(path, "rb") as stream:
            return stream.read(len(content)) == content
    except OSError:
        return False
