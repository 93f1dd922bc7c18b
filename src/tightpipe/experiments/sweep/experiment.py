"""Experiment: a declared grid of solves as frozen data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ...core.instance import Instance
from .axes import Change


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
    figure
        What the figure shows; None for no figure.
    slurm
        Options of `dask_jobqueue.SLURMCluster`.
    """

    problems: tuple[Problem, ...]
    devices: tuple[Change, ...]
    microbatches: tuple[Change, ...]
    uneven: tuple[Change, ...]
    comm: tuple[Change, ...]
    memory: tuple[Change, ...]
    objectives: tuple[Change, ...]
    methods: tuple[str, ...]
    costs: tuple[str, ...]
    warm_starts: tuple[str, ...]
    time_limits: tuple[float, ...]
    seeds: tuple[int, ...]
    hard_limit: float
    threads: int = 1
    memory_cap: float | None = None
    figure: FigureKind | None = None
    slurm: Mapping[str, Any] = field(default_factory=dict)
