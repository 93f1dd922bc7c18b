"""Candidates from tables of bounds, for placements with one stage or with two stages per device.

With two stages, each device must have one stage from each half of the stages. Where there are more stages, or
very many layers in a loop, all stages of a device but the first one count as one (`Joined`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from itertools import chain, count
from time import perf_counter

import numpy as np

from ..base.errors import InputError
from ..kernels.arrays import Ints
from ..params.budget import UNLIMITED, Budget, TimeUpError
from ..params.proof import PlanParams
from ..params.solve_params import DEFAULTS
from .candidate import Candidate
from .candidates_by_list import least_sum
from .configuration import Arrays, Configuration, Joined
from .device_bound_kernel import NEVER
from .model_arrays import RecomputeOptions
from .partition_kernel import BYTES, FOLDED, JOINED, LINE, LOOPED, TICKS, TURNED, Shares, expand, fill

_ROWS = 4096  # rows of the array for `expand` at first
SCRATCH = 24
"""Numbers of the working space of the loops that fill tables."""
Way = tuple[int, int, int, int]  # the new x and y, and the options of the stages taken


def kind_of(configuration: Configuration, params: PlanParams = DEFAULTS.plan) -> int | None:
    """Return how devices take their stages, e.g. `LINE`; None if no tables are made.

    Stages are joined only where partitions are too many to list.
    """
    name, chunks = configuration.placement.name, configuration.placement.stages_per_device
    if chunks == 1:
        return LINE
    if chunks == 2 and name in ("v", "wave"):
        return FOLDED
    if chunks == 2 and name == "loop" and configuration.layers <= params.most_looped:
        return LOOPED
    if configuration.partitions <= params.listed or configuration.joined is None:
        return None
    return JOINED if name == "loop" else TURNED


def simplified(configuration: Configuration, kind: int) -> Configuration:
    """Return the configuration of which tables are made, with joined stages for a kind that needs them."""
    found = configuration.joined if kind in (JOINED, TURNED) else configuration
    assert found is not None
    return found


def tightest_in_tables(
    configuration: Configuration, kind: int, until: Budget, below: int
) -> Candidate | None:
    """Return the candidate whose fullest device lacks fewest bytes for one microbatch.

    Return None if all lack at least `below` bytes. `kind` is that of `kind_of`. Where stages are joined,
    other candidates may lack fewer bytes. As for ticks, tables are made for one cap after another, which are
    `slacks` times the mean of what devices have to hold. Once a table has a partition, the next ones need
    only those in which fewer bytes are lacking.
    """
    cut = simplified(configuration, kind)
    tables, options = cut.arrays(until=until, free_ticks=True)
    least, room = tables.least, int(max(tables.room))
    held = (int(slack * int(least[-1]) / len(tables.room)) for slack in until.params.plan.slacks)
    caps, best = [1 + max(0, each - room) for each in held], None
    caps = [*dict.fromkeys(cap for cap in caps if cap < below), below]
    for middle in sorted(middles(cut, kind), key=lambda layer: abs(2 * least[layer] - least[-1])):
        arrays = Arrays(tables._replace(kind=kind, middle=middle), options)
        for cap in caps:
            table = _Table(cut, arrays, cap, BYTES, until)
            if table.bound < cap:
                best, caps = table, [table.bound]
                break
    return None if best is None else next(candidates_of(cut, kind, options, list(best.best_ways())))


def middles(configuration: Configuration, kind: int) -> range:
    """Return the layers at which the second half of the stages may begin for `LOOPED`; else 0 alone."""
    least = 1 if configuration.may_be_empty else configuration.placement.devices
    return range(least, configuration.layers - least + 1) if kind == LOOPED else range(1)


def caps_of(configuration: Configuration, slacks: Sequence[float]) -> list[int]:
    """Return the ascending caps, in ticks, of tables: multiples of a device's mean work, and then `NEVER`."""
    return [*(int(slack * configuration.mean_work) for slack in slacks), NEVER]


def start_of(configuration: Configuration, kind: int, middle: int) -> tuple[int, int]:
    """Return the remainder (x, y) before any device has taken a stage (see `partition_kernel`)."""
    return 0, {LINE: 0, FOLDED: configuration.layers, LOOPED: middle}.get(kind, configuration.layers - 1)


class _Table:
    """The least bound of the devices without stages, for every set of layers that can be left for them.

    `fill`, where the arguments `cap` and `counted` are explained, computes these bounds.
    """

    def __init__(
        self, configuration: Configuration, arrays: Arrays, cap: int, counted: int, until: Budget
    ) -> None:
        shape = configuration.placement.devices + 1, configuration.layers + 1, configuration.layers + 1
        self.tables, self.options = arrays
        self.configuration, self.cap, self.counted = configuration, cap, counted
        self._shares = Shares(np.full(shape, NEVER), *np.zeros((2, *shape), np.int64))
        self._scratch = np.zeros(SCRATCH, np.int64)
        self._rows = np.zeros((_ROWS, 8), np.int64)
        arguments = self.tables, cap, counted, self._shares, self._scratch
        fill_all(configuration, until, partial(fill, *arguments))

    @property
    def start(self) -> tuple[int, int]:
        """The remainder (x, y) before any device has taken a stage."""
        return start_of(self.configuration, self.tables.kind, self.tables.middle)

    @property
    def bound(self) -> int:
        """The least bound, in ticks or bytes, of all partitions; `NEVER` if none is below the cap."""
        return int(self._shares.least[0][self.start])

    def ways(self, device: int, x: int, y: int) -> Ints:
        """Return a row of `expand` for each way in which `device` can take its stages from (x, y)."""
        remainder = self.tables, device, x, y, self.cap, self.counted, self._shares, self._scratch
        number = expand(*remainder, self._rows)
        if number > len(self._rows):
            self._rows = np.zeros((2 * number, 8), np.int64)
            expand(*remainder, self._rows)
        return self._rows[:number]

    def best_ways(self) -> Iterator[Way]:
        """Yield how each device takes its stages in an even partition with the least bound."""
        x, y = self.start
        for device in range(self.configuration.placement.devices):
            rows = self.ways(device, x, y).tolist()
            x, y, one, two, *_ = min(rows, key=lambda row: (max(row[4], row[5]), row[6] + row[7]))
            yield x, y, one, two


def _tables(configuration: Configuration, kind: int, cap: int, until: Budget) -> Iterator[_Table]:
    tables, options = configuration.arrays(cap, until)
    for middle in middles(configuration, kind):
        arrays = Arrays(tables._replace(kind=kind, middle=middle), options)
        yield _Table(configuration, arrays, cap, TICKS, until)


def fill_all(configuration: Configuration, until: Budget, loop: Callable[[int, int, int], None]) -> None:
    """Call `loop` with the last three arguments of `fill` for all remainders, those of most devices first."""
    for device in range(configuration.placement.devices, -1, -1):
        in_slices((configuration.layers + 1) ** 2, until, partial(loop, device))


def in_slices(remainders: int, until: Budget, work: Callable[[int, int], None]) -> None:
    """Do the work from a first number up to one after the last, for all, and look at the clock between."""
    params = until.params.plan
    begin, size = 0, params.remainders
    while begin < remainders:
        until.check()
        begun, end = perf_counter(), min(begin + size, remainders)
        work(begin, end)
        short = perf_counter() - begun < params.seconds_per_look
        begin, size = end, 2 * size if short else max(1, size // 2)


@dataclass(frozen=True, slots=True)
class _Beginning:
    """A part of a candidate: the stages of the first devices, as taken from the layers of one table.

    `ways` has an entry for each of these devices, and `bound` is the largest of their bounds in ticks.
    `uneven` is the sum of the seventh numbers of their rows from `expand`. Once all devices have stages,
    `candidates` are those that begin so and are left; None before the first one is taken.
    """

    table: _Table
    bound: int = 0
    uneven: int = 0
    ways: tuple[Way, ...] = ()
    candidates: Iterator[Candidate] | None = None


_Entry = tuple[int, int, int, _Beginning]  # bound, unevenness, tie, and what begins so


class Tabled:
    """The candidates of a configuration in ascending order of their bounds, found by means of tables.

    A heap holds beginnings: the stages of the first devices, each with the least bound of all candidates that
    begin so. The beginning with the least bound is extended by one device at a time. As tables are faster to
    make for a lower cap, they are made for one cap after another, when the heap is empty. A table for a
    higher cap has the candidates below the floor again, and bounds of others may be lower in it than the
    floor. So whatever is below the floor counts as the floor, and comes only if it has not come before. Where
    very many beginnings have the least bound, one of them is completed at once. `kind` is that of `kind_of`.
    """

    def __init__(self, configuration: Configuration, kind: int, until: Budget = UNLIMITED) -> None:
        self.configuration, self.kind = configuration, kind
        self._open = True  # whether there is a further cap
        self._cut = simplified(configuration, kind)
        self._caps = caps_of(self._cut, until.params.plan.slacks)
        self._cap = self._floor = 0  # all candidates that may cost less than the floor have been taken
        if self._cut.layers < configuration.layers:  # then the tables do not have all work
            self._cap = least_sum(configuration, until)
        self._taken = set[Candidate]()
        self._ahead: Candidate | None = None  # found, with a bound at the floor, but not yet taken
        self._lengthened = 0  # beginnings lengthened since the last candidate was taken
        self._tie = count()
        self._heap: list[_Entry] = []
        self._left_out = NEVER  # the least bound of beginnings of which not all candidates are looked at
        self._refill(until)

    @property
    def bound(self) -> int:
        """The least bound, in ticks, of what is not yet taken; `NEVER` if nothing is left.

        It is less, namely the floor, as long as it is not known what a further table adds.
        """
        if self._heap and self._ahead is None:
            return min(self._left_out, self._heap[0][0])
        unknown = self._open or self._ahead is not None
        return min(self._left_out, self._floor) if unknown else self._left_out

    def take(self, until: Budget = UNLIMITED) -> Candidate | None:
        """Return the candidate with the least bound that is not yet taken; None if all are."""
        found, self._ahead, self._lengthened = self._ahead, None, 0
        while found is None:
            self._refill(until)
            if not self._heap:
                break
            found = self._step(until)
        if until.left > 0:
            # a further table with too many ways is for the next call to say: `found` lies before it
            with suppress(TimeUpError, InputError):
                self._settle(until)
        return found

    def _settle(self, until: Budget) -> None:
        """Look whether what is first in the heap came from an earlier table, so that `bound` is exact."""
        while self._taken and self._ahead is None and self._heap and self._heap[0][0] <= self._floor:
            self._ahead = self._step(until)
        if self._ahead is None:
            self._refill(until)

    def _step(self, until: Budget) -> Candidate | None:
        """Lengthen the beginning with the least bound; return its candidate if it is whole and not taken."""
        until.check()
        entry: _Entry | None = heappop(self._heap)
        while entry is not None and len(entry[-1].ways) < self.configuration.placement.devices:
            self._lengthened += 1
            entry = self._go_on(entry, at_once=self._lengthened > until.params.plan.tied)
        return None if entry is None else self._untaken(entry)

    def _refill(self, until: Budget) -> None:
        """While the heap is empty, add an empty beginning for each table below the next cap."""
        while not self._heap and self._open:
            self._floor = max(self._floor, self._cap)
            if not self._caps:
                self._open = False
                return
            tables = _tables(self._cut, self.kind, self._caps[0], until)
            found = [table for table in tables if table.bound < NEVER]
            self._cap = self._caps.pop(0)
            for table in found:
                heappush(self._heap, self._entry(table.bound, 0, _Beginning(table)))

    def _entry(self, bound: int, total: int, beginning: _Beginning) -> _Entry:
        return max(bound, self._floor), total, -next(self._tie), beginning

    def _go_on(self, entry: _Entry, *, at_once: bool) -> _Entry | None:
        """Lengthen a beginning by one device, in all ways.

        Return the best of these ways, which is not put on the heap, if the beginning is completed `at_once`.
        """
        longer = self._longer(entry[-1])
        best = min(longer, default=None) if at_once else None
        if best is not None and best[0] > entry[0]:
            best = None  # another beginning may have a lower bound
        for one in longer:
            if one is not best:
                heappush(self._heap, one)
        return best

    def _longer(self, beginning: _Beginning) -> list[_Entry]:
        table, ways, found = beginning.table, beginning.ways, list[_Entry]()
        x, y = ways[-1][:2] if ways else table.start
        for new_x, new_y, one, two, here, then, uneven, left in table.ways(len(ways), x, y).tolist():
            bound, so_far = max(beginning.bound, here), beginning.uneven + uneven
            longer = _Beginning(table, bound, so_far, (*ways, (new_x, new_y, one, two)))
            found.append(self._entry(max(bound, then), so_far + left, longer))
        return found

    def _untaken(self, entry: _Entry) -> Candidate | None:
        """Return the next candidate of a beginning with stages of all devices; None if it has been taken.

        If there are further ones, the beginning stays on the heap, behind other ones with the same bound.
        """
        bound, total, _, beginning = entry
        candidates = beginning.candidates
        if candidates is None:
            candidates = candidates_of(self._cut, self.kind, beginning.table.options, beginning.ways)
        found, following = next(candidates, None), next(candidates, None)
        if isinstance(self._cut, Joined) and not self._cut.is_exact:
            self._left_out = min(self._left_out, bound)
        elif following is not None:
            rest = replace(beginning, candidates=chain([following], candidates))
            heappush(self._heap, self._entry(bound, 2 * total + 1, rest))
        if found is None or found in self._taken:
            return None
        self._taken.add(found)
        return found


def candidates_of(
    configuration: Configuration, kind: int, options: RecomputeOptions, ways: Sequence[Way]
) -> Iterator[Candidate]:
    """Yield the candidates in which the devices take their stages in the given ways.

    There is one, unless stages are joined. `configuration` and `options` are those of the tables.
    `ways` has for each device the remainder that it leaves, and the options of its first and second stage.
    """
    if isinstance(configuration, Joined):
        yield from configuration.candidates(options, ways)
        return
    cuts, numbers = [0, *(way[0] for way in ways)], [way[2] for way in ways]
    if kind == FOLDED:
        cuts += [*(way[1] for way in reversed(ways[:-1])), configuration.layers]
        numbers += [way[3] for way in reversed(ways)]
    elif kind == LOOPED:
        cuts += [way[1] for way in ways]
        numbers += [way[3] for way in ways]
    yield configuration.candidate(tuple(cuts), options.of(numbers))
