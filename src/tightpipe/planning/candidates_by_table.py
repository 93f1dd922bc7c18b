"""Candidates from tables of bounds, if each device has one stage, or one from each half of the stages."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

import numpy as np

from ..core.placement import Placement
from ..kernels.arrays import Ints
from .candidate import Candidate
from .configuration import Arrays, Configuration
from .device_bound_kernel import NEVER
from .partition_kernel import BYTES, FOLDED, LINE, LOOPED, TICKS, expand, fill

_SLACKS = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0)  # first caps on the bound, over the mean work of a device
_ROWS = 4096  # ways of a device for which the array has room at first
_SCRATCH = 24
_MOST_LOOPED = 160  # layers; with more, a table for each start of the second half would take minutes


def kind_of(configuration: Configuration) -> int | None:
    """Return how devices take their stages, e.g. `LINE`; None if tables are not possible or take too long."""
    kind = _kind_of(configuration.placement)
    return None if kind == LOOPED and configuration.layers > _MOST_LOOPED else kind


def _kind_of(placement: Placement) -> int | None:
    if placement.stages_per_device == 1:
        return LINE
    if placement.stages_per_device == 2:
        return {"v": FOLDED, "wave": FOLDED, "loop": LOOPED}.get(placement.name)
    return None


def least_excess_in_tables(configuration: Configuration, kind: int) -> int:
    """Return the fewest bytes, over all partitions, that the fullest device lacks for one microbatch."""
    arrays = configuration.arrays()
    tables = (_Table(configuration, arrays, kind, m, NEVER, BYTES) for m in _middles(configuration, kind))
    return min((table.bound for table in tables), default=NEVER)


def _middles(configuration: Configuration, kind: int) -> range:
    """Return the layers at which the second half of the stages may begin; an unused 0 if not `LOOPED`."""
    devices = configuration.placement.devices
    return range(devices, configuration.layers - devices + 1) if kind == LOOPED else range(1)


class _Table:
    """The least bound of every rest (see `fill`); for `LOOPED`, the second half begins at layer `middle`."""

    def __init__(
        self, configuration: Configuration, arrays: Arrays, kind: int, middle: int, cap: int, counted: int
    ) -> None:
        p, side = configuration.placement.devices, configuration.layers + 1
        self.tables, self.options = arrays
        self.configuration, self.kind, self.middle, self.cap = configuration, kind, middle, cap
        self.least = np.full((p + 1, side, side), NEVER)
        self.total = np.zeros((p + 1, side, side), np.int64)
        self._scratch = np.zeros(_SCRATCH, np.int64)
        self._rows = np.zeros((_ROWS, 8), np.int64)
        fill(self.tables, kind, p, middle, cap, counted, self.least, self.total, self._scratch)

    @property
    def start(self) -> tuple[int, int]:
        """The rest (x, y) before any device has taken a stage."""
        return 0, {LINE: 0, FOLDED: self.configuration.layers, LOOPED: self.middle}[self.kind]

    @property
    def bound(self) -> int:
        """The least bound, in ticks or bytes, of all partitions; `NEVER` if none is below the cap."""
        return int(self.least[0][self.start])

    def ways(self, device: int, x: int, y: int) -> Ints:
        """Return a row, as in `expand`, for each way in which `device` can take its stages from a rest."""
        p = self.configuration.placement.devices
        rest = (device, x, y, self.cap, self.least, self.total, self._scratch)
        number = expand(self.tables, self.kind, p, *rest, self._rows)
        if number > len(self._rows):
            self._rows = np.zeros((2 * number, 8), np.int64)
            expand(self.tables, self.kind, p, *rest, self._rows)
        return self._rows[:number]


_Way = tuple[int, int, int, int]  # the new x and y, and the options of the stages taken


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The stages of the first devices, the devices' largest bound in ticks, and the stages' unevenness."""

    table: _Table
    bound: int = 0
    uneven: int = 0
    ways: tuple[_Way, ...] = ()


class Tabled:
    """Candidates from tables: a heap has beginnings, each with the least bound of its candidates."""

    def __init__(self, configuration: Configuration, kind: int) -> None:
        self.configuration, self.kind = configuration, kind
        mean = configuration.mean_work
        self._caps = iter([*(int(slack * mean) for slack in _SLACKS), NEVER])
        self._cap = self._floor = 0  # all candidates with a bound below the floor have been taken
        self._tie = count()
        self._heap: list[tuple[int, int, int, _Beginning]] = []
        self._refill()

    @property
    def bound(self) -> int:
        """The least bound of a candidate not yet taken, in ticks."""
        return self._heap[0][0] if self._heap else NEVER

    def take(self) -> Candidate | None:
        """Return the candidate with the least bound that is not yet taken; None if all are."""
        found = None
        while self._heap and found is None:
            _, _, _, beginning = heappop(self._heap)
            if len(beginning.ways) < self.configuration.placement.devices:
                self._go_on(beginning)
            elif beginning.bound >= self._floor:
                found = self._candidate(beginning)
            self._refill()
        return found

    def _refill(self) -> None:
        """While the heap is empty, make the tables of the next cap, and put their beginnings on the heap."""
        while not self._heap:
            self._floor, cap = self._cap, next(self._caps, None)
            if cap is None:
                return
            self._cap, arrays = cap, self.configuration.arrays(cap)
            for middle in _middles(self.configuration, self.kind):
                table = _Table(self.configuration, arrays, self.kind, middle, cap, TICKS)
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

    def _candidate(self, beginning: _Beginning) -> Candidate:
        """Return the candidate of a beginning in which all devices have stages."""
        ways = beginning.ways
        cuts, options = [0, *(way[0] for way in ways)], [way[2] for way in ways]
        if self.kind == FOLDED:
            cuts += [*(way[1] for way in reversed(ways[:-1])), self.configuration.layers]
            options += [way[3] for way in reversed(ways)]
        elif self.kind == LOOPED:
            cuts += [way[1] for way in ways]
            options += [way[3] for way in ways]
        recomputed = beginning.table.options.of(options)
        return Candidate(self.configuration.placement, tuple(cuts), recomputed)
