"""Candidates from a list of all partitions, or a single one where there are too many, without any table."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import combinations, combinations_with_replacement, count, cycle, pairwise, product, takewhile
from math import gcd
from typing import NamedTuple

import numpy as np

from ..kernels.arrays import Ints
from ..model.costs import Objective
from ..params.budget import UNLIMITED, Budget
from .candidate import Candidate
from .configuration import Arrays, Configuration
from .device_bound_kernel import NEVER, device_bound, device_excess


def all_cuts(layers: int, stages: int, *, empty: bool = False) -> Iterator[tuple[int, ...]]:
    """Yield the cuts of every partition of `layers` layers into `stages` stages.

    With `empty`, stages but the first and the last one may have no layers.
    """
    choose = combinations_with_replacement if empty else combinations
    return ((0, *inner, layers) for inner in choose(range(1, layers), stages - 1))


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

    def ways(self, cuts: tuple[int, ...], later: int = 0) -> list[_Way]:
        """Return the ways to recompute the device's stages that fit its memory, least bound first.

        `later` is explained at `device_bound`.
        """
        arrays = self.tables, self.device, self.stage, self.begin, self.end, self.option, self.heap, later
        found = (_Way(device_bound(*arrays), chosen) for chosen in self._choices(cuts))
        return sorted(way for way in found if way.bound < NEVER)

    def most_sparing(self, cuts: tuple[int, ...], below: int = NEVER) -> _Way | None:
        """Return the way in which the device lacks fewest bytes for one microbatch; they are its `bound`.

        Return None if it lacks at least `below`. In a best way let t be the most transient bytes of a stage.
        Then each stage may just as well take, among the options with at most t transient bytes, one that no
        other beats in the bytes that F takes and in those that stay when what may leave has left. Without a
        host there is one such option.
        """
        self._cut(cuts)
        first, transient = self.tables.first_option, self.tables.transient
        options = [np.arange(first[i], first[i + 1]) for i in self.begin * self.side + self.end]
        leaving = self.tables.leaving[self.end] - self.tables.leaving[self.begin]
        best = None
        for most in np.unique(transient[np.concatenate(options)]):
            able = [each[transient[each] <= most] for each in options]
            if all(map(len, able)):
                for chosen in product(*map(self._sparing, able, leaving)):
                    self._until.check()
                    self.option[:] = chosen
                    found = int(device_excess(self.tables, self.device, self.begin, self.end, self.option))
                    if found < below:
                        best, below = _Way(found, chosen), found
        return best

    def _sparing(self, options: Ints, leaving: int) -> Ints:
        """Return the options of a stage that no other one beats in the bytes of F and in those that stay.

        `leaving` has the bytes that may leave without recomputation.
        """
        taken = -self.tables.saved[options]
        stays = taken - np.minimum(self.tables.most_leaving, leaving - self.tables.away[options])
        by_stays = np.lexsort((taken, stays))
        least = np.minimum.accumulate(taken[by_stays])
        return np.asarray(options[by_stays[np.append(True, least[1:] < least[:-1])]])

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

    `bound` is the least bound, in ticks, of the candidates that begin so. Beginnings are sorted.
    """

    bound: int
    left: int
    number: int
    cuts: tuple[int, ...]
    chosen: tuple[tuple[int, ...], ...]


class Listed:
    """Candidates from a list of partitions, each of which is bounded before the first candidate is taken.

    `partitions` has the cuts of each partition. When the time of `until` is up before all of them are
    bounded, the work is given up with a `TimeUpError`.
    """

    def __init__(
        self, configuration: Configuration, partitions: Iterable[tuple[int, ...]], until: Budget = UNLIMITED
    ) -> None:
        self.configuration = configuration
        arrays = configuration.arrays(until=until)
        self._options, self._devices = arrays.options, device_stages(configuration, arrays, until)
        self._ways: dict[tuple[int, ...], list[list[_Way]]] = {}
        self._number = count()
        self._heap: list[_Beginning] = []
        # many partitions have the same stages on a device: its ways by the cuts around each of its stages
        known = [dict[tuple[int, ...], list[_Way]]() for _ in self._devices]
        for cuts in partitions:
            ways = [_known_ways(*device, cuts) for device in zip(self._devices, known, strict=True)]
            if all(ways):
                self._ways[cuts] = ways
                self._push(max(found[0].bound for found in ways), cuts, ())

    @property
    def bound(self) -> int:
        """The least bound, in ticks, of a candidate that is not yet taken; `NEVER` if all are taken."""
        return self._heap[0].bound if self._heap else NEVER

    def take(self, until: Budget = UNLIMITED) -> Candidate | None:
        """Return the candidate with the least bound that is not yet taken; None if all are."""
        while self._heap:
            until.check()
            bound, left, _, cuts, chosen = heappop(self._heap)
            if not left:
                recomputed = self._options.of(by_stage(self._devices, chosen))
                return self.configuration.candidate(cuts, recomputed)
            for way in self._ways[cuts][len(chosen)]:
                self._push(max(bound, way.bound), cuts, (*chosen, way.options))
        return None

    def _push(self, bound: int, cuts: tuple[int, ...], chosen: tuple[tuple[int, ...], ...]) -> None:
        left = len(self._devices) - len(chosen)
        heappush(self._heap, _Beginning(bound, left, next(self._number), cuts, chosen))


def _known_ways(
    device: DeviceStages, known: dict[tuple[int, ...], list[_Way]], cuts: tuple[int, ...]
) -> list[_Way]:
    """Return a device's ways, from those that are known if it has had the same stages."""
    key = tuple(cut for stage in device.stage.tolist() for cut in cuts[stage : stage + 2])
    if key not in known:
        known[key] = device.ways(cuts)
    return known[key]


def tightest_in_list(
    configuration: Configuration, partitions: Iterable[tuple[int, ...]], until: Budget, below: int
) -> Candidate | None:
    """Return the candidate whose fullest device lacks fewest bytes for one microbatch.

    It is one of those with these partitions, of which each is given by its cuts. Return None if all of them
    lack at least `below` bytes.
    """
    arrays = configuration.arrays(until=until, free_ticks=True)
    devices, best = device_stages(configuration, arrays, until), None
    for cuts in partitions:
        ways = list(takewhile(lambda way: way, (device.most_sparing(cuts, below) for device in devices)))
        if len(ways) == len(devices):
            below = max(way.bound for way in ways if way)
            best = cuts, by_stage(devices, (way.options for way in ways if way))
    return best and configuration.candidate(best[0], arrays.options.of(best[1]))


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


class Unlisted:
    """The one candidate that is looked at, and a bound of all candidates of the configuration.

    The candidate's cuts are improved until shifting no cut by one layer lowers the candidate's bound. The
    bound of all candidates rests on what devices work, and on how long they wait for their first F
    (`least_cost`).
    """

    def __init__(self, configuration: Configuration, until: Budget = UNLIMITED) -> None:
        self.configuration = configuration
        self.bound = least_cost(configuration, until)
        most = int(until.params.plan.longest * configuration.mean_work)
        self.arrays = configuration.arrays(most, until)
        self._devices = device_stages(configuration, self.arrays, until)
        self._taken = False

    def take(self, until: Budget = UNLIMITED) -> Candidate | None:
        """Return the one candidate at the first call, and None at later calls or if it does not fit."""
        if self._taken or self.configuration.has_no_cuts:
            return None
        self._devices = device_stages(self.configuration, self.arrays, until)
        cuts = self._improved(even_cuts(self.configuration, self.configuration.ticks))
        ways = [device.ways(cuts) for device in self._devices]
        self._taken = True  # not before: if time is up, the next call tries again
        if not all(ways):
            return None
        chosen = by_stage(self._devices, (found[0].options for found in ways))
        return self.configuration.candidate(cuts, self.arrays.options.of(chosen))

    def _improved(self, cuts: tuple[int, ...]) -> tuple[int, ...]:
        best, stages = self._bounds(cuts), self.configuration.placement.stages
        moves = list(product(range(1, stages), (-1, 1)))
        without = 0  # shifts tried since the last one that lowered the bound
        for stage, step in cycle(moves):
            moved = (*cuts[:stage], cuts[stage] + step, *cuts[stage + 1 :])
            without += 1
            allowed = is_allowed(moved, empty=self.configuration.may_be_empty)
            if allowed and self._bounds(moved) < best:
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

    Every stage is possible, as the cuts are some of `Model.finest_cuts`. Stages that may be empty are so
    where there are not enough of these.
    """
    finest, stages = configuration.problem.model.finest_cuts(), configuration.placement.stages
    summed = np.cumsum([0, *amounts])[list(finest)]
    cuts, each = [0], 0 if configuration.may_be_empty and len(finest) <= stages else 1
    for stage in range(1, stages):
        nearest = int(np.abs(summed - summed[-1] * stage / stages).argmin())
        after = 1 + each * (stages - stage - 1)
        cuts.append(min(max(nearest, cuts[-1] + each, 1), len(finest) - 1 - after))
    return (*(finest[cut] for cut in cuts), configuration.layers)


def is_allowed(cuts: tuple[int, ...], *, empty: bool) -> bool:
    """Return whether the cuts ascend, and only stages that may be `empty` have no layers."""
    sizes = [end - first for first, end in pairwise(cuts)]
    return min(sizes) >= (0 if empty else 1) and min(sizes[0], sizes[-1]) > 0


def least_work(configuration: Configuration) -> int:
    """Return a lower bound, in ticks, on the work of the device with the most work, for all microbatches.

    It is the larger one of the mean work of a device and of what `crowded` returns.
    """
    layers, devices = sorted(configuration.ticks, reverse=True), configuration.placement.devices
    least = max(-(-sum(layers) // devices), round(crowded(layers, devices)))
    return configuration.problem.batch.microbatches * least


def least_sum(configuration: Configuration, until: Budget = UNLIMITED) -> int:
    """Return the least work, among all sets of layers, that is no less than `least_work`.

    If layers take so many ticks that the sums of their sets would take long to list, the result is what
    `least_work` returns.
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


def least_cost(configuration: Configuration, until: Budget = UNLIMITED) -> int:
    """Return a lower bound, in ticks, on the cost of all candidates: on work, and on waits at the start.

    In a makespan or a step of T ticks, a device works at most until T, once the first microbatch, or its
    first slice, has run F at all stages before. These have at least one layer each, so that the F's of the
    first layers, one for each stage, and the work of all devices together take at most T for each device.
    Where stages may be empty, only the first stage is known to have a layer.
    With one stage per device, the stages before have all layers before. Then let each device in turn take as
    many layers as it can work until T: a layer more on an earlier device makes the next one wait less long
    than it saves it work. If layers are left over, T is too low.
    """
    problem, placement = configuration.problem, configuration.placement
    least = least_sum(configuration, until)
    if problem.space.objective is Objective.DEVICE_SPAN:
        return least
    work = problem.batch.microbatches * np.append(0, np.cumsum(configuration.ticks))
    waits = np.append(0, np.cumsum(configuration.heads))
    most = 1 if configuration.may_be_empty else placement.stages
    before = [min(most, *placement.stages_on(device)) for device in range(placement.devices)]
    mean = -(-int(work[-1] + waits[before].sum()) // placement.devices)

    def is_enough(ticks: int) -> bool:
        layers = 0
        for _ in range(placement.devices):
            layers = int(np.searchsorted(work, work[layers] + ticks - waits[layers], "right")) - 1
        return layers == configuration.layers

    if placement.stages_per_device > 1:
        return max(least, mean)
    return least + bisect_left(range(int(waits[-1])), 1, key=lambda more: is_enough(least + more))


def crowded(layers: list[int] | list[float], devices: int) -> float:
    """Return a lower bound on the ticks of the device with the most work, for one microbatch.

    `layers` has the ticks of each layer, in descending order. For every k, one of p devices has at least
    k + 1 of the k p + 1 longest layers, and so at least the ticks of the k + 1 shortest of these.
    """
    fewest = range((len(layers) - 1) // devices + 1)
    return max(sum(layers[k * devices - k : k * devices + 1]) for k in fewest)
