"""Plans made by hand: a model, a cluster, a cut, and the schedule of a heuristic."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tightpipe import Placement, Status, solve
from tightpipe.model.placement import PLACEMENTS
from tightpipe.model.result import LogEntry
from tightpipe.planning import (
    Batch,
    Candidate,
    Cluster,
    Layer,
    Model,
    Plan,
    PlanningProblem,
    Recomputation,
    SearchSpace,
)
from tightpipe.planning.candidate import instance_of
from tightpipe.planning.layered_model import Recomputed


def full(ticks: int, kept: int) -> tuple[Recomputation]:
    """The only kind of recomputation of a layer."""
    return (Recomputation("full", ticks, kept),)


def alike(stages: Sequence[Sequence[int]], kind: str = "full") -> tuple[Recomputed, ...]:
    """Return the recomputed layers of each stage, all in one kind."""
    return tuple(tuple((index, kind) for index in stage) for stage in stages)


EMBEDDING = Layer("embedding", 2, 0, 3, activation=10, recompute=full(2, 4), parameters=50)
BLOCK = Layer("block", 10, 11, 9, activation=30, weight_activation=8, recompute=full(10, 5), parameters=100)
HEAD = Layer("head", 6, 6, 5, activation=20, parameters=60)
LAYERS = (EMBEDDING, *(BLOCK,) * 8, HEAD)
CLUSTER = Cluster((1, 2, 3, 4), memory=4000, reserve=70, bytes_per_parameter=Fraction(3), comm=1)

SPACE = SearchSpace(
    tuple(name for name in PLACEMENTS if name != "bidirectional"), chunks=(1, 2), recompute=("full",)
)


def problem(
    layers: Sequence[Layer] = LAYERS,
    cluster: Cluster = CLUSTER,
    batch: Batch | None = None,
    space: SearchSpace | None = None,
) -> PlanningProblem:
    return PlanningProblem(Model(tuple(layers)), cluster, batch or Batch(4, 1024, 3), space or SPACE)


def plan(
    asked: PlanningProblem | None = None,
    placement: Placement | None = None,
    cuts: tuple[int, ...] = (0, 3, 5, 7, 10),
    recomputed: tuple[tuple[int, ...], ...] = ((1, 2), (), (6,), ()),
    kind: str = "full",
    **more: Any,
) -> Plan:
    asked = asked or problem()
    placement = placement or Placement("v", 2)
    candidate = Candidate(placement, cuts, alike(recomputed, kind), resident=asked.residents(placement)[0])
    found = solve(instance_of(asked, candidate), "list", time_limit=1)
    fields = {"seconds": 1.5, "considered": 7, "log": (LogEntry(0.5, found.cost, found.bound),), **more}
    return Plan(
        asked, found.status, candidate, found.schedule, found.method, found.bound, found.proof, **fields
    )


def no_plan(asked: PlanningProblem | None = None) -> Plan:
    reason = "device 0 lacks 12 bytes"
    return Plan(
        asked or problem(), Status.INFEASIBLE, None, None, "", None, None, 0.25, considered=3, reason=reason
    )
