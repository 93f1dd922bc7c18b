"""The folder of the library, one compressed file per family, and how better results get into it.

A line of the file ``<family>.json.xz`` has the record of an instance, the order of its cheapest schedule and
the certificate of its bound. `Library.put` replaces the file in one step, so that a record always has its
schedule and its certificate, even if the process ends in between. A lock keeps two processes from writing at
the same time.

Anyone's schedule or certificate enters the library if the checker verifies it and it is better. The checker
is one file that shares no code with the rest of this package, so that neither a wrong schedule nor a wrong
proof enters the library because of an error in the code that found it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import NoneType
from typing import Any

from filelock import FileLock

from ..base.errors import ContradictionError, DeadlockError, InputError, about_file
from ..base.files import check_keys, check_kind, check_writable, read_json, write_text
from ..certificates import check_proof
from ..certificates.check_proof import Problem
from ..model import metrics
from ..model.instance import Instance
from ..model.instance_file import instance_from_dict, instance_to_dict
from ..model.schedule import Order, Schedule
from ..model.schedule_file import schedule_from_dict, schedule_to_dict
from ..model.simulate import retime
from ..model.validate import validate
from .record import Claim, Record, RefusedError, order_from_words, record_from_dict, words_of

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
        entries = tuple(_entry_of(entry, family, k) for k, entry in enumerate(data["instances"]))
        for id, count in Counter(entry.record.id for entry in entries).items():
            if count > 1:
                raise InputError(f"stands {count} times in the file", key="id", value=id)
        return entries


def _entry_of(data: Any, family: str, number: int) -> _Entry:
    try:
        record = record_from_dict(data, ("order", "proof"))
        _check_parts(record, family, data)
    except InputError as error:
        key = f"instances[{number}].{error.key}".rstrip(".")
        raise InputError(error.rule, key=key, value=error.value) from None
    except ContradictionError as error:
        raise InputError(str(error), key=f"instances[{number}]") from None
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


def verified_cost(instance: Instance, content: Any) -> int:
    """Verify that a schedule is valid for an instance, and return its cost in ticks."""
    with _said_by_the_checker():
        data = check_proof.table(content, "schedule file", ("instance", "devices"), check_proof.BESIDE)
        return check_proof.cost_of(_problem(instance, data), data["devices"], data.get("copies"))


def verified_bound(instance: Instance, content: Any) -> int:
    """Verify that a certificate proves a bound for an instance, and return this bound in ticks."""
    with _said_by_the_checker():
        check_proof.check(content)
        _problem(instance, content)
        return int(content["bound"])


def check_record(library: Library, record: Record) -> str:
    """Verify again what the library says about an instance, and return the result as a line of text.

    Raises
    ------
    RefusedError
        If a schedule or a certificate fails, or does not have the cost or the bound of the record.
    InputError
        If the order of the schedule cannot be read.
    """
    said = [str(record.state)]
    schedule, certificate = library.schedule(record.id), library.certificate(record.id)
    if record.cost is not None and schedule is not None:
        cost = verified_cost(record.instance, schedule_to_dict(schedule))
        _require(cost == record.cost.value, f"the schedule costs {cost}, not {record.cost.value}")
        said.append(f"cost {cost} verified")
    if certificate is not None:
        bound = verified_bound(record.instance, certificate)
        _require(bound == record.bound.value, f"the certificate proves {bound}, not {record.bound.value}")
        said.append(f"bound {bound} verified")
    else:
        said.append(f"bound {record.bound.value} trusted from {record.bound.method}")
    return ", ".join(said)


def _problem(instance: Instance, data: dict[str, Any]) -> Problem:
    """Return an instance in the checker's form, after a check that the file `data` is about this instance."""
    problem = Problem(instance_to_dict(instance))
    _require(vars(Problem(data["instance"])) == vars(problem), "the file is about another instance")
    return problem


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise RefusedError(text)


@contextmanager
def _said_by_the_checker() -> Iterator[None]:
    """Turn the checker's own exceptions into the exceptions of this package."""
    try:
        yield
    except (check_proof.CheckError, RecursionError) as error:
        raise RefusedError(f"not verified: {error}") from None
    except check_proof.InputError as error:
        raise InputError(str(error)) from None


_UNNAMED = "unnamed"


def submit(
    library: Library,
    content: Any,
    *,
    by: str,
    id: str | None = None,
    engine: str | None = None,
    seconds: float | None = None,
) -> Record:
    """Enter a schedule or a certificate into the library, and return the new record of its instance.

    The instance is recognised by its content. What a schedule file claims about cost and bound is ignored.
    The library keeps the order of a schedule and gives it the cheapest times, which may lower its cost.

    Parameters
    ----------
    library
        The library, which is written to.
    content
        Content of a schedule's or of a certificate's file, as read from JSON.
    by
        Who found the schedule or the certificate.
    id
        Name of the instance that the content has to be about; None for any instance.
    engine
        Engine version of tightpipe that found the schedule or certificate; None if another program did.
    seconds
        How long the search for it took, in seconds of wall time; None if unknown.

    Raises
    ------
    RefusedError
        If the library does not have the instance, if the content is about another instance than `id`, if the
        schedule or the certificate does not verify, or if it is not better than what the library has.
    ContradictionError
        If a schedule costs less than a bound of the library, or a certificate proves more than the cost of
        a schedule.
    InputError
        If the content is neither a schedule nor a certificate, `id` is not in the library, or `by` is empty.
    """
    name = " ".join(by.split())
    if not name:
        raise InputError("must be the name of who found it", key="by", value=by)
    enter = _certificate if isinstance(content, dict) and "proof" in content else _schedule
    with library.alone():
        instance = _instance_of(content)
        record = _known(library, instance, id)
        origin = Claim(1, _UNNAMED, name, datetime.now(UTC).date().isoformat(), engine, seconds)
        return enter(library, record, content, origin)


def _instance_of(content: Any) -> Instance:
    check_kind(content, "schedule")
    if "instance" not in content:
        raise InputError("missing key 'instance': neither a schedule nor a certificate")
    return instance_from_dict(content["instance"], "instance.")


def _known(library: Library, instance: Instance, id: str | None) -> Record:
    named = None if id is None else library.record(id)
    if named is not None and named.instance != instance:
        raise RefusedError(f"this is about another instance than {named.id}")
    record = named or library.find(instance)
    if record is None:
        raise RefusedError("the library has no such instance")
    return record


def _schedule(library: Library, record: Record, content: Any, origin: Claim) -> Record:
    """Enter a schedule that the validator and the checker accept, if it is the cheapest."""
    file = schedule_from_dict(content)
    violations = validate(record.instance, file.schedule)
    if violations:
        raise RefusedError(f"the schedule is invalid: {violations[0]}")
    verified_cost(record.instance, content)
    best = retime(record.instance, file.schedule.order)  # the library keeps no times but these
    cost = verified_cost(record.instance, schedule_to_dict(best))
    if record.cost is not None and cost >= record.cost.value:
        raise RefusedError(f"{record.id}: a schedule of cost {record.cost.value} is known, this costs {cost}")
    method = " ".join((file.method or "").split()) or _UNNAMED
    new = replace(record, cost=replace(origin, value=cost, method=method))
    library.put(new, order=best.order)
    return new


def _certificate(library: Library, record: Record, content: Any, origin: Claim) -> Record:
    """Enter a certificate that the checker verifies, if it proves a better bound than the record has.

    A bound of the same value is better if the record's bound has no certificate.
    """
    bound, known = verified_bound(record.instance, content), record.bound.value
    if bound < known or (bound == known and record.certified):
        how = "proven" if record.certified else f"trusted from {record.bound.method}"
        raise RefusedError(f"{record.id}: a bound of {known} is {how}, this proves {bound}")
    new = replace(record, bound=replace(origin, value=bound, method="certificate"), certified=True)
    library.put(new, certificate=content)
    return new
