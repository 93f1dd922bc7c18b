"""Recordings are read from the traces of PyTorch's profiler (Kineto), one file per process.

Ranges of ``record_function`` are of the category ``user_annotation``. With a GPU, they say when the CPU
launched the work, not when it ran. For each of them the profiler then also writes a range of the category
``gpu_user_annotation`` per stream, from the first to the last kernel of the range on that stream. If a trace
has such GPU ranges, only the stream with the most of them is read, because the other streams carry messages.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..runtime.trace_events import EVENTS, trace_entries
from .ranges import Range, Recording, Wanted

_ON_GPU = "gpu_user_annotation"
_LARGEST = 2e15  # microseconds, 63 years; traces count from 1970 or later


def read_kineto(path: str | Path, wanted: Wanted) -> Recording:
    """Return the recording of a trace, which may be compressed by gzip.

    Raises
    ------
    InputError
        If the file is no trace, or a wanted range has no numbers as its time and duration.
    """
    on_gpu: dict[str, list[Range]] = defaultdict(list)
    on_host: list[Range] = []
    rest: dict[str, Any] = {}
    for key, entry in trace_entries(path):
        if key != EVENTS:
            rest[key] = entry
        elif _is_range(entry) and wanted(entry["name"]):
            if entry.get("cat") == _ON_GPU:
                on_gpu[f"{entry.get('pid')} {entry.get('tid')}"].append(_range(entry, path))
            else:
                on_host.append(_range(entry, path))
    ranges = max(on_gpu.values(), key=len) if on_gpu else on_host
    return Recording(str(path), tuple(_later(ranges, rest.get("baseTimeNanoseconds"))), _rank(rest))


def _is_range(event: Any) -> bool:
    return isinstance(event, dict) and event.get("ph") == "X" and isinstance(event.get("name"), str)


def _range(event: dict[str, Any], path: str | Path) -> Range:
    start, took = (_number(event, key, path) for key in ("ts", "dur"))
    return Range(event["name"], start, start + took)


def _number(event: dict[str, Any], key: str, path: str | Path) -> int:
    """Return the time `key` of an event in nanoseconds; traces have microseconds, as numbers or as texts."""
    value = event.get(key)
    try:
        if isinstance(value, bool) or not 0 <= (number := float(value)) < _LARGEST:  # type: ignore[arg-type]
            raise ValueError
    except (TypeError, ValueError):
        rule = "must be a number of microseconds, at least 0"
        raise InputError(rule, key=f"{event['name']}.{key}", value=value, source=str(path)) from None
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
