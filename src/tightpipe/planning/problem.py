"""A planning problem: a model, a cluster, a batch, and the plans among which to choose."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.instance import Objective
from .cluster import Cluster
from .layered_model import Model
from .runtimes import RUNTIMES
from .tick import USUAL_TICK, Tick

USUAL_PLACEMENTS = RUNTIMES["any"].placements


@dataclass(frozen=True, slots=True)
class Batch:
    """The batch of one training step, and how pipelines share it.

    Parameters
    ----------
    microbatches
        Microbatches of one pipeline per training step, at least 1.
    tokens
        Tokens of one microbatch; None if throughput is to be given in microbatches.
    data_parallel
        Number of pipelines that work side by side, each with its own microbatches.
    """

    microbatches: int
    tokens: int | None = None
    data_parallel: int = 1


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The plans among which to choose.

    Parameters
    ----------
    placements
        Names of placements.
    chunks
        Stages per device to choose from; None takes the usual number of each placement. A number that a
        placement does not allow is left out for that placement.
    recompute
        Whether layers that have an `input` may be recomputed.
    objective
        The definition of the cost of a schedule.
    methods
        Names of the methods that may schedule a candidate; None for all heuristics and `best`. If `best` is
        not among them, only heuristics schedule, and the search looks for the partition that suits them best.
        In either case the bound holds for the schedules of all methods.
    runtime
        A name in `RUNTIMES`: the framework that is to run the plan.
    """

    placements: tuple[str, ...] = USUAL_PLACEMENTS
    chunks: tuple[int, ...] | None = None
    recompute: bool = False
    objective: Objective = Objective.STEP
    methods: tuple[str, ...] | None = None
    runtime: str = "any"

    @property
    def scheduling(self) -> tuple[str, ...]:
        """The methods that may schedule a candidate, for the runtime."""
        return RUNTIMES[self.runtime].methods if self.methods is None else self.methods


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """The input of `tightpipe.plan`.

    Parameters
    ----------
    model, cluster, batch
        The layers, the devices, and the batch of one training step.
    space
        The plans among which to choose.
    tick
        The time that a tick of the model and the cluster takes.
    """

    model: Model
    cluster: Cluster
    batch: Batch
    space: SearchSpace = SearchSpace()
    tick: Tick = USUAL_TICK

    def microbatches_per_second(self, ticks: int) -> float:
        """Return the microbatches per second of all pipelines together if a step takes so many ticks."""
        return float(self.batch.microbatches * self.batch.data_parallel / (ticks * self.tick.seconds))
