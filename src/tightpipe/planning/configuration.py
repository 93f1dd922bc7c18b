"""A configuration: a placement for a model, of which the cuts and recomputed layers are still open."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ..model.placement import Placement
from ..params.budget import UNLIMITED, Budget
from .candidate import Candidate
from .device_bound_kernel import NEVER
from .layered_model import Model, Recomputed
from .model_arrays import OptionSets, RecomputeOptions, Tables, tables_of
from .problem import PlanningProblem, placements_of


class Arrays(NamedTuple):
    """The arrays from which partitions are bounded, and the recompute options whose numbers they use."""

    tables: Tables
    options: RecomputeOptions


@dataclass(frozen=True)
class Configuration:
    """A placement for a model, and slices of its microbatches; cuts and recomputed layers are still open.

    - `problem`: the planning problem.
    - `placement`: the placement, with its devices and chunks.
    - `sets`: for every interval of consecutive layers, the ways to recompute some of them, for a microbatch
      or, if these are cut, for the mean slice.
    - `slices`: the tokens of each slice of a sequence; () for whole microbatches.
    """

    problem: PlanningProblem
    placement: Placement
    sets: OptionSets
    slices: tuple[int, ...] = ()

    def candidate(self, cuts: tuple[int, ...], recomputed: tuple[Recomputed, ...]) -> Candidate:
        """Return the candidate of this configuration with these cuts and recomputed layers."""
        return Candidate(self.placement, cuts, recomputed, self.slices)

    @property
    def layers(self) -> int:
        """Number of layers of the model."""
        return len(self.problem.model.layers)

    @property
    def has_no_cuts(self) -> bool:
        """Whether the model cannot be cut into so many possible stages."""
        return self.placement.stages >= len(self.problem.model.finest_cuts())

    @property
    def mean_work(self) -> float:
        """Mean work of a device for all microbatches in ticks, without recomputation."""
        return self.problem.batch.microbatches * sum(self.ticks) / self.placement.devices

    @cached_property
    def units(self) -> tuple[Model, ...]:
        """The model for each slice of a microbatch, or for the whole one."""
        return self.problem.units(self.slices)

    @cached_property
    def ticks(self) -> list[int]:
        """The least ticks of each layer for one microbatch with all its slices, without recomputation."""
        if not self.slices:
            return [layer.forward + sum(layer.least) for layer in self.problem.bounding_layers]
        each = zip(*(unit.layers for unit in self.units), strict=True)
        return [sum(layer.forward + sum(layer.least) for layer in layers) for layers in each]

    def arrays(self, cap: int = NEVER, until: Budget = UNLIMITED) -> Arrays:
        """Return the arrays from which all bounds below `cap` ticks can be computed.

        Of microbatches in slices they have every slice as a microbatch of its own, as large as the mean
        slice. Bounds of these only say which cuts are good.

        Every run of consecutive layers can become a stage. Let k be the most layers of a run whose work for
        all microbatches is at most `cap` ticks. Runs of more than k layers get no recompute options, and so
        loops over the options leave them out: a device with such a stage has a bound above `cap`.
        """
        options = self.sets.up_to(self._longest(cap), until)
        return Arrays(tables_of(self.problem.evenly_cut(self.slices), self.placement, options), options)

    def _longest(self, cap: int) -> int:
        """Return the most layers that a stage can have if its work is at most `cap` ticks, at least 1."""
        most = max(1, self.layers - self.placement.stages + 1)
        per_microbatch, longest, first, ticks = cap // self.problem.batch.microbatches, 1, 0, 0
        for end, last in enumerate(self.ticks, 1):
            ticks += last
            while ticks > per_microbatch:
                ticks -= self.ticks[first]
                first += 1
            longest = max(longest, end - first)
        return min(longest, most)


def configurations_of(problem: PlanningProblem) -> list[Configuration]:
    """Return the configurations of the search space."""
    sets = [(slices, OptionSets(problem.evenly_cut(slices))) for slices in problem.slicings]
    return [
        Configuration(problem, placement, ways, slices)
        for placement in placements_of(problem)
        for slices, ways in sets
    ]
