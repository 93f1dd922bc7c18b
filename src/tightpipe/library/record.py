"""What the library knows of an instance: its cheapest schedule, its best bound, and who found them.

The cheapest schedule is kept as an order in words. A device's order is one text with a word for each slot. A
word is an operation without its microbatch, such as ``F3``, where the microbatch follows the one of the
operation of this kind and stage before it, and the first is 0. Any other microbatch is written, as in
``F3.7``, and the next word counts on from it. Operations that share a slot are joined by ``+``. An order has
no times, because `retime` gives the cheapest ones. The words of many orders are alike, so that they compress
well: to a fortieth of the compressed files of schedules.

Records are shown as tables, on a terminal and in Markdown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from html import escape
from typing import Any

from ..base.errors import ContradictionError, InputError, NegativeError, check_int
from ..base.files import check_keys
from ..base.tables import markdown_text
from ..model.instance import Instance
from ..model.instance_file import instance_from_dict, instance_to_dict
from ..model.metrics import memory_of_1f1b
from ..model.operation import Operation
from ..model.schedule import Order, parse_slot


class RefusedError(NegativeError):
    """The library refuses a schedule or a certificate; the message says why."""


def words_of(order: Order) -> list[str]:
    """Return the words of an order, one text per device."""
    return [_device_words(slots) for slots in order.to_slots()]


def _device_words(slots: Sequence[Sequence[Operation]]) -> str:
    following: Counter[str] = Counter()
    words = []
    for slot in slots:
        parts = []
        for operation in slot:
            name, _, _ = str(operation).partition(".")
            parts.append(name if following[name] == operation.microbatch else str(operation))
            following[name] = operation.microbatch + 1
        words.append("+".join(parts))
    return " ".join(words)


def order_from_words(words: Any, instance: Instance) -> Order:
    """Return the order that words describe."""
    fits = isinstance(words, list) and len(words) == instance.devices
    if not fits or not all(isinstance(text, str) for text in words):
        raise InputError(f"must be a list of {instance.devices} texts", key="order", value=words)
    return Order.from_slots([list(map(parse_slot, _numbered(text))) for text in words])


def _numbered(text: str) -> list[str]:
    """Return the words of a device with every microbatch written."""
    following: Counter[str] = Counter()
    numbered = []
    for word in text.split():
        parts = []
        for part in word.split("+"):
            name, _, microbatch = part.partition(".")
            number = microbatch or str(following[name])
            short = number.isdecimal() and len(number) < 10  # `parse_slot` refuses any other one
            following[name] = int(number) + 1 if short else 0
            parts.append(f"{name}.{number}")
        numbered.append("+".join(parts))
    return numbered


_EASY, _MEDIUM = 10.0, 600.0


class State(StrEnum):
    """How far an instance is solved."""

    OPEN = "open"  #: the best bound is below the cost of the best schedule, or no schedule is known
    TRUSTED = "closed (trusted)"  #: cost and bound are equal, but no certificate proves the bound
    CLOSED = "closed"  #: cost and bound are equal, and the checker of certificates verifies both


class Difficulty(StrEnum):
    """How long the schedule and the proof of a closed instance took to find, together."""

    EASY = "easy"  #: at most ten seconds
    MEDIUM = "medium"  #: at most ten minutes
    HARD = "hard"  #: longer, or a time is not stated
    OPEN = "open"  #: the instance is not closed


@dataclass(frozen=True, slots=True)
class Claim:
    """A cost or a bound, and where it comes from."""

    value: int  #: the cost or the bound, in ticks
    method: str  #: what found it: a method for a cost, an argument or a solver for a bound
    by: str  #: who found it
    date: str  #: the day on which it entered the library, as YYYY-MM-DD
    engine: str | None = None  #: `engine_version` of tightpipe that found it; None if another program did
    seconds: float | None = None  #: how long that took, in seconds of wall time; None if it was not stated


@dataclass(frozen=True, slots=True)
class Record:
    """All that the library knows about an instance, but for the schedule and the certificate themselves.

    Raises
    ------
    ContradictionError
        If the bound is above the cost, as a wrong proof must not look like optimality.
    """

    id: str  #: name of the instance in the library
    family: str  #: name of the group of instances to which it belongs
    source: str  #: where it comes from, in words
    instance: Instance  #: the problem
    cost: Claim | None  #: cost of the cheapest schedule known; None if no schedule is known
    bound: Claim  #: the largest lower bound known
    certified: bool = False  #: whether a certificate in the library proves the bound
    searched: float = 0.0  #: largest time limit in seconds that the library's own search has used up

    def __post_init__(self) -> None:
        if self.cost is not None and self.cost.value < self.bound.value:
            said = f"a schedule costs {self.cost.value}, below the bound {self.bound.value}"
            raise ContradictionError(f"{self.id}: {said}")

    @property
    def state(self) -> State:
        """Whether the instance is open, closed, or closed by a bound that is only trusted."""
        if self.cost is None or self.cost.value != self.bound.value:
            return State.OPEN
        return State.CLOSED if self.certified else State.TRUSTED

    @property
    def difficulty(self) -> Difficulty:
        """How hard the instance was to close."""
        if self.state is State.OPEN or self.cost is None:
            return Difficulty.OPEN
        took = self.cost.seconds, self.bound.seconds
        known = [seconds for seconds in took if seconds is not None]
        if len(known) < len(took) or sum(known) > _MEDIUM:
            return Difficulty.HARD
        return Difficulty.EASY if sum(known) <= _EASY else Difficulty.MEDIUM

    @property
    def gap(self) -> float | None:
        """(cost - bound) / cost, the largest share that any schedule could save; None without a schedule."""
        return None if self.cost is None else (self.cost.value - self.bound.value) / self.cost.value

    def to_file(self) -> dict[str, Any]:
        """Return what the file of the family has of the record."""
        return {
            "id": self.id,
            "family": self.family,
            "source": self.source,
            "cost": None if self.cost is None else asdict(self.cost),
            "bound": asdict(self.bound),
            "certified": self.certified,
            "searched": self.searched,
            "instance": instance_to_dict(self.instance),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known as plain data: the record, and the status and difficulty that follow."""
        kept = self.to_file()
        about = {key: kept.pop(key) for key in ("id", "family", "source")}
        return {**about, "status": str(self.state), "difficulty": str(self.difficulty), **kept}


_KEYS = tuple(field.name for field in fields(Record))


def record_from_dict(data: Any, further: tuple[str, ...] = ()) -> Record:
    """Return the record that a file's plain data describe; `further` names other keys that they have."""
    check_keys(data, (*_KEYS, *further), ())
    texts = {key: _text(data[key], key) for key in ("id", "family", "source")}
    if not isinstance(data["certified"], bool):
        raise InputError("must be true or false", key="certified", value=data["certified"])
    return Record(
        **texts,
        instance=instance_from_dict(data["instance"], "instance."),
        cost=None if data["cost"] is None else _claim(data["cost"], "cost"),
        bound=_claim(data["bound"], "bound"),
        certified=data["certified"],
        searched=_seconds(data["searched"], "searched"),
    )


def _claim(data: Any, name: str) -> Claim:
    check_keys(data, tuple(field.name for field in fields(Claim)), (), name)
    engine, seconds = data["engine"], data["seconds"]
    return Claim(
        check_int(f"{name}.value", data["value"], 1),
        **{key: _text(data[key], f"{name}.{key}") for key in ("method", "by", "date")},
        engine=None if engine is None else _text(engine, f"{name}.engine"),
        seconds=None if seconds is None else _seconds(seconds, f"{name}.seconds"),
    )


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError("must be a text", key=key, value=value)
    return value


def _seconds(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InputError("must be a number of seconds, at least 0", key=key, value=value)
    return float(value)


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
    parts = ["## Open problems", _table(widest_first(left)), "## All instances", _counts(records)]
    for family in _families(records):
        mine = [record for record in records if record.family == family]
        parts += [f"### {family.capitalize()}", _table(mine)]
    return "\n\n".join(parts) + "\n"


def widest_first(records: Sequence[Record]) -> list[Record]:
    """Return the records with the largest gap first, behind those without a schedule."""
    return sorted(records, key=lambda record: -1.0 if record.gap is None else -record.gap)


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
