"""Which columns the summary table shows, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .entry import Entry, Value

_RATES = ("bubble_rate", "imbalance", "gap")
_NEVER = (  # what identifies a row, stands in another column too, or is the page's line of conditions
    *("key", "instance_hash", "trace", "state", "attempts", "finished_at", "host", "cores", "threads"),
    *("comm_ticks", "memory_limit", "work", "bubble"),
    *("tightpipe_version", "ortools_version", "python_version"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in the entries' values, and how its values are written: text, number or rate."""

    key: str
    title: str
    kind: str


def split_columns(entries: Sequence[Entry]) -> tuple[list[Column], list[tuple[str, Value]]]:
    """Return the columns in which entries differ, and name and value of those that are the same in all."""
    keys = [key for key in (entries[0].values if entries else {}) if key not in _NEVER]
    shown: list[Column] = []
    same: list[tuple[str, Value]] = []
    for key in keys:
        values = [entry.values.get(key) for entry in entries]
        if len(entries) == 1 or len(set(values)) > 1:
            shown.append(Column(key, key.replace("_", " "), _kind(key, values)))
        elif values[0] not in (None, ""):
            same.append((key.replace("_", " "), values[0]))
    return shown, same


def _kind(key: str, values: Sequence[Value]) -> str:
    known = [value for value in values if value is not None]
    numbers = bool(known) and all(isinstance(value, int | float) for value in known)
    if not numbers:
        return "text"
    return "rate" if key in _RATES else "number"
