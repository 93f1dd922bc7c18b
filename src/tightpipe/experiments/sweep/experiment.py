"""An experiment is a declared grid of solves, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ...core.allowance import Allowance
from ...core.instance import Instance
from ...core.params.solve_params import DEFAULTS, SolveParams
from .axes import UNCHANGED, Change
from .placing import Backwards

_GRACE = 60.0  # seconds that a solve gets beyond 1.2 times its time limit before it is killed


class FigureKind(StrEnum):
    """The kinds of figures that a study can have."""

    SETTINGS = "settings"  #: bubble rates of the methods on each problem
    MEMORY = "memory"  #: bubble rates against the memory limit
    FRONTIER = "frontier"  #: as `MEMORY`, per size of the problem, with the band in which the optimum lies
    COMM = "comm"  #: bubble rates against the communication time
    AVOIDED = "avoided"  #: shares of what greedy-v costs above the best bound that methods avoid
    UNEVEN = "uneven"  #: bubble rates for each way in which stages are unlike
    EQUAL_MEMORY = "equal-memory"  #: bubble rates against the memory limit over the peak memory of 1F1B
    DISCOUNT = "discount"  #: bubble rates against what a fused backward saves
    ANYTIME = "anytime"  #: gaps over time
    SCALING = "scaling"  #: seconds until a gap is reached, against the number of devices


@dataclass(frozen=True, slots=True)
class Problem:
    """The source of instances of a grid: a published setting, an instance file, or a model by layers.

    Parameters
    ----------
    name
        The problem's name in the rows.
    native
        The instance, in the placement from which stages are joined and cut for others. A model by layers has
        one stage for each layer, in the placement ``linear``.
    free
        Whether a method without a placement of its own gets the placement ``v`` or, if it does not schedule
        that, its first one. Otherwise it gets the placement of `native`.
    layered
        Whether this is a model by layers, which an experiment places on a number of devices.
    """

    name: str
    native: Instance
    free: bool = False
    layered: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A method of a grid, and the placement and the backwards of its schedules.

    Parameters
    ----------
    method
        The name of the method, or ``module:function`` for a heuristic of your own.
    placement, chunks
        The placement, and its stages per device; None for that of the problem, and for the usual number.
    backwards
        Whether all backwards are fused or split, or each as the method likes.
    name
        The name under which tables and figures show it, made of the above if it is empty. Of several entries
        with the same name, they show the cheapest schedule.
    """

    method: str
    placement: str | None = None
    chunks: int | None = None
    backwards: Backwards = Backwards.ANY
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            where = f" on {self.placement}" if self.placement else ""
            chunks = f" x {self.chunks}" if self.chunks else ""
            how = "" if self.backwards is Backwards.ANY else f", only {self.backwards}"
            object.__setattr__(self, "name", f"{self.method}{where}{chunks}{how}")


@dataclass(frozen=True, slots=True)
class Experiment:
    """The axes of a grid, and the conditions of all its solves.

    Parameters
    ----------
    problems, devices, microbatches, uneven, comm, discount, memory, objectives
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
    baseline
        Name of the method against which the page measures the others; None for none.
    slurm
        Options of `dask_jobqueue.SLURMCluster`.
    """

    problems: tuple[Problem, ...]
    methods: tuple[Entry, ...]
    time_limits: tuple[float, ...]
    hard_limit: float
    devices: tuple[Change, ...] = (UNCHANGED,)
    microbatches: tuple[Change, ...] = (UNCHANGED,)
    uneven: tuple[Change, ...] = (replace(UNCHANGED, label=""),)
    comm: tuple[Change, ...] = (UNCHANGED,)
    discount: tuple[Change, ...] = (UNCHANGED,)
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
    baseline: str | None = None
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
