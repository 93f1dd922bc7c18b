"""A model and a configuration as arrays, from which compiled loops bound the cost of partitions.

A *configuration* is a placement with its devices and chunks. It leaves open where the model is cut and which
layers are recomputed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..core.errors import InputError
from ..core.instance import Objective
from ..core.placement import Placement
from ..kernels.arrays import Ints
from .candidate import comm_matrix
from .model import Layer
from .problem import PlanningProblem

NO_LIMIT = 2**62
_MOST_OPTIONS = 4096  # for the recomputation of one stage


class Tables(NamedTuple):
    """What the bound of a device's stages depends on, for L layers, S stages and p devices.

    An *interval* is a run of consecutive layers, which may become a stage. An *option* of an interval is one
    way to recompute some of its layers; those of the layers from `i` to `j - 1` have the numbers from
    `first_option[i * (L + 1) + j]` up to, not including, the next entry of that array.
    """

    forward: Ints  # (L + 1,) ticks of the F's of all layers before each one; the next ones likewise
    backward: Ints  # (L + 1,)
    weight: Ints  # (L + 1,)
    held: Ints  # (L + 1,) bytes that F takes
    freed: Ints  # (L + 1,) bytes of these that W frees
    parameters: Ints  # (L + 1,) number of parameters
    first_option: Ints  # ((L + 1) ** 2 + 1,)
    extra: Ints  # (options,) ticks by which B is longer
    saved: Ints  # (options,) bytes that F takes less
    transient: Ints  # (options,) bytes that B takes for a while
    hop: Ints  # (S,) ticks of all messages from stage 0 to each stage, the shortest possible ones
    back: Ints  # (S,) ticks of all messages from each stage back to stage 0
    room: Ints  # (p,) bytes of each device less the reserve, `NO_LIMIT` where memory does not matter
    static: float  # bytes of static state per parameter
    microbatches: int
    whole: bool  # whether all devices share one frame, because the cost is the makespan
    chunks: int


class Options:
    """The ways to recompute the layers of each interval, without those that are worse in all respects."""

    def __init__(self, problem: PlanningProblem, longest: int) -> None:
        self.problem, self._known = problem, {}  # type: ignore[var-annotated]
        self.sets: list[tuple[int, ...]] = []
        count = len(problem.model.layers)
        rows: list[tuple[int, int, int]] = []
        first = [0]
        for start in range(count + 1):
            for end in range(count + 1):
                if start < end <= start + longest:
                    for numbers, layers in self._of(start, end):
                        rows.append(numbers)
                        self.sets.append(layers)
                first.append(len(rows))
        self.first = np.array(first, np.int64)
        table = np.array(rows, np.int64).reshape(len(rows), 3)
        self.extra, self.saved, self.transient = (np.ascontiguousarray(column) for column in table.T)

    def _of(self, start: int, end: int) -> list[tuple[tuple[int, int, int], tuple[int, ...]]]:
        """Return the numbers and the layers of each option: ticks, bytes saved, bytes taken for a while."""
        plain = [((0, 0, 0), ())]
        if not self.problem.space.recompute:
            return plain  # type: ignore[return-value]
        if end - start == 1:
            before = plain
        else:
            before = self._known[start, end - 1]
        layer = self.problem.model.layers[end - 1]
        found = before if not layer.recomputable else _efficient(before, layer, end - 1)  # type: ignore[arg-type]
        if len(found) > _MOST_OPTIONS:
            rule = f"layers {start} to {end - 1} differ too much: at most {_MOST_OPTIONS} ways to recompute a stage"
            raise InputError(rule, key="search.recompute", value="blocks")
        self._known[start, end] = found
        return found  # type: ignore[return-value]


def _efficient(
    before: list[tuple[tuple[int, int, int], tuple[int, ...]]], layer: Layer, index: int
) -> list[tuple[tuple[int, int, int], tuple[int, ...]]]:
    """Return the options with one more layer, recomputed or not, of which none is worse than another one.

    Worse is an option that takes no fewer ticks, saves no more bytes and takes no fewer bytes for a while. Every
    schedule of it is one of the other option as well, with less memory and shorter B's.
    """
    saved = layer.activation - layer.kept
    again = [
        ((ticks + layer.forward, bytes_ + saved, max(transient, saved)), (*layers, index))
        for (ticks, bytes_, transient), layers in before
    ]
    kept: list[tuple[tuple[int, int, int], tuple[int, ...]]] = []
    for option in sorted(before + again, key=lambda o: (o[0][0], -o[0][1], o[0][2])):
        if not any(k[0][1] >= option[0][1] and k[0][2] <= option[0][2] for k in kept):
            kept.append(option)
    return kept


def tables_of(problem: PlanningProblem, placement: Placement, options: Options) -> Tables:
    """Return the arrays of a configuration with one route."""
    layers, (route,) = problem.model.layers, placement.routes
    smallest = min(layer.output or 0 for layer in layers)
    comm = comm_matrix(problem, placement, [smallest] * placement.stages)
    room = problem.cluster.memory_of(placement.devices)
    reserve, per_parameter = problem.cluster.reserve, problem.cluster.bytes_per_parameter
    return Tables(
        *(_sums([getattr(layer, key) for layer in layers]) for key in ("forward", "backward", "weight")),
        _sums([layer.activation for layer in layers]),
        _sums([layer.weight_activation for layer in layers]),
        _sums([layer.parameters for layer in layers]),
        *(options.first, options.extra, options.saved, options.transient),
        _sums([comm[a][b] for a, b in pairwise(route)]),
        _sums([comm[b][a] for a, b in pairwise(route)]),
        np.array([NO_LIMIT if room is None else size - reserve for size in room or (0,) * placement.devices]),
        float(per_parameter),
        problem.batch.microbatches,
        problem.space.objective is Objective.MAKESPAN,
        placement.stages_per_device,
    )


def _sums(values: list[int]) -> Ints:
    return np.concatenate(([0], np.cumsum(np.array(values, np.int64)))).astype(np.int64)
