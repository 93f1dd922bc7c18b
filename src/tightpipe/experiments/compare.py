"""Heuristic against exact: every setting x memory limit x method, one row each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ..core.activations import limits_of_activations
from ..core.allowance import Allowance
from ..core.errors import InputError
from ..core.instance import Instance, Objective
from ..core.integers import check_int
from ..core.interruption import raise_again
from ..core.progress import Progress
from ..core.result import Result
from ..settings import Setting, load_settings
from ..solving.methods import find_method
from ..solving.solve import solve
from .row_store import Row, RowStore
from .solve_columns import added_columns, allowance_columns, memory_column, result_columns

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


@dataclass(frozen=True, slots=True)
class Task:
    """One row to compute."""

    setting: Setting
    m_offset: int
    objective: Objective
    method: str
    allowance: Allowance
    link_occupancy: int = 0

    @property
    def label(self) -> str:
        """Name of the setting, with the link occupancy where messages can wait for each other."""
        return f"{self.setting.name} link {self.link_occupancy}" if self.link_occupancy else self.setting.name

    @property
    def searches(self) -> bool:
        """Whether time limit, workers and seed have a meaning for the method."""
        return find_method(self.method).kind != "heuristic"

    @property
    def placement(self) -> str:
        """The V placement of the settings, or for a method that cannot schedule it, the method's own."""
        placements = find_method(self.method).placements
        return "v" if "v" in placements else placements[0]

    @property
    def instance(self) -> Instance:
        """The problem of the row; its limit is in activations of a stage of its own placement."""
        placed = self.setting.instance(objective=self.objective, placement=self.placement)
        assert placed.memory is not None
        limits = limits_of_activations(placed, 2 * placed.devices + self.m_offset)
        memory = replace(placed.memory, limit=limits)
        return replace(placed, memory=memory, costs=replace(placed.costs, link_occupancy=self.link_occupancy))

    def key_columns(self) -> dict[str, object]:
        """Return the columns that are known before the solve."""
        setting, instance = self.setting, self.instance
        return {
            "setting": self.label,
            "p": setting.devices,
            "n": setting.microbatches,
            "f": setting.forward,
            "b": setting.backward,
            "w": setting.weight,
            "c": setting.comm,
            "hidden": setting.hidden,
            "heads": setting.heads,
            "seq": setting.seq,
            "m_offset": self.m_offset,
            "max_mem": instance.memory_limit(0),
            **memory_column(instance),
            "placement": self.placement,
            "objective": str(self.objective),
            "method": self.method,
        } | allowance_columns(self.allowance, searches=self.searches)


def parse_memory(text: str, devices: int) -> int:
    """Turn a limit such as ``2.5p`` into m_offset, in whole forward activations of a stage over 2p.

    The number of activations is rounded down; `limits_of_activations` says what one is.

    Raises
    ------
    InputError
        If the text is not a number followed by p, or the limit is under one activation.
    """
    try:
        factor = Fraction(text.removesuffix("p")) if text.endswith("p") else None
    except (ValueError, ZeroDivisionError):
        factor = None
    if factor is None or factor <= 0:
        raise InputError("must be a positive number followed by p, e.g. 2.5p", key="memory", value=text)
    if factor * devices < 1:
        rule = f"must hold one forward activation: at least {Fraction(1, devices)}p at {devices} devices"
        raise InputError(rule, key="memory", value=text)
    return math.floor((factor - 2) * devices)


def choose_settings(text: str) -> list[Setting]:
    """Return the settings that ``active``, ``all`` or a comma-separated list of names stand for.

    Raises
    ------
    InputError
        If a name is unknown.
    """
    known = load_settings()
    if text == "all":
        return list(known.values())
    if text == "active":
        return [setting for setting in known.values() if setting.active]
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise InputError(f"must be active, all, or of {', '.join(known)}", key="settings", value=name)
    return [known[name] for name in names]


def plan(
    settings: Sequence[Setting],
    memory: Sequence[str],
    methods: Sequence[str],
    objective: Objective,
    allowance: Allowance,
    link_occupancy: int = 0,
) -> list[Task]:
    """Return the rows of a run in the order in which they are computed, checked before anything runs."""
    check_int("link_occupancy", link_occupancy, 0)
    for method in methods:
        find_method(method)
    return [
        Task(setting, parse_memory(limit, setting.devices), objective, method, allowance, link_occupancy)
        for setting in settings
        for limit in memory
        for method in methods
    ]


def missing(tasks: Sequence[Task], store: RowStore) -> list[Task]:
    """Return the tasks that have no row yet, or whose heuristic is an installed package's.

    Such a heuristic may have been edited since its row was computed, and it takes little time.
    """
    absent = set(store.missing(tasks, _KEY))
    return [task for task in tasks if task in absent or find_method(task.method).code]


def run(
    tasks: Sequence[Task], store: RowStore, watch: Callable[[Task], Progress]
) -> Iterator[tuple[Task, Result]]:
    """Compute the tasks and append each row as it finishes.

    A solve that Ctrl-C or SIGTERM ended early is no row: its KeyboardInterrupt is raised again instead.
    """
    for task in tasks:
        allowance = task.allowance
        result = solve(
            task.instance,
            task.method,
            time_limit=allowance.time_limit,
            workers=allowance.workers,
            seed=allowance.seed,
            max_memory=allowance.max_memory,
            progress=watch(task),
        )
        raise_again(result.reason)
        store.append(row_of(task, result))
        yield task, result


def lacking(row: Row) -> dict[str, object]:
    """Return what a row of an earlier version says in the columns that it lacks.

    Raises
    ------
    InputError
        If the row's limit is not that of its setting: it was not always counted in stages of the placement.
    """
    (setting,) = choose_settings(row["setting"].split(" link ")[0])
    task = Task(setting, int(row["m_offset"]), Objective(row["objective"]), row["method"], Allowance())
    limit = task.instance.memory_limit(0)
    if str(limit) != row["max_mem"]:
        rule = f"2p{task.m_offset:+d} activations of {setting.name} in {task.placement} are {limit} now"
        raise InputError(f"{rule}; remove such rows", key="max_mem", value=row["max_mem"])
    return added_columns(task.instance)


def row_of(task: Task, result: Result) -> dict[str, object]:
    """Return the row of a finished task."""
    return task.key_columns() | result_columns(result)
