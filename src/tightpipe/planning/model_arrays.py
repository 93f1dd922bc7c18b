"""A model and a placement as arrays, from which compiled loops compute bounds of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..core.instance import Objective
from ..core.placement import Placement
from ..kernels.arrays import Ints
from .candidate import comm_matrix
from .cluster import Gradients
from .problem import PlanningProblem
from .recompute_options import RecomputeOptions

NO_LIMIT = 2**62


class Tables(NamedTuple):
    """What `device_bound` needs to know of a model and a placement, for L layers, S stages and p devices.

    An *interval* is a run of consecutive layers, which may become a stage. An *option* is one way to
    recompute some of its layers. `RecomputeOptions` numbers the options of all intervals.
    """

    forward: Ints  # (L + 1,) ticks of the F's of the first 0, 1, ..., L layers; the next five likewise
    backward: Ints  # (L + 1,) those of the B's and W's are as short as `Layer.least` says
    weight: Ints  # (L + 1,)
    held: Ints  # (L + 1,) bytes that F takes, without recomputation
    freed: Ints  # (L + 1,) bytes that W frees, a part of `held`
    parameters: Ints  # (L + 1,) number of parameters
    trained: Ints  # (L + 1,) number of those that have gradients
    first_option: Ints  # ((L + 1) ** 2 + 1,) `RecomputeOptions.first`
    extra: Ints  # (options,) ticks that recomputation adds to B
    saved: Ints  # (options,) how many fewer bytes F takes than without recomputation
    transient: Ints  # (options,) bytes that B takes only while it recomputes
    hop: Ints  # (S,) total ticks of the messages from stage 0 to each stage if they are as short as possible
    back: Ints  # (S,) total ticks of the messages from each stage back to stage 0, likewise
    room: Ints  # (p,) memory of each device less the reserve; `NO_LIMIT` where memory does not matter
    static: float  # bytes of static state per parameter
    microbatches: int
    whole: bool  # whether the cost is the makespan, the span of all devices together, not of one device
    chunks: int  # stages per device
    latency: float  # ticks of an exchange of gradients or parameters between pipelines
    reduce: float  # ticks to reduce the gradient of a parameter; like the next two, 0 if it does not count
    gather: float  # ticks to gather a parameter
    optimizer: float  # ticks to update a parameter


def tables_of(problem: PlanningProblem, placement: Placement, options: RecomputeOptions) -> Tables:
    """Return the arrays of the problem's model and a placement in which all microbatches take one route.

    A route says which device runs each stage.

    The arrays `first_option`, `extra`, `saved` and `transient` are those of `options`.
    """
    layers, (route,) = problem.model.layers, placement.routes
    smallest = min((layer.output or 0 for layer in layers[:-1]), default=0)  # the last layer sends nothing
    comm = comm_matrix(problem, placement, [smallest] * placement.stages)
    counts = problem.space.objective is Objective.STEP
    gradients = (problem.cluster.gradients if counts else None) or Gradients(1)
    room = (
        problem.cluster.memory_of(placement.devices)
        or (NO_LIMIT + problem.cluster.reserve,) * placement.devices
    )
    return Tables(
        forward=_sums(layer.forward for layer in layers),
        backward=_sums(layer.least[0] for layer in layers),
        weight=_sums(layer.least[1] for layer in layers),
        held=_sums(layer.activation for layer in layers),
        freed=_sums(layer.needed for layer in layers),
        parameters=_sums(layer.parameters for layer in layers),
        trained=_sums(layer.trained for layer in layers),
        first_option=options.first,
        extra=options.extra,
        saved=options.saved,
        transient=options.transient,
        hop=_sums(comm[a][b] for a, b in pairwise(route)),
        back=_sums(comm[b][a] for a, b in pairwise(route)),
        room=np.array([size - problem.cluster.reserve for size in room], np.int64),
        static=float(problem.cluster.bytes_per_parameter),
        microbatches=problem.batch.microbatches,
        whole=problem.space.objective is not Objective.DEVICE_SPAN,
        chunks=placement.stages_per_device,
        latency=float(gradients.latency),
        reduce=float(gradients.reduce_rate),
        gather=float(gradients.gather_rate),
        optimizer=float(gradients.optimizer_rate),
    )


def _sums(values: Iterable[int]) -> Ints:
    return np.cumsum([0, *values], dtype=np.int64)
