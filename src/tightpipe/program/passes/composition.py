"""Passes are run by name, one after another, and a report says what each of them gained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...core.errors import InputError
from .adjacent_swaps import raise_comms_within_memory, sink_waits_within_memory
from .greedy import raise_comms, sink_waits
from .reorder_compute import decide_global_ordering_of_comms, reorder_compute_for_overlap
from .tasks import Estimator, Task, Tasks, check_tasks, given_duration
from .timeline import exposed_time, peak_memory

Pass = Callable[[Tasks, Estimator, int | None], Tasks]

PASSES: dict[str, Pass] = {
    "sink_waits": lambda tasks, estimate, budget: sink_waits(tasks),
    "raise_comms": lambda tasks, estimate, budget: raise_comms(tasks),
    "reorder_compute_for_overlap": lambda tasks, estimate, budget: reorder_compute_for_overlap(
        tasks, estimate
    ),
    "raise_comms_within_memory": lambda tasks, estimate, budget: raise_comms_within_memory(tasks, budget),
    "sink_waits_within_memory": lambda tasks, estimate, budget: sink_waits_within_memory(tasks, budget),
    "decide_global_ordering_of_comms": lambda tasks, estimate, budget: decide_global_ordering_of_comms(tasks),
}
"""The passes by name; each takes tasks, an estimator of durations and a memory budget."""

DEFAULT_PASSES = ("reorder_compute_for_overlap", "sink_waits", "raise_comms")


@dataclass(frozen=True, slots=True)
class PassReport:
    """What a pass changed on a task list.

    Parameters
    ----------
    name
        Name of the pass.
    exposed_before, exposed_after
        Communication time that no computation hides, before and after the pass, in ticks.
    peak_before, peak_after
        Peak memory before and after the pass, in the unit of the tasks.
    kept
        Whether the new order was taken. It is discarded if its exposed time is longer or its peak memory
        exceeds the budget; the values after the pass are then those before it.
    """

    name: str
    exposed_before: int
    exposed_after: int
    peak_before: int
    peak_after: int
    kept: bool


def run_passes(
    tasks: Sequence[Task],
    passes: Sequence[str] = DEFAULT_PASSES,
    *,
    estimate: Estimator = given_duration,
    budget: int | None = None,
) -> tuple[Tasks, list[PassReport]]:
    """Apply passes to a task list, one after another.

    Parameters
    ----------
    tasks
        A list that can run from first to last; see `check_tasks`.
    passes
        Names of the passes in `PASSES`.
    estimate
        Function that returns how long a computation or a transfer takes, in ticks.
    budget
        Largest peak memory, in the unit of the tasks. A pass may always keep the peak of the tasks before it,
        even above the budget. With None, the passes whose names end in `within_memory` do not raise that
        peak, and the other passes have no limit.

    Returns
    -------
    tuple
        The tasks in their new order, and one report per pass. Tasks still come after their inputs, the starts
        of one peer keep their sequence, and the exposed time is never longer.

    Raises
    ------
    InputError
        If a pass is unknown or the list cannot run.
    """
    current, reports = check_tasks(tasks), []
    for name in passes:
        if name not in PASSES:
            raise InputError(f"must be one of {', '.join(PASSES)}", key="passes", value=name)
        changed = PASSES[name](current, estimate, budget)
        report = _report(name, current, changed, estimate, budget)
        reports.append(report)
        current = changed if report.kept else current
    return current, reports


def _report(name: str, old: Tasks, new: Tasks, estimate: Estimator, budget: int | None) -> PassReport:
    exposed, peak = exposed_time(old, estimate), peak_memory(old)
    exposed_after, peak_after = exposed_time(new, estimate), peak_memory(new)
    fits = budget is None or peak_after <= max(budget, peak)
    kept = fits and exposed_after <= exposed
    return PassReport(
        name, exposed, exposed_after if kept else exposed, peak, peak_after if kept else peak, kept
    )
