"""Greedy, CP-SAT, improvement and all together on the suite of realistic instances, one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from ..core.allowance import Allowance
from ..core.errors import InputError
from ..core.instance import Instance
from ..core.interruption import raise_again
from ..core.progress import Progress
from ..core.result import Result, Status
from ..core.retime import retime
from ..core.validate import validate
from ..settings import load_realistic, with_median_costs
from ..solving.solve import solve
from .row_store import Row, RowStore
from .solve_columns import added_columns, allowance_columns, memory_column, result_columns

MEDIAN = "greedy-v, median costs"
METHODS = (MEDIAN, "greedy-v", "cpsat", "improve", "best")
COLUMNS = (
    *("setting", "p", "n", "memory_of_1f1b", "method", "status", "cost", "work", "bubble"),
    *("bubble_rate", "imbalance", "bound", "proof", "gap", "seconds", "workers", "seed", "time_limit"),
    *("tightpipe_version", "ortools_version", "host_cpus", "finished_at"),
)
# what makes two rows the same experiment
_KEY = ("setting", "method", "workers", "seed", "time_limit", "tightpipe_version", "ortools_version")


@dataclass(frozen=True, slots=True)
class RealisticTask:
    """One row to compute."""

    name: str
    method: str
    allowance: Allowance

    @property
    def instance(self) -> Instance:
        """The problem of the row."""
        return load_realistic()[self.name].instance()

    def key_columns(self) -> dict[str, object]:
        """Return the columns that are known before the solve."""
        searches = self.method not in (MEDIAN, "greedy-v")
        names: dict[str, object] = {"setting": self.name, "method": self.method}
        return names | allowance_columns(self.allowance, searches=searches)


def choose_realistic(text: str) -> list[str]:
    """Return the names that ``all`` or a comma-separated list stand for.

    Raises
    ------
    InputError
        If a name is unknown.
    """
    known = list(load_realistic())
    names = known if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise InputError(f"must be all, or of {', '.join(known)}", key="settings", value=name)
    return names


def plan_realistic(names: Sequence[str], allowance: Allowance) -> list[RealisticTask]:
    """Return the rows of a run in the order in which they are computed."""
    return [RealisticTask(name, method, allowance) for name in names for method in METHODS]


def missing_realistic(tasks: Sequence[RealisticTask], store: RowStore) -> list[RealisticTask]:
    """Return the tasks that have no row yet."""
    return store.missing(tasks, _KEY)


def run_realistic(
    tasks: Sequence[RealisticTask], store: RowStore, watch: Callable[[str], Progress]
) -> Iterator[tuple[RealisticTask, Result]]:
    """Compute the tasks and append each row as it finishes; one that a signal ended early is no row."""
    for task in tasks:
        result = _solve(task, watch(f"{task.name} {task.method}"))
        raise_again(result.reason)
        store.append(_row(task, result))
        yield task, result


def lacking(row: Row) -> dict[str, object]:
    """Return what a row of an earlier version says in the columns that it lacks."""
    (name,) = choose_realistic(row["setting"])
    return added_columns(load_realistic()[name].instance())


def _solve(task: RealisticTask, progress: Progress) -> Result:
    if task.method == MEDIAN:
        return _greedy_at_median_costs(task.instance)
    return solve(
        task.instance,
        task.method,
        time_limit=task.allowance.time_limit,
        workers=task.allowance.workers,
        seed=task.allowance.seed,
        max_memory=task.allowance.max_memory,
        progress=progress,
    )


def _greedy_at_median_costs(instance: Instance) -> Result:
    """Find the greedy's order at median costs, and run it at the true ones."""
    begun = perf_counter()
    found = solve(with_median_costs(instance), "greedy-v")
    if found.schedule is None:
        return Result(instance, MEDIAN, Status.UNKNOWN, None, None, found.seconds, reason=found.reason)
    schedule = retime(instance, found.schedule.order)
    broken = validate(instance, schedule)
    seconds = perf_counter() - begun
    if broken:
        return Result(instance, MEDIAN, Status.UNKNOWN, None, None, seconds, reason=str(broken[0]))
    return Result(instance, MEDIAN, Status.FEASIBLE, schedule, None, seconds)


def _row(task: RealisticTask, result: Result) -> dict[str, object]:
    shape: dict[str, object] = {"p": result.instance.devices, "n": result.instance.microbatches}
    return task.key_columns() | shape | memory_column(task.instance) | result_columns(result)
