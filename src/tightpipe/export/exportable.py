"""A check that a schedule can run, which comes before an export writes anything."""

from __future__ import annotations

from ..core.errors import InputError
from ..core.schedule import Schedule
from ..core.simulate import simulate
from ..core.validate import validate


def check_exportable(schedule: Schedule) -> None:
    """Raise an error unless the schedule is complete, free of deadlock and valid.

    Raises
    ------
    DeadlockError
        If operations wait for each other in a circle; the message names them.
    InputError
        If the schedule breaks a rule, e.g. an operation is missing, occurs twice, runs on a wrong device or
        at an impossible time; the message names the first such rule.
    """
    violations = validate(schedule.instance, schedule)
    incomplete = [v for v in violations if v.rule in ("complete", "placement")]
    if not incomplete:
        simulate(schedule.instance, schedule.order)  # its error for a deadlock says more than the violations
    for violation in incomplete or violations:
        raise InputError(f"not exported, the schedule is invalid: {violation}")
