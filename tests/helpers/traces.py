"""Small traces whose measurement is computed by hand, in each of the formats.

One step of 1F1B on two devices with two microbatches; all times in microseconds. BW1.1 takes 26 where BW1.0 took
20, so that the median is 23.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Times = Mapping[str, tuple[float, float]]
Ranges = Times | Sequence[tuple[str, tuple[float, float]]]
"""Names with start and end; pairs where a name occurs several times."""

STEP: tuple[Times, Times] = (
    {"F0.0": (0, 10), "F0.1": (10, 20), "BW0.0": (50, 70), "BW0.1": (80, 100)},
    {"F1.0": (12, 22), "BW1.0": (22, 42), "F1.1": (42, 52), "BW1.1": (52, 78)},
)
BEGIN = 5000.0


def moved(times: Times, by: float) -> dict[str, tuple[float, float]]:
    return {name: (start + by, end + by) for name, (start, end) in times.items()}


def pairs(ranges: Ranges) -> Iterable[tuple[str, tuple[float, float]]]:
    return ranges.items() if isinstance(ranges, Mapping) else ranges


def kineto(
    times: Ranges, *, rank: int | None = None, begin: float = BEGIN, prefix: str = "tightpipe "
) -> dict[str, Any]:
    """A trace with these ranges, and with what else real ones have."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "ts": begin, "pid": 1, "tid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": begin, "dur": 1, "args": {"x": float("nan")}},
    ]
    events += [
        {"ph": "X", "cat": "user_annotation", "name": prefix + name, "ts": begin + start, "dur": end - start}
        for name, (start, end) in pairs(times)
    ]
    job = {} if rank is None else {"distributedInfo": {"backend": "gloo", "rank": rank}}
    return {"schemaVersion": 1, **job, "traceEvents": events, "traceName": "trace.json"}


def write_kineto(folder: Path, step: Iterable[Ranges] = STEP, **options: Any) -> list[Path]:
    paths = []
    for rank, times in enumerate(step):
        paths.append(folder / f"rank{rank}.json")
        paths[-1].write_text(json.dumps(kineto(times, rank=rank, **options)))
    return paths


def write_nsight(path: Path, step: Iterable[Ranges] = STEP, *, text_ids: bool = False) -> Path:
    """One exported report with a process for each device."""
    with sqlite3.connect(path) as report:
        report.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        report.execute(
            "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER,"
            " globalTid INTEGER)"
        )
        number = 0
        for device, times in enumerate(step):
            thread = (7 + device) << 24 | 99
            report.execute("INSERT INTO NVTX_EVENTS VALUES (1, NULL, 34, 'a marker', NULL, ?)", (thread,))
            for name, (start, end) in pairs(times):
                number += 1
                full, text_id = f"tightpipe {name}", number
                report.execute("INSERT INTO StringIds VALUES (?, ?)", (text_id, full))
                said = (None, text_id) if text_ids else (full, None)
                report.execute(
                    "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, ?)",
                    (round(start * 1000), round(end * 1000), *said, thread),
                )
    report.close()
    return path


def add_kernels(path: Path, step: Iterable[Times] = STEP, *, hosts: float) -> None:
    """Let the ranges of a report be the launches of kernels that run at the times of the step.

    Launches take the times of the step multiplied by `hosts`, and each has a kernel of NCCL beside its own.
    """
    with sqlite3.connect(path) as report:
        report.execute("UPDATE NVTX_EVENTS SET start = start * ?, end = end * ?", (hosts, hosts))
        report.execute("UPDATE NVTX_EVENTS SET start = CAST(start AS INTEGER), end = CAST(end AS INTEGER)")
        report.execute("INSERT INTO StringIds VALUES (900, 'gemm'), (901, 'ncclDevKernel_SendRecv')")
        runtime = (
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT)"
        )
        kernels = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, correlationId INT, globalPid INT, shortName INT)"
        report.execute(runtime)
        report.execute(kernels)
        for device, times in enumerate(step):
            process = (7 + device) << 24
            for number, (start, end) in enumerate(times.values()):  # both processes count from 0
                launched, middle = round((start + end) * 500 * hosts), round((start + end) * 500)
                report.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?)",
                    (launched, launched + 1, process | 5, number),
                )
                for name, begin, stop in (
                    (900, round(start * 1000), middle),
                    (900, middle, round(end * 1000)),
                    (901, 0, 10**6),
                ):
                    row = (begin, stop, number, process, name)
                    report.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)", row)
    report.close()


ZERO_BUBBLE_RECORD = """rank 2 Performing ILP with: f=([29718, 29700], [29750, 29760]),
 b=([29444, 29440], [29430, 29420]),
 w=([19927, 19930], [19940, 19950]),
 c=527.4,
 f_mem=([296.0, 296.0], [296.0, 296.0]),
 b_mem=([-168.0, -168.0], [-168.0, -168.0]),
 w_mem=([-128.0, -128.0], [-128.0, -128.0]),
 mem_limit=(1500.5, 1500.5)
"""

TIMERS = """ [2024-01-01 00:00:00] iteration 1/ 10 | elapsed time per iteration (ms): 99.0 |
times across ranks (ms):
  forward-backward:
     rank  0: 900.00
     rank  1: 900.00
  forward-compute:
     rank  0: 400.00
     rank  1: 400.00
  backward-compute:
     rank  0: 400.00
     rank  1: 400.00
 iteration 2/ 10 | elapsed time per iteration (ms): 99.0 |
times across ranks (ms):
  forward-backward:
     rank  0: 100.00
     rank  1: 100.00
  forward-compute:
     rank  0: 20.00
     rank  1: 24.00
  backward-compute:
     rank  0: 40.00
     rank  1: 46.00
  forward-recv:
     rank  1: 12.50
  backward-recv:
     rank  0: 30.00
  optimizer:
     rank  0: 7.00
"""
