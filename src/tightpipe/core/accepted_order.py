"""An order that comes from a file or from a user's function becomes a valid schedule, or is refused."""

from __future__ import annotations

import numpy as np

from .errors import DeadlockError, InputError
from .instance import Instance
from .retime import retime
from .schedule import Order, Schedule
from .validate import Violation, validate


def accepted(instance: Instance, order: Order) -> Schedule:
    """Give an order its best start times and check the schedule against every rule of the model.

    Parameters
    ----------
    instance
        The problem that the order is meant for.
    order
        Any order, which may be invalid.

    Returns
    -------
    Schedule
        The schedule of least cost that runs the operations in this order.

    Raises
    ------
    InputError
        If the order breaks a rule: operations are missing, run twice, run on a device that is not theirs, or
        wait for each other, or a memory limit is exceeded. The message names the first rule that is broken.
    """
    try:
        schedule = retime(instance, order)
    except (DeadlockError, InputError) as error:
        broken = _misplaced(instance, order) or error  # a missing operation explains a deadlock
        raise InputError(f"the order is invalid: {broken}") from None
    for violation in validate(instance, schedule):
        raise InputError(f"the order is invalid: {violation}")
    return schedule


def _misplaced(instance: Instance, order: Order) -> Violation | None:
    """Return the first violation of the rules `complete` and `placement`, which do not depend on times.

    Return None if the order obeys both rules.
    """
    never = np.zeros(len(order), np.int64)
    violations = validate(instance, Schedule(instance, order, never, never))
    return next((v for v in violations if v.rule in ("complete", "placement")), None)
