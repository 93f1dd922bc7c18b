"""Greedy, CP-SAT, improvement and all together on the suite of realistic instances, one row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..core.allowance import Allowance
from ..core.errors import InputError
from ..settings import load_realistic
from .sweep.experiment import Experiment, Problem, conditions
from .sweep.grid import combine
from .sweep.task import Task
from .table import Cells, Form, Solve
from .table_cells import added_cells, cells

MEDIAN = "greedy-v, median costs"
METHODS = (MEDIAN, "greedy-v", "cpsat", "improve", "best")
COLUMNS = (
    *("setting", "p", "n", "memory_of_1f1b", "method", "status", "cost", "work", "bubble"),
    *("bubble_rate", "imbalance", "bound", "proof", "gap", "seconds", "workers", "seed", "time_limit"),
    *("tightpipe_version", "ortools_version", "host_cpus", "finished_at"),
)
# what makes two rows the same experiment
_KEY = ("setting", "method", "workers", "seed", "time_limit", "tightpipe_version", "ortools_version")


def _method(solve: Solve) -> object:
    return MEDIAN if solve.row.costs == "median" else solve.row.method


REALISTIC_FORM = Form(cells(COLUMNS, {"method": _method}), _KEY)
"""The table of the suite."""


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


def plan_realistic(names: Sequence[str], allowance: Allowance) -> list[Task]:
    """Return the solves of a run in the order in which they are run."""
    return [task for name in names for grid in _grids(name, allowance) for task in combine(grid)]


def _grids(name: str, allowance: Allowance) -> Iterator[Experiment]:
    """Yield the greedy at median and at true costs, then the methods that search."""
    instance = load_realistic()[name].instance()
    for methods, costs in ((("greedy-v",), ("median", "true")), (METHODS[2:], ("true",))):
        yield Experiment(
            problems=(Problem(name, instance.placement.name, lambda _: instance),),
            methods=methods,
            costs=costs,
            keep_equal_costs=True,
            **conditions(allowance),
        )


def lacking(row: Cells) -> dict[str, object]:
    """Return what a row of an earlier version says in the columns that it lacks."""
    (name,) = choose_realistic(row["setting"])
    return added_cells(load_realistic()[name].instance())
