"""Heuristic against exact: methods on published settings or own instances at several memory limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from ..core.allowance import Allowance
from ..core.errors import InputError
from ..core.instance import Instance
from ..core.instance_file import instance_to_dict
from ..core.integers import check_int
from ..settings import Setting, load_settings
from .sweep.axes import OWN, UNCHANGED, Change, memory_of_activations, parse_objective
from .sweep.experiment import Experiment, Problem, conditions
from .sweep.grid import combine
from .sweep.problems import choose_settings, file_problem, setting_problem
from .sweep.row import Row
from .sweep.task import Task
from .table import Cells, Form, Solve
from .table_cells import Cell, added_cells, cells

COLUMNS = (
    *("setting", "p", "n", "f", "b", "w", "c", "hidden", "heads", "seq", "m_offset", "max_mem"),
    *("memory_of_1f1b", "placement", "objective", "method", "status", "cost", "work", "bubble"),
    *("bubble_rate", "imbalance", "bound", "proof", "gap", "peak_mem", "seconds", "workers", "seed"),
    *("time_limit", "tightpipe_version"),
    *("ortools_version", "host_cpus", "finished_at"),
)

# what makes two rows the same experiment: a row that agrees in these is not computed again
_KEY = (
    *("setting", "m_offset", "placement", "objective", "method", "workers", "seed", "time_limit"),
    *("tightpipe_version", "ortools_version"),
)
_LINK = " link "  # between a setting's name and its link occupancy


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is the same for all problems of a comparison.

    Parameters
    ----------
    memory
        Limits, e.g. ``2.5p``: times p forward activations of one stage; or ``own``, what a file says.
    methods
        Names of the methods; the first is the one that the others are measured against.
    objective
        Of all instances; ``own`` for each its own.
    options
        Limits and seed of each solve.
    link_occupancy
        Ticks that a message keeps its link busy; 0 leaves the instances as they are.
    """

    memory: tuple[str, ...]
    methods: tuple[str, ...]
    objective: str
    allowance: Allowance
    link_occupancy: int = 0

    def __post_init__(self) -> None:
        check_int("link_occupancy", self.link_occupancy, 0)


def plan_settings(settings: Sequence[Setting], comparison: Comparison) -> list[Task]:
    """Return the solves on published settings in the order in which they are run.

    Raises
    ------
    InputError
        If a method is unknown, or a limit no limit.
    """
    for setting in settings:
        for limit in comparison.memory:
            parse_memory(limit, setting.devices)
    return _plan([setting_problem(setting) for setting in settings], comparison)


def plan_files(paths: Sequence[str], comparison: Comparison) -> list[Task]:
    """Return the solves on own instances, each named after its file without the suffix.

    Raises
    ------
    InputError
        If a file is no instance, two have the same name, a method is unknown or does not schedule the
        placement of an instance, or a limit is no limit or does not fit.
    """
    problems: dict[str, Problem] = {}
    for path in paths:
        name = Path(path).stem
        if name in problems:
            rule = f"another file is called {name!r} too, by which rows are told apart: rename one"
            raise InputError(rule, key="instances", value=path)
        problems[name] = file_problem(path, name)
    return _plan(list(problems.values()), comparison)


def _plan(problems: Sequence[Problem], comparison: Comparison) -> list[Task]:
    return combine(
        Experiment(
            problems=tuple(_with_link(problem, comparison.link_occupancy) for problem in problems),
            memory=tuple(map(_memory_change, comparison.memory)),
            objectives=(parse_objective(comparison.objective),),
            methods=comparison.methods,
            **conditions(comparison.allowance),
        )
    )


def _with_link(problem: Problem, occupancy: int) -> Problem:
    """Return the problem with links that a message keeps busy, which its name then says."""
    if not occupancy:
        return problem

    def make(placement: str) -> Instance:
        instance = problem.make(placement)
        return replace(instance, costs=replace(instance.costs, link_occupancy=occupancy))

    return Problem(f"{problem.name}{_LINK}{occupancy}", problem.placement, make)


def _memory_change(text: str) -> Change:
    if text == OWN:
        return UNCHANGED
    factor = _factor(text)
    short = f"{float(factor):g}"
    return memory_of_activations(f"{short if Fraction(short) == factor else factor}p", factor)


def parse_memory(text: str, devices: int) -> int:
    """Turn a limit such as ``2.5p`` into m_offset, in whole forward activations of a stage over 2p.

    The number of activations is rounded down; `limits_of_activations` says what one is.

    Raises
    ------
    InputError
        If the text is not a number followed by p, or the limit is under one activation.
    """
    factor = _factor(text)
    if factor * devices < 1:
        rule = f"must hold one forward activation: at least {Fraction(1, devices)}p at {devices} devices"
        raise InputError(rule, key="memory", value=text)
    return math.floor((factor - 2) * devices)


def _factor(text: str) -> Fraction:
    try:
        factor = Fraction(text.removesuffix("p")) if text.endswith("p") else None
    except (ValueError, ZeroDivisionError):
        factor = None
    if factor is None or factor <= 0:
        raise InputError("must be a positive number followed by p, e.g. 2.5p", key="memory", value=text)
    return factor


def _offset(row: Row) -> int | None:
    """Return the limit in activations over 2p; None where it is the instance's own."""
    return None if row.memory == OWN else parse_memory(row.memory, row.p)


def _of_the_setting(name: str) -> Cell:
    return lambda solve: getattr(load_settings()[_setting_name(solve.row.problem)], name)


def _setting_name(problem: str) -> str:
    return problem.split(_LINK)[0]


def _if_one_number(name: str) -> Cell:
    """Return what says a cost of the instance where it is the same everywhere."""

    def say(solve: Solve) -> object:
        value = instance_to_dict(solve.task.instance)[name]
        return value if isinstance(value, int) else None

    return say


_TIMES = {"f": "forward", "b": "backward", "w": "weight", "c": "comm"}
_SAME: dict[str, Cell] = {"m_offset": lambda solve: _offset(solve.row)}
_SETTING_NAMES = _TIMES | {name: name for name in ("hidden", "heads", "seq")}

SETTINGS_FORM = Form(
    cells(COLUMNS, _SAME | {column: _of_the_setting(name) for column, name in _SETTING_NAMES.items()}), _KEY
)
"""The table of published settings. Its times are those of a stage of the V placement."""

FILES_FORM = Form(
    cells(
        (*COLUMNS, "instance_hash"),
        _SAME
        | {column: _if_one_number(name) for column, name in _TIMES.items()}
        | dict.fromkeys(("hidden", "heads", "seq"), lambda _: None),
    ),
    (*_KEY, "instance_hash"),
)
"""The table of own instances: the hash tells a file that was edited from the one that a row is about."""


def lacking(row: Cells) -> dict[str, object]:
    """Return what a row of an earlier version says in the columns that it lacks.

    Raises
    ------
    InputError
        If the row's limit is not that of its setting: it was not always counted in stages of the placement.
    """
    (setting,) = choose_settings(_setting_name(row["setting"]))
    limit = f"{2 + Fraction(int(row['m_offset']), setting.devices)}p"
    comparison = Comparison((limit,), (row["method"],), row["objective"], Allowance(0))
    (task,) = plan_settings([setting], comparison)
    if str(task.row.memory_limit) != row["max_mem"]:
        said = f"2p{int(row['m_offset']):+d} activations of {setting.name} in {task.row.placement}"
        rule = f"{said} are {task.row.memory_limit} now; remove such rows"
        raise InputError(rule, key="max_mem", value=row["max_mem"])
    return added_cells(task.instance)
