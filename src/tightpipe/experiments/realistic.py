"""Greedy, CP-SAT, improvement and all together on the suite of realistic instances, one row each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from time import perf_counter

from ..errors import InputError
from ..instance import Instance
from ..options import Options, Progress
from ..result import INTERRUPTED, Result, Status
from ..retime import retime
from ..settings import load_realistic, with_median_costs
from ..solve import solve
from ..validate import validate
from .row_store import RowStore

MEDIAN = "greedy-v, median costs"
METHODS = (MEDIAN, "greedy-v", "cpsat", "improve")
COLUMNS = (
    *("setting", "p", "n", "method", "status", "cost", "work", "bubble", "bubble_rate", "bound", "gap"),
    *("seconds", "workers", "seed", "time_limit", "tightpipe_version", "ortools_version", "host_cpus"),
    "finished_at",
)
_KEY = ("setting", "method", "workers", "seed", "time_limit", "tightpipe_version", "ortools_version")


@dataclass(frozen=True, slots=True)
class RealisticTask:
    """One row to compute."""

    name: str
    method: str
    options: Options

    @property
    def instance(self) -> Instance:
        """The problem of the row."""
        return load_realistic()[self.name].instance()

    def key(self) -> dict[str, str]:
        """Return what makes two rows the same experiment."""
        searches = self.method not in (MEDIAN, "greedy-v")
        return {
            "setting": self.name,
            "method": self.method,
            "workers": str(self.options.threads if searches else 1),
            "seed": str(self.options.seed if searches else 0),
            "time_limit": f"{self.options.time_limit:g}" if searches else "",
            "tightpipe_version": version("tightpipe"),
            "ortools_version": version("ortools"),
        }


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


def plan_realistic(names: Sequence[str], options: Options) -> list[RealisticTask]:
    """Return the rows of a run in the order in which they are computed."""
    return [RealisticTask(name, method, options) for name in names for method in METHODS]


def missing_realistic(tasks: Sequence[RealisticTask], store: RowStore) -> list[RealisticTask]:
    """Return the tasks that have no row yet."""
    there = [{key: row[key] for key in _KEY} for row in store.rows()]
    return [task for task in tasks if task.key() not in there]


def run_realistic(
    tasks: Sequence[RealisticTask], store: RowStore, watch: Callable[[str], Progress]
) -> Iterator[tuple[RealisticTask, Result]]:
    """Compute the tasks and append each row as it finishes; an interrupted solve is no row."""
    for task in tasks:
        result = _solve(task, watch(f"{task.name} {task.method}"))
        if result.reason == INTERRUPTED:
            raise KeyboardInterrupt
        store.append(_row(task, result))
        yield task, result


def _solve(task: RealisticTask, progress: Progress) -> Result:
    if task.method == MEDIAN:
        return _greedy_at_median_costs(task.instance)
    return solve(
        task.instance,
        task.method,
        time_limit=task.options.time_limit,
        workers=task.options.workers,
        seed=task.options.seed,
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
    rate, gap = result.bubble_rate, result.gap
    return task.key() | {
        "p": result.instance.devices,
        "n": result.instance.microbatches,
        "status": str(result.status),
        "cost": result.cost,
        "work": result.work,
        "bubble": result.bubble,
        "bubble_rate": rate if rate is None else f"{rate:.6f}",
        "bound": result.bound,
        "gap": gap if gap is None else f"{gap:.6f}",
        "seconds": f"{result.seconds:.3f}",
        "host_cpus": os.cpu_count(),
        "finished_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
