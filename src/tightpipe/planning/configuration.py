"""A configuration: a placement for a model, of which the cuts and recomputed layers are still open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise, product
from math import comb
from typing import NamedTuple

import numpy as np

from ..model.placement import Placement
from ..params.budget import UNLIMITED, Budget
from .candidate import Candidate
from .device_bound_kernel import NEVER
from .fixed_orders import Ramps
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
    - `slices`: the tokens of each slice of a sequence; () for whole microbatches. Where slices may have any
      lengths, they are those with which a search begins.
    - `resident`: how many stages of a device stay gathered, as `problem` has it; None if it shares none.
    """

    problem: PlanningProblem
    placement: Placement
    sets: OptionSets
    slices: tuple[int, ...] = ()
    resident: int | None = None

    def candidate(self, cuts: tuple[int, ...], recomputed: tuple[Recomputed, ...]) -> Candidate:
        """Return the candidate of this configuration with these cuts and recomputed layers."""
        return Candidate(self.placement, cuts, recomputed, self.slices, self.resident)

    @property
    def layers(self) -> int:
        """Number of layers of the model."""
        return len(self.problem.model.layers)

    @property
    def has_no_cuts(self) -> bool:
        """Whether the model cannot be cut into so many possible stages."""
        needed = min(2, self.placement.stages) if self.may_be_empty else self.placement.stages
        return needed >= len(self.problem.model.finest_cuts())

    @property
    def may_be_empty(self) -> bool:
        """Whether stages but the first and the last one may have no layers."""
        return self.problem.space.empty

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        more = max(0, self.placement.stages - 2) if self.may_be_empty else 0
        return comb(self.layers - 1 + more, self.placement.stages - 1)

    @property
    def most_layers(self) -> int:
        """The most layers of a stage."""
        others = min(2, self.placement.stages) if self.may_be_empty else self.placement.stages
        return self.layers - others + 1

    @cached_property
    def joined(self) -> Joined | None:
        """The configuration with joined stages; None where layers that these could have differ too much."""
        return _joined(self)

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
        if self.problem.slides and self.problem.law is not None:
            tokens = self.problem.batch.tokens or 0
            whole = tokens, tokens * self.problem.sequence, len(self.slices)
            return [layer.least_ticks(*whole) for layer in self.problem.law.layers]
        each = zip(*(unit.layers for unit in self.units), strict=True)
        return [sum(layer.forward + sum(layer.least) for layer in layers) for layers in each]

    @cached_property
    def heads(self) -> list[int]:
        """The least ticks of each layer's F for the first microbatch, or for its first slice."""
        layers = self.units[0].layers if self.slices else self.problem.bounding_layers
        unknown = bool(self.slices) and self.problem.slides
        return [0 if unknown else layer.computing.forward for layer in layers]

    def arrays(self, cap: int = NEVER, until: Budget = UNLIMITED, *, free_ticks: bool = False) -> Arrays:
        """Return the arrays from which all bounds below `cap` ticks can be computed.

        With `free_ticks`, they are for bounds in bytes alone, and `RecomputeOptions` says what is left out.

        Of microbatches in slices they have every slice as a microbatch of its own, as large as the mean
        slice. Bounds of these only say which cuts are good. Runs of layers that are so long that their work
        for all microbatches is more than `cap` ticks get no recompute options, and so loops over the options
        leave them out.
        """
        options = self.sets.up_to(self._longest(cap), until, free_ticks=free_ticks)
        return Arrays(tables_of(self.problem.evenly_cut(self.slices), self.placement, options), options)

    def _longest(self, cap: int) -> int:
        """Return the most layers that a stage can have if its work is at most `cap` ticks, at least 1."""
        per_microbatch, longest, first, ticks = cap // self.problem.batch.microbatches, 1, 0, 0
        for end, last in enumerate(self.ticks, 1):
            ticks += last
            while ticks > per_microbatch:
                ticks -= self.ticks[first]
                first += 1
            longest = max(longest, end - first)
        return min(longest, max(1, self.most_layers))


@dataclass(frozen=True, kw_only=True)
class Joined(Configuration):
    """A configuration in which a device takes the layers of all its stages but the first one together.

    These layers are equal, but for the last one of the model, so only their number matters to a bound. What
    holds for every way to share them among the stages holds for every candidate of the configuration `whole`.

    - `whole`: the configuration with all stages.
    - `kept`: the index of each layer in the model. Layers near its end that differ from the others are left
      out, by which no candidate gets dearer.
    """

    whole: Configuration
    kept: tuple[int, ...]

    @property
    def most_layers(self) -> int:
        """The most layers of a device's joined stages."""
        return self.layers - self.placement.devices

    @property
    def _later(self) -> int:
        """How many stages of a device are joined."""
        return self.placement.stages_per_device - 1

    @property
    def is_exact(self) -> bool:
        """Whether `candidates` has all candidates, up to equal layers."""
        few = comb(self.most_layers, self._later - 1) <= _MOST_SHARES
        alike = self._later == 1 or not self.problem.space.recompute
        return self.layers == self.whole.layers and few and alike

    def arrays(self, cap: int = NEVER, until: Budget = UNLIMITED, *, free_ticks: bool = False) -> Arrays:
        """Return the arrays of two stages per device, the second one joined; see `Configuration.arrays`."""
        tables, options = super().arrays(cap, until, free_ticks=free_ticks)
        # a message may be that of a layer that is left out
        messages = tables_of(self.whole.problem, self.placement, options)
        fewest = self._later - (self.whole.layers - self.layers)
        joined = tables._replace(hop=messages.hop, back=messages.back, chunks=2, joined=fewest)
        joined = joined._replace(most_leaving=self._later * tables.most_leaving)
        return Arrays(joined._replace(**_joined_ramps(tables)._asdict()), options)

    def candidate(self, cuts: tuple[int, ...], recomputed: tuple[Recomputed, ...]) -> Candidate:
        """Return the candidate of the whole configuration, with the layers that are left out."""
        index = (*self.kept, self.whole.layers)
        again = (tuple((index[layer], kind) for layer, kind in stage) for stage in recomputed)
        return self.whole.candidate(tuple(index[cut] for cut in cuts), tuple(again))

    def candidates(self, options: RecomputeOptions, ways: Sequence[Sequence[int]]) -> Iterator[Candidate]:
        """Yield the candidates in which devices take their stages in these ways, the most even ones first.

        `ways` is explained at `candidates_by_table.candidate_of`. Where some of a device's joined layers are
        recomputed, it is the first ones.
        """
        (route,), left, shares = self.placement.routes, self.layers - 1, list[list[tuple[int, ...]]]()
        for device, (_, y, *_) in enumerate(ways):
            shares.append(_shares(left - y + (device == route[-1]), self._later))
            left = y
        for sizes in product(*shares):
            yield self._shared(options, ways, sizes)

    def _shared(
        self, options: RecomputeOptions, ways: Sequence[Sequence[int]], sizes: Sequence[tuple[int, ...]]
    ) -> Candidate:
        """Return the candidate in which a device's later stages have as many layers as `sizes` says of it."""
        (route,), first = self.placement.routes, [x for x, *_ in ways]
        recomputed = list(options.of(way[2] for way in ways))
        size = [iter(one) for one in sizes]
        kinds = [
            self._kinds(dict(options.layers[way[3]]), sum(one), device == route[-1])
            for device, (way, one) in enumerate(zip(ways, sizes, strict=True))
        ]
        cuts = [0, *first]
        for device in route[self.placement.devices :]:
            stage = range(cuts[-1], cuts[-1] + next(size[device]))
            found = [(layer, next(kinds[device])) for layer in stage]
            recomputed.append(tuple((layer, kind) for layer, kind in found if kind))
            cuts.append(stage.stop)
        return self.candidate(tuple(cuts), tuple(recomputed))

    def _kinds(self, again: dict[int, str], count: int, has_last: bool) -> Iterator[str]:
        """Yield the kind in which each of a device's joined layers is recomputed, '' for none."""
        alike = range(count - has_last)
        kinds = [again[layer] for layer in alike if layer in again]
        yield from (*kinds, *[""] * (len(alike) - len(kinds)))
        yield from [again.get(len(alike), "")] * has_last


def _joined_ramps(tables: Tables) -> Ramps:
    """Return the most, or the fewest, microbatches of any later stage of a device as those of one stage."""
    most = (tables.first, tables.turn, tables.last, tables.wind)
    first, turn, last, wind = (np.stack([each[:, 0], each[:, 1:].max(axis=1)], axis=1) for each in most)
    return Ramps(
        first, turn, last, wind, np.stack([tables.flight[:, 0], tables.flight[:, 1:].min(axis=1)], axis=1)
    )


_MOST_SHARES = 1000


def _shares(count: int, stages: int) -> list[tuple[int, ...]]:
    """Return the ways to share so many equal layers among stages, the most even ones first.

    Of equally even ones, that whose last stages have more comes first. It keeps fewer activations, and in
    interleaved 1F1B costs least.

    If there are very many ways, only that one is returned.
    """
    if comb(count - 1, stages - 1) > _MOST_SHARES:
        return [tuple((count + k) // stages for k in range(stages))]
    cuts = ((0, *inner, count) for inner in combinations(range(1, count), stages - 1))
    sizes = [tuple(b - a for a, b in pairwise(each)) for each in cuts]
    return sorted(sizes, key=lambda each: (sum(size * size for size in each), each))


def _joined(whole: Configuration) -> Joined | None:
    """Return the configuration with joined stages, or None.

    The first stage of each device has a layer, so that joined stages begin after as many layers as devices.
    """
    placement, devices = whole.placement, whole.placement.devices
    layers = [replace(layer, name="", kind=None) for layer in whole.problem.model.layers]
    later = placement.stages_per_device - 1
    if later < 1 or placement.name not in ("loop", "wave") or whole.slices or whole.problem.model.frozen:
        return None
    if whole.may_be_empty:
        return None
    usual, end = layers[devices], whole.layers - later * devices  # the first stages end there at the latest
    odd = [k for k in range(devices, whole.layers - 1) if layers[k] != usual]
    possible = usual.computing.forward and usual.computing.backward
    if not possible or len(odd) >= later or any(k < end for k in odd):
        return None
    kept = tuple(k for k in range(whole.layers) if k not in odd)
    problem = replace(whole.problem, model=Model(tuple(layers[k] for k in kept)))
    return Joined(problem, placement, OptionSets(problem), whole=whole, kept=kept)


def configurations_of(problem: PlanningProblem) -> list[Configuration]:
    """Return the configurations of the search space."""
    sets = [(slices, OptionSets(problem.evenly_cut(slices))) for slices in problem.slicings]
    return [
        Configuration(problem if kept is None else problem.keeping(kept), placement, ways, slices, kept)
        for placement in placements_of(problem)
        for slices, ways in sets
        for kept in problem.residents(placement)
    ]
