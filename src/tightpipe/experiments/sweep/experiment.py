"""An experiment is a declared grid of solves, as frozen data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ...core.allowance import Allowance
from ...core.instance import Instance
from ...core.params.solve_params import DEFAULTS, SolveParams
from .axes import UNCHANGED, Change

_GRACE = 60.0  # seconds that a solve gets beyond 1.2 times its time limit before it is killed


class FigureKind(StrEnum):
    """The kinds of figures that a study can have."""

    SETTINGS = "settings"  #: bubble rates of the methods on each problem
    MEMORY = "memory"  #: bubble rates against the memory limit
    FRONTIER = "frontier"  #: as `MEMORY`, per size of the problem, with the band in which the optimum lies
    COMM = "comm"  #: bubble rates against the communication time
    UNEVEN = "uneven"  #: bubble rates for each way in which stages are unlike
    ANYTIME = "anytime"  #: gaps over time
    SCALING = "scaling"  #: seconds until a gap is reached, against the number of devices


@dataclass(frozen=True, slots=True)
class Problem:
    """The source of instances of a grid: a published setting or an instance file.

    Parameters
    ----------
    name
        The problem's name in the rows.
    placement
        The placement of the instance file; None for a setting, which does not prescribe one.
    make
        Function that returns the instance in the placement of a given name.
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
        Axes of what is solved. Every problem is solved under every combination of changes that has one
        `Change` from each of the other axes.
    methods, costs, warm_starts, time_limits, seeds
        Axes of how an instance is solved. `costs` says which costs the method sees: ``true``, or ``median``
        for those of `settings.with_median_costs`. A warm start is ``best``, ``none`` or the name of a
        heuristic. Time limits are in seconds.
    hard_limit
        Seconds after which a solve is killed.
    threads
        Number of threads of each solve.
    memory_cap
        GiB of memory at which a solve is killed; None for a share of the machine's memory, see `Limits`.
    max_memory
        GB of memory at which CP-SAT and MILP end with the best schedule so far; None for no cap.
    params
        The numbers that tune the searches of all solves.
    keep_equal_costs
        The median costs of some instances are equal to their true costs. True keeps both solves of such an
        instance, so that every problem has the same rows; False keeps only the one with the true costs.
    figure
        Kind of the figure; None for no figure.
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
    params: SolveParams = DEFAULTS
    keep_equal_costs: bool = False
    figure: FigureKind | None = None
    slurm: Mapping[str, Any] = field(default_factory=dict)


def conditions(allowance: Allowance) -> dict[str, Any]:
    """Return the arguments of `Experiment` with which each of its solves gets this allowance."""
    limit = allowance.time_limit or 0.0
    return {
        "time_limits": (limit,),
        "hard_limit": usual_hard_limit(limit),
        "seeds": (allowance.seed,),
        "threads": allowance.threads,
        "max_memory": allowance.max_memory,
        "params": allowance.params,
    }


def usual_hard_limit(time_limit: float) -> float:
    """Return the seconds after which a solve with this time limit, in seconds, is killed."""
    return time_limit * 1.2 + _GRACE
