"""Recordings are read from reports of Nsight Systems that were exported as SQLite.

The export's table ``NVTX_EVENTS`` has the ranges, with times in nanoseconds. The name of a range is in
the column ``text``, or in the table ``StringIds`` under the range's ``textId``. The times are those at which
the host launched the work; `nsight_kernels` finds when the work ran. ``globalTid`` has the number of the
process in the 24 bits above the lowest 24.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from ..core.errors import InputError
from .nsight_kernels import has_kernels, on_gpu
from .ranges import Range, Recording, Wanted

_EVENTS = "NVTX_EVENTS"
_COLUMNS = ("start", "end", "text", "textId", "globalTid")
_THREAD_BITS, _PROCESS_MASK = 24, 0xFFFFFF
_LARGEST = 1 << 61


def read_nsight(path: str | Path, wanted: Wanted) -> list[Recording]:
    """Return one recording for each process that has wanted ranges in an exported report.

    Raises
    ------
    InputError
        If the file is damaged, or has no table of NVTX ranges.
    """
    processes: dict[int, list[Range]] = defaultdict(list)
    try:
        with closing(sqlite3.connect(f"file:{quote(str(Path(path).resolve()))}?mode=ro", uri=True)) as report:
            report.text_factory = lambda raw: raw.decode(errors="replace")
            for name, start, end, thread in _rows(report):
                if isinstance(name, str) and wanted(name):
                    processes[_process(thread)].append(Range(name, *_times(name, start, end)))
            if has_kernels(report):
                processes = {number: on_gpu(report, number, found) for number, found in processes.items()}
    except (sqlite3.Error, UnicodeDecodeError) as error:  # sqlite3 cannot decode a message
        rule = f"not an SQLite export of Nsight Systems, or damaged: {error}"
        raise InputError(rule, source=str(path)) from None
    except InputError as error:
        raise error.at(str(path)) from None
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
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start <= end < _LARGEST:
        raise InputError("start and end must be nanoseconds, at least 0", key=name, value=(start, end))
    return start, end


def _process(thread: object) -> int:
    return thread >> _THREAD_BITS & _PROCESS_MASK if isinstance(thread, int) else 0
