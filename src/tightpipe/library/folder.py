"""The folder of the library, one compressed file per family, and the library as tables in Markdown.

A line of the file ``<family>.json.xz`` has the record of an instance, the order of its cheapest schedule and
the certificate of its bound. `Library.put` replaces the file in one step, so that a record always has its
schedule and its certificate, even if the process ends in between. A lock keeps two processes from writing at
the same time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from html import escape
from pathlib import Path
from types import NoneType
from typing import Any

from filelock import FileLock

from ..base.data_files import check_keys, read_json
from ..base.errors import DeadlockError, InputError, about_file
from ..base.files import check_writable, write_text
from ..base.tables import markdown_text
from ..model import metrics
from ..model.instance import Instance
from ..model.instance_file import instance_to_dict
from ..model.metrics import memory_of_1f1b
from ..model.schedule import Order, Schedule
from ..model.simulate import retime
from ..model.validate import validate
from .record import Record, RefusedError, State, order_from_words, record_from_dict, words_of

_SUFFIX = ".json.xz"
_CHECKOUT = Path(__file__).resolve().parents[3]


def default_library() -> Path:
    """Return the folder ``library`` in the repository with this code, or else in the current folder."""
    ours = _CHECKOUT / "library"
    return ours if ours.is_dir() else Path("library")


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the library keeps of an instance."""

    record: Record
    order: list[str] | None  #: the words of the cheapest schedule, one text per device; None without one
    proof: dict[str, Any] | None  #: the certificate of the bound without its instance; None without one

    def line(self) -> str:
        kept = self.record.to_file() | {"order": self.order, "proof": self.proof}
        return json.dumps(kept, separators=(",", ":"))


class Library:
    """The records of a folder, with their schedules and certificates.

    Parameters
    ----------
    root
        The folder. It has a file for each family, which is a named group of instances.
    """

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise InputError("there is no library: no such folder", source=str(root))
        self._lock = FileLock(self.root / ".lock")

    def records(self) -> list[Record]:
        """Return all records, sorted by family, number of devices, number of microbatches and name.

        Raise an InputError if a file cannot be read; the message names the file, key and value, and what is
        right.
        """
        return sorted((entry.record for entry in self._entries()), key=_place)

    def record(self, id: str) -> Record:
        """Return the record of an instance by its name."""
        return self._entry(id).record

    def find(self, instance: Instance) -> Record | None:
        """Return the record whose instance equals `instance`; None if the library does not have it."""
        return next((record for record in self.records() if record.instance == instance), None)

    def path(self, record: Record) -> Path:
        """Return the path of the file that has a record."""
        return self.root / f"{record.family}{_SUFFIX}"

    def schedule(self, id: str) -> Schedule | None:
        """Return the cheapest schedule of an instance; None if no schedule is known.

        Raises
        ------
        RefusedError
            If the schedule is invalid, or does not have the cost of the record.
        InputError
            If there is no instance of this name, or if the order cannot be read.
        """
        entry = self._entry(id)
        record, source = entry.record, str(self.path(entry.record))
        if record.cost is None or entry.order is None:
            return None
        try:
            schedule = retime(record.instance, order_from_words(entry.order, record.instance))
        except (InputError, DeadlockError) as error:
            raise InputError(f"{id}: {error}", source=source) from None
        violations, cost = validate(record.instance, schedule), metrics.cost(schedule)
        if violations:
            raise RefusedError(f"{source}: {id}: the schedule is invalid: {violations[0]}")
        if cost != record.cost.value:
            raise RefusedError(f"{source}: {id}: the schedule costs {cost}, not {record.cost.value}")
        return schedule

    def certificate(self, id: str) -> dict[str, Any] | None:
        """Return the content of the certificate's file; None if the bound has no certificate."""
        entry = self._entry(id)
        if entry.proof is None:
            return None
        return entry.proof | {"instance": instance_to_dict(entry.record.instance)}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the library: wait for other processes, and keep them out until the `with` block ends."""
        check_writable(self._lock.lock_file)
        with self._lock:
            yield

    def put(
        self, record: Record, *, order: Order | None = None, certificate: dict[str, Any] | None = None
    ) -> None:
        """Write a record with the order of a new schedule or a new certificate, in place of what it replaces.

        None keeps the order or the certificate that is there, as far as the new record still has one.
        """
        with self.alone():
            path = self.path(record)
            entries = {entry.record.id: entry for entry in _read(path)} if path.exists() else {}
            entry = replace(entries.get(record.id, _Entry(record, None, None)), record=record)
            if order is not None or record.cost is None:
                entry = replace(entry, order=None if order is None else words_of(order))
            if certificate is not None or not record.certified:
                proof = certificate and {k: v for k, v in certificate.items() if k != "instance"}
                entry = replace(entry, proof=proof)
            entries[record.id] = entry
            lines = [each.line() for each in sorted(entries.values(), key=lambda each: _place(each.record))]
            write_text(path, '{"instances":[\n' + ",\n".join(lines) + "\n]}\n")

    def _entries(self) -> Iterator[_Entry]:
        for path in sorted(self.root.glob(f"*{_SUFFIX}")):
            yield from _read(path)

    def _entry(self, id: str) -> _Entry:
        for entry in self._entries():
            if entry.record.id == id:
                return entry
        raise InputError("the library has no instance of this name", key="id", value=id)


def _place(record: Record) -> tuple[str, int, int, str]:
    return record.family, record.instance.devices, record.instance.microbatches, record.id


def _read(path: Path) -> tuple[_Entry, ...]:
    """Return the entries of a family's file, which is read again only after it was replaced."""
    now = path.stat()
    return _read_once(path, now.st_mtime_ns, now.st_size, now.st_ino)


@lru_cache(32)
def _read_once(path: Path, *version: int) -> tuple[_Entry, ...]:
    with about_file(path):
        data = read_json(path)
        check_keys(data, ("instances",), ())
        if not isinstance(data["instances"], list):
            raise InputError("must be a list of records", key="instances", value=data["instances"])
        family = path.name.removesuffix(_SUFFIX)
        return tuple(_entry_of(entry, family, k) for k, entry in enumerate(data["instances"]))


def _entry_of(data: Any, family: str, number: int) -> _Entry:
    try:
        record = record_from_dict(data, ("order", "proof"))
        _check_parts(record, family, data)
    except InputError as error:
        key = f"instances[{number}].{error.key}".rstrip(".")
        raise InputError(error.rule, key=key, value=error.value) from None
    return _Entry(record, data["order"], data["proof"])


def _check_parts(record: Record, family: str, data: dict[str, Any]) -> None:
    """Check the family of a record, that its cost has an order, and its certified bound a proof."""
    order, proof = data["order"], data["proof"]
    if record.family != family:
        raise InputError(f"must be {family!r}, as in the file's name", key="family", value=record.family)
    if (order is None) != (record.cost is None):
        raise InputError("must be null exactly where the cost is", key="order", value=order)
    if not isinstance(proof, dict if record.certified else NoneType):
        wanted = "the certificate" if record.certified else "null"
        raise InputError(f"must be {wanted}, as certified says", key="proof", value=proof)


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
    """Return the tables: open problems by gap, counts by family and status, and all instances."""
    left = [record for record in records if record.state is State.OPEN]
    left.sort(key=lambda record: -(record.gap or 0.0))
    parts = ["## Open problems", _table(left), "## All instances", _counts(records)]
    for family in _families(records):
        mine = [record for record in records if record.family == family]
        parts += [f"### {family.capitalize()}", _table(mine)]
    return "\n\n".join(parts) + "\n"


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
