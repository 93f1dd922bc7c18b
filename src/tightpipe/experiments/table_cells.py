"""For each column that tables share, a function returns the value of a solve in this column."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from ..core.params.solve_params import SolveParams
from .results_table import PARAMS, Cells, Form, Solve
from .sweep.row import Row

Cell = Callable[[Solve], object]
"""A function that returns the value of a solve in one column of a table."""


def _rounded(name: str, form: str) -> Callable[[Row], object]:
    """Return a function that writes the field `name` of a row in the format `form`; None stays None."""

    def write(row: Row) -> object:
        value = getattr(row, name)
        return None if value is None else format(value, form)

    return write


_OF_THE_ROW: Mapping[str, Callable[[Row], object]] = {
    "setting": lambda row: row.problem,
    "instance": lambda row: row.problem,
    "start": lambda row: row.warm_start,
    "max_mem": lambda row: row.memory_limit,
    "memory_of_1f1b": _rounded("memory_of_1f1b", ".6f"),
    "bubble_rate": _rounded("bubble_rate", ".6f"),
    "imbalance": _rounded("imbalance", ".6f"),
    "gap": _rounded("gap", ".6f"),
    "peak_mem": lambda row: row.peak_memory,
    "seconds": _rounded("seconds", ".3f"),
    "workers": lambda row: row.threads,
    "time_limit": _rounded("time_limit", "g"),
    "host_cpus": lambda row: row.cores,
}
"""The functions of columns whose name or format differs from the row's field."""


def cells(names: Sequence[str], special: Mapping[str, Cell] | None = None) -> dict[str, Cell]:
    """Return the function of each column: the one in `special`, or else the one that all tables share."""
    special = special or {}
    return {name: special[name] if name in special else _cell(name) for name in names}


def _cell(name: str) -> Cell:
    say = _OF_THE_ROW.get(name)
    return lambda solve: getattr(solve.row, name) if say is None else say(solve.row)


def with_params(form: Form, params: SolveParams) -> Form:
    """Return the form of a table whose solves have these parameters.

    If some of them are not the defaults, the form has one more column with those, as a JSON object. The
    column also belongs to the key, so that no row stands for a solve with other parameters.
    """
    if not params.changed():
        return form
    return Form({**form.columns, PARAMS: _params}, (*form.key, PARAMS))


def _params(solve: Solve) -> str:
    return json.dumps(solve.task.params.changed(), sort_keys=True)


def said_params(rows: Sequence[Cells]) -> list[str]:
    """Return a line of a report for each set of parameters with which solves of the rows were run."""
    texts = dict.fromkeys(row[PARAMS] for row in rows if row.get(PARAMS))
    return [f"Parameters that are not the defaults: {text}." for text in texts]


def bound_rate(bound: int, work: int) -> str:
    """Return the least bubble rate that a bound allows, as the text of a cell with 4 decimals.

    Parameters
    ----------
    bound
        A lower bound of the cost in ticks.
    work
        The largest work of a device in ticks.
    """
    return f"{(bound - work) / bound:.4f}"
