"""`tightpipe compare` runs methods on published settings or on instance files, at given memory limits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from ..core.allowance import Allowance
from ..core.errors import InputError
from ..core.instance_file import instance_to_dict
from ..core.integers import check_int
from ..settings import Setting, load_settings
from .results_table import Form, Solve
from .sweep.axes import OWN, UNCHANGED, Change, memory_of_activations, parse_objective
from .sweep.experiment import Entry, Experiment, Problem, conditions
from .sweep.grid import combine
from .sweep.problems import file_problem, setting_problem
from .sweep.row import Row
from .sweep.task import Task
from .table_cells import Cell, cells

COLUMNS = (
    *("setting", "p", "n", "f", "b", "w", "c", "hidden", "heads", "seq", "m_offset", "max_mem"),
    *("memory_of_1f1b", "placement", "objective", "method", "status", "cost", "work", "bubble"),
    *("bubble_rate", "imbalance", "bound", "proof", "gap", "peak_mem", "seconds", "workers", "seed"),
    *("time_limit", "engine"),
    *("ortools_version", "host_cpus", "finished_at"),
)

# a solve is not run again if a row agrees with it in all these columns
_KEY = (
    *("setting", "m_offset", "placement", "objective", "method", "workers", "seed", "time_limit"),
    *("engine", "ortools_version"),
)
_LINK = " link "  # stands between a setting's name and its link occupancy in the name of a problem


@dataclass(frozen=True, slots=True)
class Comparison:
    """The choices that hold for all problems of a comparison.

    Parameters
    ----------
    memory
        Memory limits. ``2.5p`` is 2.5 p forward activations of one stage, p being the number of devices;
        ``own`` is the limit that the instance file states.
    methods
        Names of the methods. The report compares all further methods with the first one.
    objective
        The objective of all instances; ``own`` leaves each instance its own.
    allowance
        Time limit, threads, seed and memory cap of each solve.
    link_occupancy
        Ticks for which a message keeps its link busy, at least 0; 0 leaves the instances as they are.
    """

    memory: tuple[str, ...]
    methods: tuple[str, ...]
    objective: str
    allowance: Allowance
    link_occupancy: int = 0

    def __post_init__(self) -> None:
        check_int("link_occupancy", self.link_occupancy, 0)


def tasks_of_settings(settings: Sequence[Setting], comparison: Comparison) -> list[Task]:
    """Return the solves on published settings, in the sequence in which they run.

    Raises
    ------
    InputError
        If a method is unknown, or a memory limit cannot be read or is too small.
    """
    for setting in settings:
        for limit in comparison.memory:
            parse_memory(limit, setting.devices)
    return _plan([setting_problem(setting) for setting in settings], comparison)


def tasks_of_files(paths: Sequence[str], comparison: Comparison) -> list[Task]:
    """Return the solves on instance files; each instance is named after its file without the suffix.

    Raises
    ------
    InputError
        If a file holds no instance, two files have the same name, a method is unknown or does not schedule
        the placement of an instance, or a memory limit cannot be read or does not fit an instance.
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
            methods=tuple(map(Entry, comparison.methods)),
            **conditions(comparison.allowance),
        )
    )


def _with_link(problem: Problem, occupancy: int) -> Problem:
    """Return the problem with a link occupancy in ticks on its instances and in its name."""
    if not occupancy:
        return problem

    costs = replace(problem.native.costs, link_occupancy=occupancy)
    return replace(
        problem, name=f"{problem.name}{_LINK}{occupancy}", native=replace(problem.native, costs=costs)
    )


def _memory_change(text: str) -> Change:
    if text == OWN:
        return UNCHANGED
    factor = _factor(text)
    short = f"{float(factor):g}"
    return memory_of_activations(f"{short if Fraction(short) == factor else factor}p", factor)


def parse_memory(text: str, devices: int) -> int:
    """Return how far a limit such as ``2.5p`` lies above the limit 2p, in forward activations of one stage.

    p is `devices`, the number of devices: ``2.5p`` with 8 devices gives 4. The result is rounded down, and
    negative for a limit below 2p. It is the value of the column `m_offset`. `limits_of_activations` converts
    activations to the unit of memory.

    Raises
    ------
    InputError
        If the text is not a positive number followed by p, or the limit is below one activation.
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
    """Return the value of a row in the column `m_offset`; None if the memory limit is the instance's own."""
    return None if row.memory == OWN else parse_memory(row.memory, row.p)


def _of_the_setting(name: str) -> Cell:
    return lambda solve: getattr(load_settings()[_setting_name(solve.row.problem)], name)


def _setting_name(problem: str) -> str:
    return problem.split(_LINK)[0]


def _if_one_number(name: str) -> Cell:
    """Return a function that returns the time `name` of a solve's instance, in ticks.

    The function returns None if this time differs between stages or links.
    """

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
"""The columns and the key of the table of published settings.

The columns f, b and w hold the durations of a stage in the V placement, and c the communication time, all
in ticks.
"""

FILES_FORM = Form(
    cells(
        (*COLUMNS, "instance_hash"),
        _SAME
        | {column: _if_one_number(name) for column, name in _TIMES.items()}
        | dict.fromkeys(("hidden", "heads", "seq"), lambda _: None),
    ),
    (*_KEY, "instance_hash"),
)
"""The columns and the key of the table of the user's own instance files.

The key contains the hash of the instance, so that an edited file is solved again.
"""
