"""Anyone's schedule or certificate enters the library if the checker verifies it and it is better.

The checker is one file that shares no code with the rest of this package, so that neither a wrong schedule
nor a wrong proof enters the library because of an error in the code that found it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ..base.data_files import check_kind
from ..base.errors import ContradictionError, InputError
from ..certificates import check_proof
from ..certificates.check_proof import Problem
from ..model.instance import Instance
from ..model.instance_file import instance_from_dict, instance_to_dict
from ..model.schedule_file import schedule_from_dict, schedule_to_dict
from ..model.simulate import retime
from ..model.validate import validate
from .folder import Library
from .record import Claim, Record, RefusedError

_CLAIMS = ("method", "cost", "bound")


def verified_cost(instance: Instance, content: Any) -> int:
    """Verify that a schedule is valid for an instance, and return its cost in ticks."""
    with _said_by_the_checker():
        data = check_proof.table(content, "schedule file", ("instance", "devices"), _CLAIMS)
        return check_proof.cost_of(_problem(instance, data), data["devices"])


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
    if cost < record.bound.value:
        raise ContradictionError(f"{record.id}: costs {cost}, below the bound {record.bound.value}")
    method = " ".join((file.method or "").split()) or _UNNAMED
    new = replace(record, cost=replace(origin, value=cost, method=method))
    library.put(new, order=best.order)
    return new


def _certificate(library: Library, record: Record, content: Any, origin: Claim) -> Record:
    """Enter a certificate that the checker verifies, if it proves a better bound than the record has.

    A bound of the same value is better if the record's bound has no certificate.
    """
    bound, known, cost = verified_bound(record.instance, content), record.bound.value, record.cost
    if bound < known or (bound == known and record.certified):
        how = "proven" if record.certified else f"trusted from {record.bound.method}"
        raise RefusedError(f"{record.id}: a bound of {known} is {how}, this proves {bound}")
    if cost is not None and bound > cost.value:
        raise ContradictionError(f"{record.id}: a schedule costs {cost.value}, below the bound {bound}")
    new = replace(record, bound=replace(origin, value=bound, method="certificate"), certified=True)
    library.put(new, certificate=content)
    return new
