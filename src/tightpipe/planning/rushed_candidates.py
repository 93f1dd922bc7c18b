"""Candidates that are found at once, for configurations whose partitions take too long to bound.

Cuts that divide the work evenly, or the memory, are shifted layer by layer until one microbatch fits every
device. Then as few layers as possible are recomputed. This finds no candidate in rare cases where one fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from ..core.budget import UNLIMITED, Budget
from .candidate import Candidate, bytes_lacking, numbers_of
from .configuration import Configuration
from .device_bound_kernel import NEVER
from .few_candidates import even_cuts, least_work
from .layered_model import Model


class Rushed:
    """A candidate of a configuration that is found at once, and a bound of all candidates by their work."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.bound = least_work(configuration)
        self._taken = False

    def take(self, until: Budget = UNLIMITED) -> Candidate | None:
        """Return a candidate at the first call, None at later calls or if none is found."""
        if self._taken:
            return None
        self._taken = True
        return rushed_candidate(self.configuration, until)


def rushed_candidate(configuration: Configuration, until: Budget = UNLIMITED) -> Candidate | None:
    """Return a candidate in which one microbatch fits every device; None if none is found.

    When the time of `until` is up, cuts are shifted no further.
    """
    found = (_fitted(configuration, cuts, until) for cuts in _first_cuts(configuration))
    return next(filter(None, found), None)


def _first_cuts(configuration: Configuration) -> Iterator[tuple[int, ...]]:
    """Yield cuts with equal work, equal memory and equal numbers of layers; none if there are no cuts."""
    layers = configuration.problem.model.layers
    if configuration.has_no_cuts:
        return
    static = [configuration.problem.cluster.static_bytes(layer.parameters) for layer in layers]
    yield even_cuts(configuration, configuration.ticks)
    yield even_cuts(configuration, [s + layer.activation for s, layer in zip(static, layers, strict=True)])
    yield even_cuts(configuration, [1] * len(layers))


def _fitted(configuration: Configuration, cuts: tuple[int, ...], until: Budget) -> Candidate | None:
    """Return a candidate with these cuts, or with cuts near them if one microbatch does not fit else."""
    lack = _lack(configuration, cuts)
    for step in until.params.plan.shifts:
        improved = max(lack) > 0
        while improved and until.left > 0:
            improved = False
            for moved in _shifted(configuration.problem.model, cuts, step):
                now = _lack(configuration, moved)
                if sorted(now, reverse=True) < sorted(lack, reverse=True):
                    cuts, lack, improved = moved, now, max(now) > 0
                    break
    return None if max(lack) > 0 else _least_recomputed(configuration, cuts)


def _shifted(model: Model, cuts: tuple[int, ...], step: int) -> Iterator[tuple[int, ...]]:
    """Yield the cuts with one cut shifted by a number of layers, if both stages beside it stay possible."""
    for k in range(1, len(cuts) - 1):
        for moved in (cuts[k] - step, cuts[k] + step):
            before, after = cuts[k - 1], cuts[k + 1]
            if (
                before < moved < after
                and model.is_possible(before, moved)
                and model.is_possible(moved, after)
            ):
                yield (*cuts[:k], moved, *cuts[k + 1 :])


def _lack(configuration: Configuration, cuts: tuple[int, ...]) -> list[int]:
    """Return how many bytes each device lacks for one microbatch, without or with full recomputation.

    The smaller number counts. Where memory has no limit, no device lacks any.
    """
    ways = [_recomputing(configuration, cuts, 0)]
    if configuration.problem.space.recompute:
        ways.append(_recomputing(configuration, cuts, NEVER))
    return [min(each) for each in zip(*(_bytes_lacking(configuration, way) for way in ways), strict=True)]


def _recomputing(configuration: Configuration, cuts: tuple[int, ...], most: int) -> Candidate:
    """Return the candidate that recomputes the first layers of each stage that can be, at most `most`."""
    able = (configuration.problem.model.recomputable(*stage) for stage in pairwise(cuts))
    return Candidate(configuration.placement, cuts, tuple(tuple(stage[:most]) for stage in able))


def _bytes_lacking(configuration: Configuration, candidate: Candidate) -> list[int]:
    problem = configuration.problem
    return bytes_lacking(problem, candidate.placement, numbers_of(problem, candidate))


def _least_recomputed(configuration: Configuration, cuts: tuple[int, ...]) -> Candidate:
    """Return the candidate with these cuts that recomputes on each device as few layers as it needs.

    The stages of a device recompute equally many of their first layers. On each device one microbatch must
    fit without any recomputation, or if all layers are recomputed that can be.
    """
    devices = range(configuration.placement.devices)
    lacks = _counted(configuration, cuts, [0 for _ in devices])
    low = [0 for _ in devices]
    high = [max(b - a for a, b in pairwise(cuts)) if lacks[device] else 0 for device in devices]
    while low != high:  # bisection, on all devices at once
        middle = [(a + b) // 2 for a, b in zip(low, high, strict=True)]
        lacks = _counted(configuration, cuts, middle)
        for device in devices:
            if lacks[device] and low[device] < high[device]:
                low[device] = middle[device] + 1
            else:
                high[device] = middle[device]
    return _with_counts(configuration, cuts, high)


def _counted(configuration: Configuration, cuts: tuple[int, ...], counts: list[int]) -> list[int]:
    return _bytes_lacking(configuration, _with_counts(configuration, cuts, counts))


def _with_counts(configuration: Configuration, cuts: tuple[int, ...], counts: list[int]) -> Candidate:
    """Return the candidate in which each stage recomputes as many layers as `counts` has for its device."""
    every = _recomputing(configuration, cuts, NEVER).recomputed
    (route,) = configuration.placement.routes
    chosen = tuple(layers[: counts[device]] for layers, device in zip(every, route, strict=True))
    return Candidate(configuration.placement, cuts, chosen)
