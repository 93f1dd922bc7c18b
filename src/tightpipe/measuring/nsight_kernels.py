"""When the work of a range ran on the GPU, as far as a report of Nsight Systems says so.

A range of the host tells when work was launched. The table ``CUPTI_ACTIVITY_KIND_RUNTIME`` of an export has
the launches, and ``CUPTI_ACTIVITY_KIND_KERNEL`` the kernels, each with the number ``correlationId`` of its
launch. Launches of all threads of the process count, because PyTorch launches backwards in threads of their
own while the thread of the range waits. Kernels of NCCL do not count: they are messages.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Sequence

from .ranges import Range

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
