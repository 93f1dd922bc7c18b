"""The grids of `tightpipe compare` and of `tightpipe paper realistic`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.allowance import Allowance
from ..core.errors import InputError
from ..core.integers import check_int
from ..settings import Setting, load_realistic
from .axes import Change, named_change, parse_memory, parse_objective
from .experiment import Entry, Experiment, Problem, conditions, file_problem, setting_problem
from .grid import combine
from .task import Task


@dataclass(frozen=True, slots=True)
class Comparison:
    """The choices that hold for all problems of a comparison.

    Parameters
    ----------
    memory
        Memory limits as in an experiment file, e.g. ``2p`` or ``own``.
    methods
        Names of the methods.
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
            memory=tuple(map(_memory, comparison.memory)),
            objectives=(parse_objective(comparison.objective),),
            methods=tuple(map(Entry, comparison.methods)),
            **conditions(comparison.allowance),
        )
    )


def _memory(text: str) -> Change:
    return named_change("memory", parse_memory, int(text) if text.isdecimal() else text)


def _with_link(problem: Problem, occupancy: int) -> Problem:
    """Return the problem with a link occupancy in ticks on its instances and in its name."""
    if not occupancy:
        return problem
    costs = replace(problem.native.costs, link_occupancy=occupancy)
    return replace(
        problem, name=f"{problem.name} link {occupancy}", native=replace(problem.native, costs=costs)
    )


def choose_realistic(text: str) -> list[str]:
    """Return the names of the realistic instances that ``all`` or a comma-separated list stands for.

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


_GREEDY, _SEARCHES = ("greedy-v",), ("cpsat", "improve", "best")


def tasks_of_realistic(names: Sequence[str], allowance: Allowance) -> list[Task]:
    """Return the solves on instances with recomputation, slow stages, slow links or scarce memory.

    The first one on each is that of `greedy-v` with the median of the costs of all stages in place of each
    stage's own costs; its order is then timed with the true costs.
    """
    tasks = []
    for name in names:
        problem = Problem(name, load_realistic()[name].instance())
        for methods, costs in (
            (("greedy-v",), ("median", "true")),
            (("cpsat", "improve", "best"), ("true",)),
        ):
            entries = tuple(map(Entry, methods))
            grid = Experiment(
                (problem,), entries, costs=costs, keep_equal_costs=True, **conditions(allowance)
            )
            tasks += combine(grid)
    return tasks
