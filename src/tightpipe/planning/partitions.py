"""The candidates of a configuration one after another, those with the least bound first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import combinations, count, islice, product
from math import comb
from typing import Protocol

import numpy as np

from ..core.placement import Placement
from ..kernels.arrays import Ints
from .candidate import Candidate
from .partition_kernel import (
    BYTES,
    FOLDED,
    LINE,
    LOOPED,
    NEVER,
    TICKS,
    device_bound,
    device_excess,
    expand,
    fill,
)
from .tables import Options, Tables

_SLACKS = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0)  # over the mean work of the devices: the caps that are tried first
_LISTED = 50_000  # partitions of a configuration that are listed where no table has them
_ROWS = 4096  # ways to go on, for which room is made at first
_SCRATCH = 24


class Partitions(Protocol):
    """The candidates of a configuration, in ascending order of their bounds."""

    bound: int  #: in ticks; no candidate that is still to come can cost less, `NEVER` if none is to come

    def take(self) -> Candidate | None:
        """Return the next candidate, or None if none is known although there may be some."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A placement for a model, with the arrays from which its partitions are bounded."""

    placement: Placement
    tables: Tables
    options: Options

    @property
    def layers(self) -> int:
        """Number of layers of the model."""
        return len(self.tables.forward) - 1

    @property
    def mean_work(self) -> float:
        """Mean ticks that the devices work, without recomputation."""
        sums = self.tables.forward[-1] + self.tables.backward[-1] + self.tables.weight[-1]
        return float(self.tables.microbatches * sums / self.placement.devices)

    def partitions(self) -> Partitions:
        """Return the candidates in ascending order of their bounds."""
        if self.placement.stages > self.layers:
            return _Listed(self, [])
        if self._kind is not None:
            return _Tabled(self, self._kind)
        if comb(self.layers - 1, self.placement.stages - 1) <= _LISTED:
            return _Listed(self, _all_cuts(self.layers, self.placement.stages))
        return _Unlisted(self)

    @property
    def _kind(self) -> int | None:
        """How the devices take their stages; None where no table is made for it."""
        name, chunks = self.placement.name, self.placement.stages_per_device
        if chunks == 1 and name != "bidirectional":
            return LINE
        if chunks == 2:
            return {"v": FOLDED, "wave": FOLDED, "loop": LOOPED}.get(name)
        return None

    def least_excess(self) -> int:
        """Return the least that the fullest device lacks to hold one microbatch, in bytes."""
        if self.placement.stages > self.layers:
            return NEVER
        if self._kind is not None:
            return min(_Table(self, self._kind, m, NEVER, BYTES).bound for m in _middles(self, self._kind))
        devices = [_Device(self, device) for device in range(self.placement.devices)]
        return min(
            max(device.excess(cuts) for device in devices)
            for cuts in islice(_all_cuts(self.layers, self.placement.stages), _LISTED)
        )

    def candidate(self, cuts: tuple[int, ...], chosen: tuple[int, ...]) -> Candidate:
        """Return the candidate with these cuts and the options of these numbers, one for each stage."""
        return Candidate(self.placement, cuts, tuple(self.options.sets[option] for option in chosen))


def _middles(configuration: Configuration, kind: int) -> range:
    """Return the layers at which the second half of the stages may begin; any number where it has no say."""
    devices = configuration.placement.devices
    return range(devices, configuration.layers - devices + 1) if kind == LOOPED else range(1)


class _Table:
    """The least bounds of what is left to the last devices, for one beginning of the second half."""

    def __init__(self, configuration: Configuration, kind: int, middle: int, cap: int, counted: int) -> None:
        p, side = configuration.placement.devices, configuration.layers + 1
        self.configuration, self.kind, self.middle, self.cap = configuration, kind, middle, cap
        self.least = np.full((p + 1, side, side), NEVER)
        self.total = np.zeros((p + 1, side, side), np.int64)
        self._scratch = np.zeros(_SCRATCH, np.int64)
        self._rows = np.zeros((_ROWS, 8), np.int64)
        fill(configuration.tables, kind, p, middle, cap, counted, self.least, self.total, self._scratch)

    @property
    def start(self) -> tuple[int, int]:
        """The rest before any device has taken a stage."""
        return 0, {LINE: 0, FOLDED: self.configuration.layers, LOOPED: self.middle}[self.kind]

    @property
    def bound(self) -> int:
        """The least bound of all partitions, `NEVER` if none is below the cap."""
        return int(self.least[0][self.start])

    def ways(self, device: int, x: int, y: int) -> Ints:
        """Return what the next device can take, a row for each way; `expand` says what the columns are."""
        p = self.configuration.placement.devices
        rest = (device, x, y, self.cap, self.least, self.total, self._scratch)
        number = expand(self.configuration.tables, self.kind, p, *rest, self._rows)
        if number > len(self._rows):
            self._rows = np.zeros((2 * number, 8), np.int64)
            expand(self.configuration.tables, self.kind, p, *rest, self._rows)
        return self._rows[:number]


_Way = tuple[int, int, int, int]  # the new x and y, and the options of the stages taken


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What the first devices take, the largest of their bounds in ticks, and how uneven their stages are."""

    table: _Table
    bound: int = 0
    uneven: int = 0
    ways: tuple[_Way, ...] = ()


class _Tabled:
    """Candidates from tables: a heap holds beginnings, each with the bound of its best end."""

    def __init__(self, configuration: Configuration, kind: int) -> None:
        self.configuration, self.kind = configuration, kind
        mean = configuration.mean_work
        self._caps = iter([*(int(slack * mean) for slack in _SLACKS), NEVER])
        self._cap = self._floor = 0  # candidates with a bound below the floor have been taken
        self._tie = count()
        self._heap: list[tuple[int, int, int, _Beginning]] = []
        self._refill()

    @property
    def bound(self) -> int:
        return self._heap[0][0] if self._heap else NEVER

    def take(self) -> Candidate | None:
        found = None
        while self._heap and found is None:
            _, _, _, beginning = heappop(self._heap)
            if len(beginning.ways) < self.configuration.placement.devices:
                self._go_on(beginning)
            elif beginning.bound >= self._floor:
                found = self._candidate(beginning.ways)
            self._refill()
        return found

    def _refill(self) -> None:
        """Make the tables of the next cap where no candidate below the present one is left."""
        while not self._heap:
            self._floor, cap = self._cap, next(self._caps, None)
            if cap is None:
                return
            self._cap = cap
            for middle in _middles(self.configuration, self.kind):
                table = _Table(self.configuration, self.kind, middle, cap, TICKS)
                if table.bound < NEVER:
                    self._push(table.bound, 0, _Beginning(table))

    def _push(self, bound: int, total: int, beginning: _Beginning) -> None:
        heappush(self._heap, (max(bound, self._floor), total, -next(self._tie), beginning))

    def _go_on(self, beginning: _Beginning) -> None:
        table, ways = beginning.table, beginning.ways
        x, y = ways[-1][:2] if ways else table.start
        for new_x, new_y, one, two, here, then, uneven, left in table.ways(len(ways), x, y).tolist():
            bound, so_far = max(beginning.bound, here), beginning.uneven + uneven
            longer = _Beginning(table, bound, so_far, (*ways, (new_x, new_y, one, two)))
            self._push(max(bound, then), so_far + left, longer)

    def _candidate(self, ways: tuple[_Way, ...]) -> Candidate:
        """Return the candidate of what all devices have taken."""
        cuts, options = [0, *(way[0] for way in ways)], [way[2] for way in ways]
        if self.kind == FOLDED:
            cuts += [*(way[1] for way in reversed(ways[:-1])), self.configuration.layers]
            options += [way[3] for way in reversed(ways)]
        elif self.kind == LOOPED:
            cuts += [way[1] for way in ways]
            options += [way[3] for way in ways]
        return self.configuration.candidate(tuple(cuts), tuple(options))


def _all_cuts(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    return ((0, *inner, layers) for inner in combinations(range(1, layers), stages - 1))


class _Device:
    """Arrays for the bound of one device's stages, which are filled anew for each question."""

    def __init__(self, configuration: Configuration, device: int) -> None:
        self.tables, self.device = configuration.tables, device
        self.side = configuration.layers + 1
        self.stage = np.array(configuration.placement.stages_on(device), np.int64)
        self.begin, self.end, self.option = (np.zeros_like(self.stage) for _ in range(3))
        self.heap = np.zeros(8 * len(self.stage), np.int64)

    def ways(self, cuts: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
        """Return the options of the device's stages that fit, with their bounds in ticks, ascending."""
        return sorted(way for way in self._bounds(cuts) if way[0] < NEVER)

    def _bounds(self, cuts: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        for chosen in self._choices(cuts):
            arrays = self.stage, self.begin, self.end, self.option, self.heap
            yield device_bound(self.tables, self.device, *arrays), chosen

    def excess(self, cuts: tuple[int, ...]) -> int:
        """Return the least that the device lacks to hold one microbatch of its stages, in bytes."""
        return min(
            device_excess(self.tables, self.device, self.begin, self.end, self.option)
            for _ in self._choices(cuts)
        )

    def _choices(self, cuts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Write each combination of the options of the device's stages into the arrays, and yield it."""
        array = np.array(cuts, np.int64)
        self.begin[:], self.end[:] = array[self.stage], array[self.stage + 1]
        first = self.tables.first_option
        intervals = self.begin * self.side + self.end
        for chosen in product(*(range(first[i], first[i + 1]) for i in intervals)):
            self.option[:] = chosen
            yield chosen


class _Listed:
    """Candidates from a list of partitions: a heap holds partitions, with the options of the first devices."""

    def __init__(self, configuration: Configuration, cuts: Iterable[tuple[int, ...]]) -> None:
        self.configuration, self._tie = configuration, count()
        self._devices = [_Device(configuration, d) for d in range(configuration.placement.devices)]
        self._heap: list[
            tuple[
                int,
                int,
                tuple[int, ...],
                list[list[tuple[int, tuple[int, ...]]]],
                tuple[tuple[int, ...], ...],
            ]
        ] = []
        for partition in cuts:
            ways = [device.ways(partition) for device in self._devices]
            if all(ways):
                bound = max(way[0][0] for way in ways)
                heappush(self._heap, (bound, next(self._tie), partition, ways, ()))

    @property
    def bound(self) -> int:
        return self._heap[0][0] if self._heap else NEVER

    def take(self) -> Candidate | None:
        while self._heap:
            bound, _, cuts, ways, chosen = heappop(self._heap)
            if len(chosen) == len(self._devices):
                return self.configuration.candidate(cuts, self._by_stage(chosen))
            for here, options in ways[len(chosen)]:
                entry = max(bound, here), -next(self._tie), cuts, ways, (*chosen, options)
                heappush(self._heap, entry)
        return None

    def _by_stage(self, chosen: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        options = {
            int(stage): option
            for device, mine in zip(self._devices, chosen, strict=True)
            for stage, option in zip(device.stage, mine, strict=True)
        }
        return tuple(options[stage] for stage in range(self.configuration.placement.stages))


class _Unlisted:
    """A few candidates where neither tables nor a list can have all of them.

    The bound rests on the work alone. The device with the most work has some set of the layers, and at least the
    mean work: the bound is the least sum of the ticks of any set of layers that is at least the mean.
    """

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.bound = _least_sum(configuration)
        self._devices = [_Device(configuration, d) for d in range(configuration.placement.devices)]
        self._coming = iter(self._improved())

    def take(self) -> Candidate | None:
        return next(self._coming, None)

    def _improved(self) -> Iterator[Candidate]:
        """Yield candidates of falling bound: the first one cuts the work evenly, others move one cut at a time."""
        cuts = self._even()
        best = self._bound(cuts)
        better = True
        while better:
            better = False
            for stage, step in product(range(1, self.configuration.placement.stages), (-1, 1)):
                moved = (*cuts[:stage], cuts[stage] + step, *cuts[stage + 1 :])
                if moved[stage - 1] < moved[stage] < moved[stage + 1] and self._bound(moved) < best:
                    cuts, best, better = moved, self._bound(moved), True
        if best[0] < NEVER:
            chosen = tuple(device.ways(cuts)[0][1] for device in self._devices)
            yield self.configuration.candidate(cuts, _Listed._by_stage(self, chosen))

    def _bound(self, cuts: tuple[int, ...]) -> tuple[int, int]:
        bounds = [next(iter(device.ways(cuts)), (NEVER, ()))[0] for device in self._devices]
        return max(bounds), sum(bounds)

    def _even(self) -> tuple[int, ...]:
        tables, stages, layers = (
            self.configuration.tables,
            self.configuration.placement.stages,
            self.configuration.layers,
        )
        ticks = tables.forward + tables.backward + tables.weight
        cuts = [0]
        for stage in range(1, stages):
            goal = ticks[-1] * stage / stages
            nearest = int(np.abs(ticks - goal).argmin())
            cuts.append(min(max(nearest, cuts[-1] + 1), layers - (stages - stage)))
        return (*cuts, layers)


def _least_sum(configuration: Configuration) -> int:
    tables = configuration.tables
    layers = np.diff(tables.forward + tables.backward + tables.weight).tolist()
    sums = 1  # bit k is set where some layers take k ticks together
    for ticks in layers:
        sums |= sums << ticks
    mean = -(-sum(layers) // configuration.placement.devices)
    above = sums >> mean
    return int(tables.microbatches * (mean + (above & -above).bit_length() - 1))
