"""The overlap passes are applied to whole programs, and a replay checks the program after each pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.errors import DeadlockError, InputError
from ...core.metrics import busy_times, peak_memory
from ...core.schedule import Schedule
from ..lowering import lower
from ..program import Program
from ..replay import Replay, replay
from .composition import PASSES
from .device_tasks import device_tasks, reordered
from .tasks import Estimator, Tasks, given_duration
from .timeline import exposed_time

PROGRAM_PASSES = ("sink_waits", "raise_comms")


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """What a pass changed on a program.

    Parameters
    ----------
    name
        Name of the pass.
    waited_before, waited_after
        Ticks that a device stands still in a replay between tick 0 and the end of its last operation, summed
        over all devices, before and after the pass.
    end_before, end_after
        When the last operation ends in a replay, in ticks, before and after the pass.
    kept
        Whether the new program was taken. It is discarded if devices would deadlock, wait longer in sum, end
        later, or exceed a memory limit by more than before; the values after the pass are then those before.
    """

    name: str
    waited_before: int
    waited_after: int
    end_before: int
    end_after: int
    kept: bool


def overlap_program(
    schedule: Schedule,
    passes: Sequence[str] = PROGRAM_PASSES,
    *,
    estimate: Estimator = given_duration,
    budget: int | None = None,
    message_memory: int = 0,
) -> tuple[Program, list[ProgramReport]]:
    """Lower a schedule with a wait right behind each receive, then apply passes to all devices.

    Parameters
    ----------
    schedule
        A valid schedule.
    passes
        Names of the passes in `PASSES`.
    estimate
        Function that returns how long a computation or a transfer takes, in ticks. The replays always use
        the times of the instance.
    budget
        Largest allowed peak memory of a device, in the unit of the instance, for the passes whose names end
        in `within_memory`. None takes the peak before the pass, which is always allowed.
    message_memory
        Memory of the buffer of a receive, in the unit of the instance. The buffer is held until the message
        has been used.

    Returns
    -------
    tuple
        The program, and one report per pass.

    Raises
    ------
    InputError
        If a pass is unknown.
    """
    program = lower(schedule, validation=False, waits=True)
    timed, reports = replay(program), []
    for name in passes:
        if name not in PASSES:
            raise InputError(f"must be one of {', '.join(PASSES)}", key="passes", value=name)
        devices = [
            device_tasks(program, d, message_memory=message_memory) for d in range(len(program.devices))
        ]
        changed = reordered(program, [_apply(name, tasks, estimate, budget) for tasks in devices])
        after = _improved(timed, changed)
        reports.append(_report(name, timed, after))
        if after is not None:
            program, timed = changed, after
    return program, reports


def _apply(name: str, tasks: Tasks, estimate: Estimator, budget: int | None) -> Tasks:
    changed = PASSES[name](tasks, estimate, budget)
    return changed if exposed_time(changed, estimate) <= exposed_time(tasks, estimate) else tasks


def _improved(before: Replay, changed: Program) -> Replay | None:
    """Return the replay of `changed`; None if the changed program is discarded (see `ProgramReport.kept`)."""
    try:
        after = replay(changed)
    except DeadlockError:
        return None
    worse = any(new > old for new, old in zip(_waited_and_end(after), _waited_and_end(before), strict=True))
    return None if worse or _exceeds(before.schedule, after.schedule) else after


def _waited_and_end(timed: Replay) -> tuple[int, int]:
    schedule = timed.schedule
    rows = map(schedule.order.rows, range(schedule.order.devices))
    ends = [int(schedule.end[r].max()) for r in rows]
    return sum(ends) - int(busy_times(schedule).sum()), max(ends)


def _exceeds(before: Schedule, after: Schedule) -> bool:
    """Return whether a device needs more memory than before and more than its limit."""
    instance = after.instance
    for device, (old, new) in enumerate(zip(peak_memory(before), peak_memory(after), strict=True)):
        limit = instance.memory_limit(device)
        if limit is not None and new > max(old, limit):
            return True
    return False


def _report(name: str, before: Replay, after: Replay | None) -> ProgramReport:
    waited, end = _waited_and_end(before)
    waited_after, end_after = _waited_and_end(after or before)
    return ProgramReport(name, waited, waited_after, end, end_after, after is not None)
