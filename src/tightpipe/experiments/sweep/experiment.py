"""Experiment: a declared grid of solves as frozen data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ...core.allowance import Allowance
from ...core.instance import Instance
from .axes import UNCHANGED, Change

_GRACE = 60.0  # seconds beyond the longest time limit before a solve is killed


class FigureKind(StrEnum):
    """What the figure of a study shows."""

    SETTINGS = "settings"  #: bubble rates of the methods on each problem
    MEMORY = "memory"  #: bubble rates against the memory limit
    COMM = "comm"  #: bubble rates against the communication time
    UNEVEN = "uneven"  #: bubble rates for each way in which stages are unlike
    ANYTIME = "anytime"  #: gaps over time
    SCALING = "scaling"  #: times to a gap against the number of devices


@dataclass(frozen=True, slots=True)
class Problem:
    """A setting or an instance file.

    Parameters
    ----------
    name
        As it stands in the rows.
    placement
        The only placement that it has; None where it is a model that can be placed in any way.
    make
        Returns the instance in a placement.
    """

    name: str
    placement: str | None
    make: Callable[[str], Instance]


@dataclass(frozen=True, slots=True)
class Experiment:
    """The axes of a grid, and the conditions of all its solves.

    Parameters
    ----------
    problems, devices, microbatches, uneven, comm, memory, objectives
        What is solved: every problem with every combination of changes.
    methods, costs, warm_starts, time_limits, seeds
        How it is solved. `costs` are ``true`` or ``median``, the costs that the method is shown; a
        warm start is ``best``, ``none`` or a heuristic; time limits in seconds.
    hard_limit
        Seconds after which a solve is killed.
    threads
        Threads of each solve.
    memory_cap
        GiB at which a solve is killed; None for its share of the machine's memory.
    max_memory
        GB at which CP-SAT and MILP end with the best schedule; None for no cap.
    keep_equal_costs
        Whether a method is shown the median costs also where they equal the true ones, so that every
        problem has the same rows; else such a solve is that with the true costs.
    figure
        What the figure shows; None for no figure.
    slurm
        Options of `dask_jobqueue.SLURMCluster`.
    """

    problems: tuple[Problem, ...]
    methods: tuple[str, ...]
    time_limits: tuple[float, ...]
    hard_limit: float
    devices: tuple[Change, ...] = (UNCHANGED,)
    microbatches: tuple[Change, ...] = (UNCHANGED,)
    uneven: tuple[Change, ...] = (replace(UNCHANGED, label=""),)
    comm: tuple[Change, ...] = (UNCHANGED,)
    memory: tuple[Change, ...] = (UNCHANGED,)
    objectives: tuple[Change, ...] = (UNCHANGED,)
    costs: tuple[str, ...] = ("true",)
    warm_starts: tuple[str, ...] = ("best",)
    seeds: tuple[int, ...] = (0,)
    threads: int = 1
    memory_cap: float | None = None
    max_memory: float | None = None
    keep_equal_costs: bool = False
    figure: FigureKind | None = None
    slurm: Mapping[str, Any] = field(default_factory=dict)


def conditions(allowance: Allowance) -> dict[str, Any]:
    """Return the entries of an experiment whose solves all have these options."""
    limit = allowance.time_limit or 0.0
    return {
        "time_limits": (limit,),
        "hard_limit": usual_hard_limit(limit),
        "seeds": (allowance.seed,),
        "threads": allowance.threads,
        "max_memory": allowance.max_memory,
    }


def usual_hard_limit(time_limit: float) -> float:
    """Return after how many seconds a solve is killed that should end at its time limit."""
    return time_limit * 1.2 + _GRACE
