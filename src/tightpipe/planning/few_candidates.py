"""A single candidate of a configuration that has no tables, and too many partitions for a list."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, product
from math import gcd

import numpy as np

from ..core.budget import UNLIMITED, Budget
from .candidate import Candidate
from .candidates_by_list import by_stage, device_stages
from .configuration import Configuration
from .device_bound_kernel import NEVER


class Unlisted:
    """The one candidate that is looked at, and a bound of all candidates of the configuration.

    The candidate's cuts are improved until shifting no cut by one layer lowers the candidate's bound.

    The bound of all candidates rests on the work alone. The device with the most work has at least the mean
    work of a device, and at least the work that `_crowded` returns. Its work is also that of some set of
    layers. So the bound is the least work, among all sets of layers, that is no less than these two numbers.
    """

    def __init__(self, configuration: Configuration, until: Budget = UNLIMITED) -> None:
        self.configuration = configuration
        self.bound = least_sum(configuration, until)
        most = int(until.params.plan.longest * configuration.mean_work)
        self.arrays = configuration.arrays(most, until)
        self._devices = device_stages(configuration, self.arrays, until)
        self._taken = False

    def take(self, until: Budget = UNLIMITED) -> Candidate | None:
        """Return the one candidate at the first call, and None at later calls or if it does not fit."""
        if self._taken or self.configuration.has_no_cuts:
            return None
        self._taken = True
        self._devices = device_stages(self.configuration, self.arrays, until)
        cuts = self._improved(even_cuts(self.configuration, self.configuration.ticks))
        ways = [device.ways(cuts) for device in self._devices]
        if not all(ways):
            return None
        chosen = by_stage(self._devices, (found[0].options for found in ways))
        return Candidate(self.configuration.placement, cuts, self.arrays.options.of(chosen))

    def _improved(self, cuts: tuple[int, ...]) -> tuple[int, ...]:
        best, stages = self._bounds(cuts), self.configuration.placement.stages
        moves = list(product(range(1, stages), (-1, 1)))
        without = 0  # shifts tried since the last one that lowered the bound
        for stage, step in cycle(moves):
            moved = (*cuts[:stage], cuts[stage] + step, *cuts[stage + 1 :])
            without += 1
            if cuts[stage - 1] < moved[stage] < cuts[stage + 1] and self._bounds(moved) < best:
                cuts, best, without = moved, self._bounds(moved), 0
            if without >= len(moves):
                break
        return cuts

    def _bounds(self, cuts: tuple[int, ...]) -> tuple[int, int]:
        """Return the largest bound of a device and the sum of the devices' bounds, in ticks."""
        ways = [device.ways(cuts) for device in self._devices]
        bounds = [found[0].bound if found else NEVER for found in ways]
        return max(bounds), sum(bounds)


def even_cuts(configuration: Configuration, amounts: Sequence[float]) -> tuple[int, ...]:
    """Return the cuts that come nearest to equal sums in all stages, of amounts that each layer has.

    Every stage is possible, as the cuts are some of `Model.finest_cuts`, which must have enough stages.
    """
    finest, stages = configuration.problem.model.finest_cuts(), configuration.placement.stages
    summed = np.cumsum([0, *amounts])[list(finest)]
    cuts = [0]
    for stage in range(1, stages):
        nearest = int(np.abs(summed - summed[-1] * stage / stages).argmin())
        cuts.append(min(max(nearest, cuts[-1] + 1), len(finest) - 1 - (stages - stage)))
    return (*(finest[cut] for cut in cuts), configuration.layers)


def least_work(configuration: Configuration) -> int:
    """Return a lower bound, in ticks, on the work of the device with the most work, for all microbatches.

    It is the larger one of the mean work of a device and of what `_crowded` returns.
    """
    layers, devices = sorted(configuration.ticks, reverse=True), configuration.placement.devices
    least = max(-(-sum(layers) // devices), _crowded(layers, devices))
    return configuration.problem.batch.microbatches * least


def least_sum(configuration: Configuration, until: Budget = UNLIMITED) -> int:
    """Return the least work, among all sets of layers, that is no less than `least_work`.

    If layers take so many ticks that the sums of their sets would take long to list, the result is what
    `least_work` returns.

    Raises
    ------
    TimeUpError
        If the time of `until` is up.
    """
    least = least_work(configuration)
    unit = gcd(*configuration.ticks) or 1  # all sums of layers are multiples of it
    layers = [ticks // unit for ticks in configuration.ticks]
    if sum(layers) * len(layers) > until.params.plan.most_bits:
        return least
    sums = 1  # bit k is set if some layers take k units together
    for ticks in layers:
        until.check()
        sums |= sums << ticks
    step = configuration.problem.batch.microbatches * unit
    fewest = -(-least // step)
    above = sums >> fewest
    return step * (fewest + (above & -above).bit_length() - 1)


def _crowded(layers: list[int], devices: int) -> int:
    """Return a lower bound on the ticks of the device with the most work, for one microbatch.

    `layers` has the ticks of each layer, in descending order.
    For every k, one of p devices has at least k + 1 of the k p + 1 longest layers, and so at least the ticks
    of the k + 1 shortest of these.
    """
    fewest = range((len(layers) - 1) // devices + 1)
    return max(sum(layers[k * devices - k : k * devices + 1]) for k in fewest)
