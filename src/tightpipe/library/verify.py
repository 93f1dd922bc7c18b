"""The standalone checker of certificates verifies the schedules and certificates of the library.

The checker is one file that shares no code with the rest of this package, so that neither a wrong schedule
nor a wrong proof enters the library because of an error in the code that found it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..certificates import check_proof
from ..certificates.check_proof import Problem
from ..core.errors import InputError, RefusedError
from ..core.instance import Instance
from ..core.instance_file import instance_to_dict
from ..core.schedule_file import schedule_to_dict
from .folder import Library
from .record import Record

_CLAIMS = ("method", "cost", "bound")


def verified_cost(instance: Instance, content: Any) -> int:
    """Verify that a schedule is valid for an instance, and return its cost in ticks.

    `content` is the content of a schedule file, as read from JSON.

    Raises
    ------
    RefusedError
        If the schedule breaks a rule, or is a schedule of another instance.
    InputError
        If the content is no schedule.
    """
    with _said_by_the_checker():
        data = check_proof.table(content, "schedule file", ("instance", "devices"), _CLAIMS)
        return check_proof.cost_of(_problem(instance, data), data["devices"])


def verified_bound(instance: Instance, content: Any) -> int:
    """Verify that a certificate proves a bound for an instance, and return this bound in ticks.

    `content` is the content of a certificate's file, as read from JSON.

    Raises
    ------
    RefusedError
        If a step of the proof fails, or if the certificate has no proof or is about another instance.
    InputError
        If the content is no certificate.
    """
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
