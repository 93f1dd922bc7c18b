"""A single candidate of a configuration that has no tables, and too many partitions for a list."""

from __future__ import annotations

from itertools import cycle, product
from math import gcd

import numpy as np

from .candidate import Candidate
from .candidates_by_list import by_stage, device_stages
from .configuration import Configuration
from .device_bound_kernel import NEVER

_MOST_BITS = 5 * 10**9  # of all numbers by which sums of layers are listed; more take longer than a second
_LONGEST = 2.0  # most work of a stage that is looked at, as a multiple of the mean work of a device


class Unlisted:
    """The one candidate that is looked at, and a bound of all candidates of the configuration.

    The candidate's cuts are improved until shifting no cut by one layer lowers the candidate's bound.

    The bound of all candidates rests on the work alone. The device with the most work has at least the mean
    work of a device, and at least the work that `_crowded` returns. Its work is also that of some set of
    layers. So the bound is the least work, among all sets of layers, that is no less than these two numbers.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.bound = least_sum(configuration)
        self.arrays = configuration.arrays(int(_LONGEST * configuration.mean_work))
        self._devices = device_stages(configuration, self.arrays)
        self._taken = False

    def take(self) -> Candidate | None:
        """Return the one candidate at the first call, and None at later calls or if it does not fit."""
        if self._taken:
            return None
        self._taken = True
        cuts = self._improved(_even_cuts(self.configuration))
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


def _even_cuts(configuration: Configuration) -> tuple[int, ...]:
    """Return the cuts that come nearest to equal work in all stages."""
    layers, stages = configuration.layers, configuration.placement.stages
    ticks = np.cumsum([0, *configuration.ticks])
    cuts = [0]
    for stage in range(1, stages):
        nearest = int(np.abs(ticks - ticks[-1] * stage / stages).argmin())
        cuts.append(min(max(nearest, cuts[-1] + 1), layers - (stages - stage)))
    return (*cuts, layers)


def least_sum(configuration: Configuration) -> int:
    """Return a lower bound, in ticks, on the work of the device with the most work, for all microbatches.

    If layers take so many ticks that the sums of their sets would take long to list, the bound is the larger
    one of the mean work and of what `_crowded` returns.
    """
    devices = configuration.placement.devices
    unit = gcd(*configuration.ticks) or 1  # all sums of layers are multiples of it
    layers = sorted((ticks // unit for ticks in configuration.ticks), reverse=True)
    least = max(-(-sum(layers) // devices), _crowded(layers, devices))
    if sum(layers) * len(layers) <= _MOST_BITS:
        sums = 1  # bit k is set if some layers take k units together
        for ticks in layers:
            sums |= sums << ticks
        above = sums >> least
        least += (above & -above).bit_length() - 1
    return configuration.problem.batch.microbatches * unit * least


def _crowded(layers: list[int], devices: int) -> int:
    """Return a lower bound on the ticks of the device with the most work, for one microbatch.

    `layers` has the ticks of each layer, in descending order.
    For every k, one of p devices has at least k + 1 of the k p + 1 longest layers, and so at least the ticks
    of the k + 1 shortest of these.
    """
    fewest = range((len(layers) - 1) // devices + 1)
    return max(sum(layers[k * devices - k : k * devices + 1]) for k in fewest)
