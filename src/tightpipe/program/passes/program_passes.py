"""The overlap passes on whole programs, every step checked by replay."""

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
from .task import Estimator, Tasks, given_duration
from .timeline import exposed_time

PROGRAM_PASSES = ("sink_waits", "raise_comms")


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """What a pass did to a program.

    Parameters
    ----------
    name
        The pass.
    waited_before, waited_after
        Ticks that all devices together stood still before their last operation, by replay.
    end_before, end_after
        When the last operation ends, by replay.
    kept
        Whether its order was taken: not where devices would deadlock, wait longer, end later or
        exceed a memory limit.
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
        Names in `PASSES`.
    estimate
        How long a computation or a transfer takes; the replay always takes the instance's times.
    budget
        Peak memory for the passes that look at it; None: what each device needs without them.
    message_memory
        What a receive's buffer holds until its message has been used.

    Returns
    -------
    tuple
        The program, and one report per pass.
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
    """Return the changed program's replay; None where it is worse or breaks something."""
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
    """Whether a device needs more memory than before and more than its limit."""
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
