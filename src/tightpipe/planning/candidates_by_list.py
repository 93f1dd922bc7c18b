"""Candidates from a list of all partitions, for placements that `candidates_by_table` cannot handle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import combinations, count, product
from typing import NamedTuple

import numpy as np

from ..core.budget import UNLIMITED, Budget
from .candidate import Candidate
from .configuration import Arrays, Configuration
from .device_bound_kernel import NEVER, device_bound, device_excess


def all_cuts(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Yield the cuts of every partition of `layers` layers into `stages` stages."""
    return ((0, *inner, layers) for inner in combinations(range(1, layers), stages - 1))


class _Way(NamedTuple):
    """The recompute options of a device's stages, with the device's bound in ticks."""

    bound: int
    options: tuple[int, ...]


class DeviceStages:
    """The stages of one device, in arrays that are filled anew for each partition.

    A device with several stages, each with many recompute options, has very many ways. So all methods raise a
    `TimeUpError` when the time of the budget `until` is up.
    """

    def __init__(
        self, configuration: Configuration, arrays: Arrays, device: int, until: Budget = UNLIMITED
    ) -> None:
        self.tables, self.device, self._until = arrays.tables, device, until
        self.side = configuration.layers + 1
        self.stage = np.array(configuration.placement.stages_on(device), np.int64)
        self.begin, self.end, self.option = (np.zeros_like(self.stage) for _ in range(3))
        self.heap = np.zeros(8 * len(self.stage), np.int64)

    def ways(self, cuts: tuple[int, ...]) -> list[_Way]:
        """Return the ways to recompute the device's stages that fit its memory, least bound first."""
        arrays = self.stage, self.begin, self.end, self.option, self.heap
        found = (
            _Way(device_bound(self.tables, self.device, *arrays), chosen) for chosen in self._choices(cuts)
        )
        return sorted(way for way in found if way.bound < NEVER)

    def excess(self, cuts: tuple[int, ...]) -> int:
        """Return how many bytes the device lacks to hold one microbatch, with the best recompute options.

        In a best choice let t be the most transient bytes of a stage. Then each stage may just as well take
        the option that saves most among those with at most t transient bytes. So one choice for each t is
        enough.
        """
        self._cut(cuts)
        first = self.tables.first_option
        options = [np.arange(first[i], first[i + 1]) for i in self.begin * self.side + self.end]
        transient, saved = self.tables.transient, self.tables.saved
        least = NEVER
        for most in np.unique(transient[np.concatenate(options)]):
            able = [each[transient[each] <= most] for each in options]
            if all(map(len, able)):
                self._until.check()
                self.option[:] = [each[saved[each].argmax()] for each in able]
                least = min(least, self._lacking())
        return least

    def _lacking(self) -> int:
        return int(device_excess(self.tables, self.device, self.begin, self.end, self.option))

    def _cut(self, cuts: tuple[int, ...]) -> None:
        array = np.array(cuts, np.int64)
        self.begin[:], self.end[:] = array[self.stage], array[self.stage + 1]

    def _choices(self, cuts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Write each combination of the options of the device's stages into the arrays, and yield it."""
        self._cut(cuts)
        first = self.tables.first_option
        intervals = self.begin * self.side + self.end
        for chosen in product(*(range(int(first[i]), int(first[i + 1])) for i in intervals)):
            self._until.check()
            self.option[:] = chosen
            yield chosen


class _Beginning(NamedTuple):
    """A partition with the recompute options of the first devices; `left` devices have none yet.

    `bound` is the least bound, in ticks, of the candidates that begin so. Beginnings are sorted by bound; of
    equal bounds, the one with the fewest devices left comes first, and then the one with the lowest `number`.
    """

    bound: int
    left: int
    number: int
    cuts: tuple[int, ...]
    chosen: tuple[tuple[int, ...], ...]


class Listed:
    """Candidates from a list of partitions, each of which is bounded before the first candidate is taken.

    Parameters
    ----------
    configuration
        The configuration to which the candidates belong.
    partitions
        The cuts of each partition.
    until
        When its time is up before all partitions are bounded, the work is given up with a `TimeUpError`.
    """

    def __init__(
        self,
        configuration: Configuration,
        partitions: Iterable[tuple[int, ...]],
        until: Budget = UNLIMITED,
    ) -> None:
        self.configuration = configuration
        arrays = configuration.arrays(until=until)
        self._options, self._devices = arrays.options, device_stages(configuration, arrays, until)
        self._ways: dict[tuple[int, ...], list[list[_Way]]] = {}
        self._number = count()
        self._heap: list[_Beginning] = []
        for cuts in partitions:
            ways = [device.ways(cuts) for device in self._devices]
            if all(ways):
                self._ways[cuts] = ways
                self._push(max(found[0].bound for found in ways), cuts, ())

    @property
    def bound(self) -> int:
        """The least bound, in ticks, of a candidate that is not yet taken; `NEVER` if all are taken."""
        return self._heap[0].bound if self._heap else NEVER

    def take(self, until: Budget = UNLIMITED) -> Candidate | None:
        """Return the candidate with the least bound that is not yet taken; None if all are.

        Raises
        ------
        TimeUpError
            If the time of `until` is up. The other candidates can still be taken later.
        """
        while self._heap:
            until.check()
            bound, left, _, cuts, chosen = heappop(self._heap)
            if not left:
                recomputed = self._options.of(by_stage(self._devices, chosen))
                return Candidate(self.configuration.placement, cuts, recomputed)
            for way in self._ways[cuts][len(chosen)]:
                self._push(max(bound, way.bound), cuts, (*chosen, way.options))
        return None

    def _push(self, bound: int, cuts: tuple[int, ...], chosen: tuple[tuple[int, ...], ...]) -> None:
        left = len(self._devices) - len(chosen)
        heappush(self._heap, _Beginning(bound, left, next(self._number), cuts, chosen))


def device_stages(
    configuration: Configuration, arrays: Arrays, until: Budget = UNLIMITED
) -> list[DeviceStages]:
    """Return the `DeviceStages` of each device."""
    devices = range(configuration.placement.devices)
    return [DeviceStages(configuration, arrays, device, until) for device in devices]


def by_stage(devices: list[DeviceStages], chosen: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the recompute option of each stage; `chosen` has, for each device, those of its stages."""
    pairs = [
        (int(stage), option)
        for device, options in zip(devices, chosen, strict=True)
        for stage, option in zip(device.stage, options, strict=True)
    ]
    return tuple(option for _, option in sorted(pairs))
