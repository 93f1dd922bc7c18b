"""The search over prefixes: can a few devices do all of their work within a cost, and at what cost?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tightpipe.core.budget import Budget
from tightpipe.core.operation import OpKind
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Schedule
from tightpipe.core.validate import validate

from ..queues import Queues, Word, order_of
from ..windows import Windows
from .extend_kernel import extend
from .few_devices import FewDevices, few_devices, is_whole, path_of, under_way
from .table_kernel import (
    COMPLETE,
    FREE,
    FULL,
    NEVER,
    ROWS,
    Counts,
    Table,
    bytes_of_row,
    empty_table,
    first_table,
)

_SLICE = 5_000  # prefixes that are extended between two looks at the time
_ROOM = 4  # rows of the next table per row of the last one, at first
_LEAST_ROOM = 2**12
_MOST_BYTES = 4 * 10**8  # of one table; there are two at a time


@dataclass(frozen=True, slots=True)
class PrefixSearch:
    """What a search over the prefixes of a few devices has found.

    Parameters
    ----------
    bound
        No schedule costs less, in ticks. At most one tick above the horizon, which is refuted then; None if
        the search was ended early.
    extended
        The number of prefixes that were kept; the work of the search is in proportion to it.
    schedule
        A valid schedule, if the search was about all devices and found that the horizon is possible.
    """

    bound: int | None
    extended: int
    schedule: Schedule | None = None


def search_prefixes(
    queues: Queues,
    windows: Windows,
    devices: Sequence[int],
    budget: Budget,
    most: int,
    moot: Callable[[], bool] = lambda: False,
) -> PrefixSearch:
    """Search all prefixes of the schedules of a few devices that lie inside windows.

    Parameters
    ----------
    queues
        An instance with one route that a solver models.
    windows
        Feasible windows of the instance; their horizon is the supposed cost T.
    devices
        Numbers of the devices, each once.
    budget
        Its deadline ends the search.
    most
        The most prefixes that are kept.
    moot
        Called several times a second; the search ends when `moot` returns True, as the answer is of no use
        then.

    Returns
    -------
    PrefixSearch
        Its bound holds for every schedule of the instance.

    Notes
    -----
    Suppose that a schedule costs at most T. Let its F's and B's on the devices be started one after another,
    in the sequence of their start times. After each of them the table holds a prefix with the same
    operations from which the rest of the schedule can follow at times that are no later:

    - Extending this prefix by the schedule's next operation is one of the ways that `extend` tries. It lies
      inside the windows, since the schedule does, and since the prefix is at most as late.
    - If the schedule runs fewer W's before the operation than would fit into the idle time before it, some of
      its later W's may as well run in that time. They free their memory earlier, and nothing else moves.
    - If an operation that takes no memory fits into that idle time, it may as well run there. This makes
      another schedule with the same prefix, in which the sum of the starts is smaller, so that it cannot be
      repeated forever.
    - Where a prefix is dropped because another one dominates it, the rest can follow the other one.

    So a schedule that costs at most T leads to a prefix that has started everything, whose devices, begun at
    the largest starts of their frames, end no later than T. If there is none, every schedule costs at least
    T + 1. Otherwise every schedule costs at least the least cost that such a prefix allows. For at a lower
    cost the windows are no wider and the frames begin no later; the prefix of a schedule of that cost would
    lie in these windows, too.
    """
    problem = few_devices(queues, windows, devices)
    table = first_table(len(problem.device), len(devices), under_way(queues, devices))
    trail = _Trail(queues, devices) if is_whole(queues, devices) else None
    extended = 0
    for _ in range(problem.latest.size):
        following = _next_table(problem, table, most - extended, budget, moot)
        if following is None:
            return PrefixSearch(None, extended)
        table = following
        extended += _rows(table)
        if _rows(table) == 0:
            return PrefixSearch(problem.horizon + 1, extended)
        if trail is not None:
            trail.follow(table)
    bound = min(problem.horizon + 1, int(table.counter[COMPLETE]))
    return PrefixSearch(bound, extended, None if trail is None else trail.schedule(problem, table))


def _rows(table: Table) -> int:
    return int(table.counter[ROWS])


def _next_table(
    problem: FewDevices, before: Table, most: int, budget: Budget, moot: Callable[[], bool]
) -> Table | None:
    """Return the prefixes with one operation more; None if they are too many, or if the search has to end."""
    queues, devices = len(problem.device), len(problem.weight)
    under_way = before.times.shape[1] - FREE - 2 * devices
    most = min(most, _most_bytes(budget) // bytes_of_row(queues, devices, under_way))
    room = min(most, max(_LEAST_ROOM, _ROOM * _rows(before)))
    while room > 0:
        after = empty_table(room, queues, devices, under_way)
        for begin in range(0, _rows(before), _SLICE):
            if budget.left <= 0 or moot():
                return None
            if extend(problem, before, begin, min(_rows(before), begin + _SLICE), after) == FULL:
                break
        else:
            return after
        room = min(most, 2 * room) if room < most else 0
    return None


def _most_bytes(budget: Budget) -> int:
    """Return how large a table may be: a small part of the memory that the solve may take."""
    cap = budget.max_memory
    return _MOST_BYTES if cap is None else min(_MOST_BYTES, int(cap * 1e9 / 8))


class _Trail:
    """How each prefix of all devices has come about, from which a schedule is read in the end.

    Parameters
    ----------
    queues
        The instance.
    devices
        All devices of the instance, in the sequence that the tables have.
    """

    def __init__(self, queues: Queues, devices: Sequence[int]) -> None:
        self._queues, self._devices = queues, devices
        self._steps: list[tuple[NDArray[np.int32], Counts, Counts]] = []

    def follow(self, table: Table) -> None:
        """Keep the rows of the next table: the parent, the queue, and the W's that each device has to run."""
        rows, devices = _rows(table), len(self._devices)
        pending = table.times[:rows, FREE + devices : FREE + 2 * devices]
        # Millions of rows are kept, so that each number takes no more bytes than it needs.
        parent, queue = table.parent[:rows].astype(np.int32), table.queue[:rows].astype(np.int16)
        self._steps.append((parent, queue, pending.astype(np.int16)))

    def schedule(self, problem: FewDevices, table: Table) -> Schedule | None:
        """Return the schedule of the cheapest prefix that has started everything, None if it is invalid."""
        rows, devices = _rows(table), len(self._devices)
        free = table.times[:rows, FREE : FREE + devices]
        pending = table.times[:rows, FREE + devices : FREE + 2 * devices]
        cost = np.where(
            table.alive[:rows], (free + pending * problem.weight - problem.begin).max(axis=1), NEVER
        )
        row, path = int(cost.argmin()), []
        for parent, queue, left in reversed(self._steps):
            path.append((int(queue[row]), left[row]))
            row = int(parent[row])
        instance = self._queues.instance
        schedule = retime(instance, order_of(self._queues, self._words(path[::-1])))
        return None if validate(instance, schedule) else schedule

    def _words(self, path: list[tuple[int, Counts]]) -> list[Word]:
        """Return the words of all devices, from the queue of each operation and the W's left after it."""
        queues, along = self._queues, path_of(self._queues)
        words: list[Word] = [[] for _ in self._devices]
        weights = [self._weight_queue(device) for device in range(len(words))]
        begun = [0] * len(words)  # B's of each device so far
        for position, left in path:
            queue = queues.queues[along[position]]
            device = queue.device
            begun[device] += queue.kind is OpKind.B
            run = begun[device] - int(left[self._devices.index(device)])
            words[device] += [weights[device]] * (run - words[device].count(weights[device]))
            words[device].append(along[position])
        for device, q in enumerate(weights):
            words[device] += [q] * (queues.queues[q].count - words[device].count(q))
        return words

    def _weight_queue(self, device: int) -> int:
        (queue,) = (q for q in self._queues.on(device) if self._queues.queues[q].kind is OpKind.W)
        return queue
