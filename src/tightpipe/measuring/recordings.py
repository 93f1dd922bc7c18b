"""Traces are recognised by their content and read as recordings: of PyTorch's profiler or Nsight Systems.

A `Recording` has the named ranges of time of one process. A program marks a range around a piece of work, and
the range then has the times at which the CPU launched that work. Where a GPU did the work, both readers find
when it ran there instead.

**PyTorch's profiler (Kineto)** writes one JSON file per process. Ranges of ``record_function`` are of the
category ``user_annotation``. For each of them the profiler also writes a range of the category
``gpu_user_annotation`` per stream, from the first to the last kernel of the range on that stream. If a trace
has such GPU ranges, only the stream with the most of them is read, because the other streams carry messages.

**Nsight Systems** exports its reports as SQLite databases. The table ``NVTX_EVENTS`` has the ranges, with
times in nanoseconds. The name of a range is in the column ``text``, or in the table ``StringIds`` under the
range's ``textId``. ``globalTid`` has the number of the process in the 24 bits above the lowest 24. To find
when the work ran, the table ``CUPTI_ACTIVITY_KIND_RUNTIME`` has the launches and
``CUPTI_ACTIVITY_KIND_KERNEL`` the kernels, each with the number ``correlationId`` of its launch. Launches of
all threads of the process count, because PyTorch launches backwards in threads of their own while the thread
of the range waits. Kernels of NCCL do not count: they are messages.
"""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ..base.errors import InputError, about_file
from ..base.files import STANDARD
from ..model.operation import OpKind
from ..runtime.profile_table import Profile, Samples, make_profile
from ..runtime.training_logs import EVENTS, opened, trace_entries
from .megatron_timers import MARK
from .names import reader_of

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
    """Return the recording of a trace, which may be compressed by gzip.

    Raise an InputError if the file is no trace, or a wanted range has no numbers as its time and duration.
    """
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
    except (TypeError, ValueError):
        rule = "must be a number of microseconds, at least 0"
        raise InputError(rule, key=f"{event['name']}.{key}", value=value) from None
    return round(number * 1000)


def _later(ranges: list[Range], base: Any) -> list[Range]:
    """Return the ranges with `base` added to their times; unchanged if `base` is no number of nanoseconds.

    Each trace counts its times from a base of its own. With the base added, the times of all traces count
    from the same moment.
    """
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

    Raises
    ------
    InputError
        If a file is no trace, or a stage has no range of some kind; the message lists the missing ones. Where
        all backwards but those of stage 0 are fused, there are no ranges of B and W alone.
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
    """Return one recording for each process that has wanted ranges in an exported report.

    Raise an InputError if the file is damaged, or has no table of NVTX ranges.
    """
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
_PIECE = 1 << 20  # characters of a log that are searched for timers at a time
_TRACE = re.compile(r"\s*(?:\{|\[\s*[\[{\]])|SQLite format 3")
"""How traces begin; a log may begin with ``[`` too, as in ``[rank0]:``."""


def read_recordings(paths: Sequence[str | Path], wanted: Wanted) -> list[Recording]:
    """Return the recordings of all processes from traces of Kineto (JSON) or Nsight (SQLite), also mixed.

    Raise an InputError if a trace cannot be read, is damaged or is named twice, or if there are no
    recordings.
    """
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
    """Return whether a file is a log with timers of Megatron-LM, wherever in the log they begin.

    Files that begin like a trace are no logs. No error is raised if the file cannot be read, because its
    reader raises one that says what is wrong.
    """
    try:
        if not Path(path).is_file():
            return False
        with opened(path) as log:
            piece = log.read(_PIECE)
            if _TRACE.match(piece):
                return False
            while MARK not in piece:
                more = log.read(_PIECE)
                if not more:
                    return False
                piece = piece[-len(MARK) :] + more
            return True
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
