"""`tightpipe paper realistic` runs five methods on each instance of the realistic suite.

The suite consists of instances with recomputation, slow last stages, slow links or scarce memory. The first
of the methods is `greedy-v` with the median of the costs of all stages in place of each stage's own costs;
its order is then timed with the true costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..core.allowance import Allowance
from ..core.errors import InputError
from ..settings import load_realistic
from .results_table import Form, Solve
from .sweep.experiment import Entry, Experiment, Problem, conditions
from .sweep.grid import combine
from .sweep.task import Task
from .table_cells import cells

MEDIAN = "greedy-v, median costs"
METHODS = (MEDIAN, "greedy-v", "cpsat", "improve", "best")
COLUMNS = (
    *("setting", "p", "n", "memory_of_1f1b", "method", "status", "cost", "work", "bubble"),
    *("bubble_rate", "imbalance", "bound", "proof", "gap", "seconds", "workers", "seed", "time_limit"),
    *("engine", "ortools_version", "host_cpus", "finished_at"),
)
# a solve is not run again if a row agrees with it in all these columns
_KEY = ("setting", "method", "workers", "seed", "time_limit", "engine", "ortools_version")


def _method(solve: Solve) -> object:
    return MEDIAN if solve.row.costs == "median" else solve.row.method


REALISTIC_FORM = Form(cells(COLUMNS, {"method": _method}), _KEY)
"""The columns of the suite's table, and the key by which its rows are told apart."""


def choose_realistic(text: str) -> list[str]:
    """Return the names of the instances that ``all`` or a comma-separated list stands for.

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
    """Return the solves of all methods on the named instances, in the sequence in which they run."""
    return [task for name in names for grid in _grids(name, allowance) for task in combine(grid)]


def _grids(name: str, allowance: Allowance) -> Iterator[Experiment]:
    """Yield two grids: `greedy-v` with median and with true costs, and the other methods with true costs."""
    instance = load_realistic()[name].instance()
    for methods, costs in ((("greedy-v",), ("median", "true")), (METHODS[2:], ("true",))):
        yield Experiment(
            problems=(Problem(name, instance),),
            methods=tuple(map(Entry, methods)),
            costs=costs,
            keep_equal_costs=True,
            **conditions(allowance),
        )
