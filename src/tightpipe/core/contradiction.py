"""A lower bound above the cost of a valid schedule is wrong, and ends the solve with an error.

A wrong bound must never pass for a proof of optimality. So a bound is never lowered to the cost of the best
known schedule, which would hide the fault: the two are compared, and a contradiction raises an error.
"""

from __future__ import annotations

import json
from contextlib import suppress
from tempfile import NamedTemporaryFile

from .errors import ContradictionError
from .metrics import cost
from .result import Proof
from .schedule import Schedule
from .schedule_file import schedule_to_dict


def refuse_contradiction(schedule: Schedule, bound: int | None, proof: Proof | None, name: str = "") -> None:
    """Raise an error if a lower bound is above the cost of a valid schedule.

    Parameters
    ----------
    schedule
        A schedule that has passed the validator.
    bound
        A proven bound of the cost in ticks, or None.
    proof
        What the bound rests on; None where the caller gave the bound.
    name
        Name of the bound, where several have the same kind of proof.

    Raises
    ------
    ContradictionError
        If the bound is above the cost. The message names the kind of proof, the bound, both numbers, and a
        schedule file that holds the instance, for a report of the fault.
    """
    if bound is None or bound <= cost(schedule):
        return
    rests = "given by the caller" if proof is None else f"proof: {proof}{f', {name}' if name else ''}"
    raise ContradictionError(
        f"the bound {bound} ({rests}) is above {cost(schedule)}, the cost of a valid schedule, so the bound "
        f"is wrong and nothing is proven; please report{_evidence(schedule, bound)}"
    )


def _evidence(schedule: Schedule, bound: int) -> str:
    """Write a schedule file with the instance and the bound, and return the end of the error message.

    The message asks the user to report the fault. Its end names the temporary file or, if no file can be
    written, asks for the instance.
    """
    with suppress(OSError):
        with NamedTemporaryFile("w", prefix="tightpipe-", suffix=".json", delete=False) as file:
            json.dump(schedule_to_dict(schedule, bound=bound), file)
        return f" it with the file {file.name}"
    return " the instance"
