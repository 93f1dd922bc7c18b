"""This module chooses the columns of the summary table, and says how their values are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .entry import Entry, Value

_RATES = ("bubble_rate", "imbalance", "gap")
_NEVER = (  # these identify a row, repeat another column, or stand in the page's line of conditions
    *("key", "instance_hash", "trace", "state", "attempts", "finished_at", "host", "cores", "threads"),
    *("comm_ticks", "memory_limit", "work", "bubble"),
    *("engine", "ortools_version", "python_version"),
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    `key` is the key of its values in `Entry.values`. `kind` is ``text``, ``number`` or ``rate``: how the page
    writes the values.
    """

    key: str
    title: str
    kind: str


def split_columns(entries: Sequence[Entry]) -> tuple[list[Column], list[tuple[str, str]]]:
    """Return the columns in which entries differ, and what the entries have in common.

    Columns that only identify a row or repeat another column are left out.

    Returns
    -------
    list of Column
        The columns in which entries differ; if there is only one entry, all columns.
    list of tuple
        The title and the text of each column in which all of several entries have the same value, unless
        this value is None or empty.
    """
    keys = [key for key in (entries[0].values if entries else {}) if key not in _NEVER]
    shown: list[Column] = []
    same: list[tuple[str, str]] = []
    for key in keys:
        values = [entry.values.get(key) for entry in entries]
        if len(entries) == 1 or len(set(values)) > 1:
            shown.append(Column(key, key.replace("_", " "), _kind(key, values)))
        elif values[0] not in (None, ""):
            same.append((key.replace("_", " "), _text(key, values[0])))
    return shown, same


def _text(key: str, value: Value) -> str:
    """Return a value as the page's script `format.js` writes it in the table; a rate becomes a percentage."""
    if isinstance(value, float):
        return f"{100 * value:.2f} %" if key in _RATES else f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _kind(key: str, values: Sequence[Value]) -> str:
    known = [value for value in values if value is not None]
    numbers = bool(known) and all(isinstance(value, int | float) for value in known)
    if not numbers:
        return "text"
    return "rate" if key in _RATES else "number"
