"""A few candidates of placements with too many partitions for a list, and of which no table is made."""

from __future__ import annotations

from itertools import cycle, product

import numpy as np

from .candidate import Candidate
from .candidates_by_list import by_stage, device_stages
from .configuration import Configuration
from .device_bound_kernel import NEVER

_LONGEST = 2.0  # work of the longest stage that is looked at, over the mean work of the devices


class Unlisted:
    """One candidate, whose cuts are improved until no cut can be moved by a layer to lower the bound.

    The bound of all candidates rests on the work alone. The device with the most work has some set of the
    layers, and at least the mean work: the bound is the least sum of the ticks of any set of layers that is
    at least the mean.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.bound = _least_sum(configuration)
        self.arrays = configuration.arrays(int(_LONGEST * configuration.mean_work))
        self._devices = device_stages(configuration, self.arrays)
        self._taken = False

    def take(self) -> Candidate | None:
        """Return the one candidate at the first call, and None at every later one."""
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
        without = 0  # moves since the last one that was better
        for stage, step in cycle(moves):
            moved = (*cuts[:stage], cuts[stage] + step, *cuts[stage + 1 :])
            without += 1
            if cuts[stage - 1] < moved[stage] < cuts[stage + 1] and self._bounds(moved) < best:
                cuts, best, without = moved, self._bounds(moved), 0
            if without >= len(moves):
                break
        return cuts

    def _bounds(self, cuts: tuple[int, ...]) -> tuple[int, int]:
        """Return the largest bound of a device and the sum of all, in ticks."""
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


def _least_sum(configuration: Configuration) -> int:
    """Return n times the least ticks that the device with the most work can have for one microbatch."""
    devices = configuration.placement.devices
    layers = sorted(configuration.ticks, reverse=True)
    least = max(-(-sum(layers) // devices), _crowded(layers, devices))
    sums = 1  # bit k is set if some layers take k ticks together
    for ticks in layers:
        sums |= sums << ticks
    above = sums >> least
    return configuration.problem.batch.microbatches * (least + (above & -above).bit_length() - 1)


def _crowded(layers: list[int], devices: int) -> int:
    """Return a bound of the most ticks of a device: of k p + 1 layers, some of p devices has k + 1."""
    fewest = range((len(layers) - 1) // devices + 1)
    return max(sum(layers[k * devices - k : k * devices + 1]) for k in fewest)
