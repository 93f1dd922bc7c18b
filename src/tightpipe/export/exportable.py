"""What a schedule must be before a byte of it is written."""

from __future__ import annotations

from ..core.errors import InputError
from ..core.schedule import Schedule
from ..core.simulate import simulate
from ..core.validate import validate


def check_exportable(schedule: Schedule) -> None:
    """Raise unless the schedule is complete, free of deadlock and valid.

    Raises
    ------
    DeadlockError
        Naming the cycle.
    InputError
        Naming the first rule that is broken: operations missing, doubled, out of range, on a device
        that is not theirs, or at impossible times.
    """
    violations = validate(schedule.instance, schedule)
    incomplete = [v for v in violations if v.rule in ("complete", "placement")]
    if not incomplete:
        simulate(schedule.instance, schedule.order)  # of the broken rules a deadlock says most
    for violation in incomplete or violations:
        raise InputError(f"not exported, the schedule is invalid: {violation}")
