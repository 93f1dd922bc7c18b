"""The library as tables in Markdown, as docs/library.md shows it: first open problems, then all instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from ..core.activations import memory_of_1f1b
from ..core.operation import OpKind
from ..core.tables import markdown_text
from .record import Record, State

_LARGE = 24  # devices
_SCARCE = 1.25 / 2  # as a share of the memory of 1F1B, which is 2p activations in the V placement
COLUMNS = ("instance", "p", "n", "memory / 1F1B", "cost", "bound", "gap", "status", "difficulty", "found by")
"""Heads of the columns that `row_of` fills."""


def row_of(record: Record) -> tuple[object, ...]:
    """Return the cells of the row of an instance; a value that is unknown or does not apply is None."""
    memory, cost = memory_of_1f1b(record.instance), record.cost
    return (
        *(record.id, record.instance.devices, record.instance.microbatches),
        None if memory is None else f"{memory:.3g}",
        *(None if cost is None else cost.value, record.bound.value, percent(record.gap)),
        *(record.state.value, None if record.state is State.OPEN else record.difficulty.value),
        None if cost is None else f"{cost.method}, {cost.by}",
    )


def percent(share: float | None) -> str | None:
    """Return a share as a text in per cent; None stays None."""
    return None if share is None else f"{share:.4%}"


def markdown(records: Sequence[Record]) -> str:
    """Return the tables: open problems by group, counts by family and status, and all instances."""
    parts = ["## Open problems", *_open_problems(records), "## All instances", _counts(records)]
    for family in _families(records):
        mine = [record for record in records if record.family == family]
        parts += [f"### {family.capitalize()}", _table(mine)]
    return "\n\n".join(parts) + "\n"


def _open_problems(records: Sequence[Record]) -> list[str]:
    left, parts = [record for record in records if record.state is State.OPEN], list[str]()
    for title, belongs in _GROUPS.items():
        mine = sorted(filter(belongs, left), key=lambda record: -(record.gap or 0.0))
        left = [record for record in left if record not in mine]
        if mine:
            parts += [f"### {title}", _table(mine)]
    return parts


def _slow_backward(record: Record) -> bool:
    memory = memory_of_1f1b(record.instance)
    slow = record.instance.duration(OpKind.B, 0) > record.instance.duration(OpKind.F, 0)
    large = record.family == "published" and record.instance.devices >= _LARGE
    return large and slow and memory is not None and memory >= 1


def _little_memory(record: Record) -> bool:
    memory = memory_of_1f1b(record.instance)
    return record.family in ("published", "frontier") and memory is not None and memory < _SCARCE


_GROUPS: dict[str, Callable[[Record], bool]] = {
    "B longer than F on 24 and 32 devices, at 2p and 3p": _slow_backward,
    "Below 1.25p activations": _little_memory,
    "Others": lambda record: True,
}
"""The groups of open problems by title, each with a function that says whether a record fits the group.

A record belongs to the first group that it fits.
"""


def _families(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(record.family for record in records))


def _counts(records: Sequence[Record]) -> str:
    """Return a table of how many instances of each family have each status."""
    states = list(reversed(State))
    pairs = [(record.family, record.state) for record in records]
    rows = [(name, *(pairs.count((name, s)) for s in states)) for name in _families(records)]
    total = ("all", *(sum(record.state is s for record in records) for s in states))
    return markdown_text(["family", *(s.value for s in states)], [*rows, total], ["family"])


def _table(records: Sequence[Record]) -> str:
    rows = [[_cell(value) for value in row_of(record)] for record in records]
    return markdown_text(COLUMNS, rows, COLUMNS)


def _cell(value: object) -> str:
    """Return the text of a cell, escaped so that names in it cannot end the cell or begin an HTML tag."""
    return "-" if value is None else escape(str(value)).replace("|", "&vert;")
