"""The tables of prefixes, each from the one before, and the parents from which a schedule is read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tightpipe.model.graph_arrays import NO_LIMIT, arrays_of
from tightpipe.model.schedule import Schedule
from tightpipe.model.simulate import retime
from tightpipe.model.validate import validate
from tightpipe.params.budget import Budget

from ..queues import Queues, Word, order_of
from .extend_kernel import extend
from .few_devices import FewDevices, weights_of
from .table_kernel import FREE, FULL, ROWS, Counts, Table, bytes_of_row, empty_table, rows_of

_USUAL = 64  # F and B queues; where microbatches are of many classes, there are more


def first_table(problem: FewDevices) -> Table:
    """Return the table with the one prefix in which nothing has started.

    Times count from the start of one device's frame, and other devices may start before it. So the prefix has
    the least time that an operation can start at.
    """
    under_way = int(problem.paths["columns"].sum())
    table = empty_table(1, len(problem.queues), len(problem.devices), under_way)
    table.started[:], table.times[:], table.alive[:], table.counter[ROWS] = 0, 0, True, 1
    table.times[:, : FREE + len(problem.devices)] = problem.earliest.min()
    return table


def next_table(
    problem: FewDevices,
    before: Table,
    most: int,
    budget: Budget,
    moot: Callable[[], bool] = lambda: False,
) -> Table | None:
    """Return the prefixes with one operation more; None if they are too many, or if the search has to end.

    Parameters
    ----------
    problem
        The devices, and the windows.
    before
        Prefixes with equally many operations.
    most
        The most prefixes that the next table may keep. If there are more, the result is None.
    budget, moot
        What ends the search, as in `search_prefixes`.
    """
    queues, devices, params = len(problem.queues), len(problem.devices), budget.params.prefixes
    under_way = before.times.shape[1] - FREE - 2 * devices
    most = min(most, most_bytes(budget) // bytes_of_row(queues, devices, under_way))
    room = min(most, max(params.least_room, params.room * rows_of(before)))
    size = max(1, params.slice * _USUAL**2 // max(_USUAL, queues) ** 2)  # each queue is compared with each
    while room > 0:
        after = empty_table(room, queues, devices, under_way)
        for begin in range(0, rows_of(before), size):
            if budget.left <= 0 or moot():
                return None
            if extend(problem, before, begin, min(rows_of(before), begin + size), after) == FULL:
                break
        else:
            return after
        room = min(most, 2 * room) if room < most else 0
    return None


def most_bytes(budget: Budget) -> int:
    """Return the most bytes of a table or a trail; no more than an eighth of the cap on memory."""
    most, cap = budget.params.prefixes.most_bytes, budget.max_memory
    return most if cap is None else min(most, int(cap * 1e9 / 8))


class Trail:
    """The parent and the last operation of each prefix, from which a schedule is read in the end.

    Parameters
    ----------
    queues
        The instance.
    problem
        The problem of all devices of the instance, of which each has one queue of W's.
    """

    def __init__(self, queues: Queues, problem: FewDevices) -> None:
        self._queues, self._problem = queues, problem
        self._steps: list[tuple[NDArray[np.int32], Counts, Counts]] = []

    @property
    def bytes_of_row(self) -> int:
        """About how many bytes the trail keeps of each row of a table."""
        return 6 + 2 * len(self._problem.devices)

    def keep(self, table: Table) -> None:
        """Keep the parent, the queue and the numbers of pending W's of each row of the next table."""
        rows, devices = rows_of(table), len(self._problem.devices)
        pending = table.times[:rows, FREE + devices : FREE + 2 * devices]
        # Because the trail keeps millions of rows, it stores each number in as few bytes as possible.
        parent, queue = table.parent[:rows].astype(np.int32), table.queue[:rows].astype(np.int16)
        self._steps.append((parent, queue, pending.astype(np.int16)))

    def schedule(self, table: Table) -> Schedule | None:
        """Return the schedule that the cheapest complete prefix leads to; None if it breaks a rule."""
        rows, own = rows_of(table), self._problem.devices
        devices = len(own)
        free = table.times[:rows, FREE : FREE + devices]
        pending = table.times[:rows, FREE + devices : FREE + 2 * devices]
        ends = free + pending * own["weight"] - own["begin"]
        cost = np.where(table.alive[:rows], ends.max(axis=1), NO_LIMIT)
        row, path = int(cost.argmin()), []
        for parent, queue, left in reversed(self._steps):
            path.append((int(queue[row]), left[row]))
            row = int(parent[row])
        instance = self._queues.instance
        schedule = retime(instance, order_of(self._queues, self._words(path[::-1])))
        return None if validate(instance, schedule) else schedule

    def _words(self, path: list[tuple[int, Counts]]) -> list[Word]:
        """Return the words of all devices, from the queue of each operation and the W's left after it."""
        graph, problem = arrays_of(self._queues.instance), self._problem
        words: list[Word] = [[] for _ in problem.devices]
        weights = [int(weights_of(graph, device)[0]) for device in range(len(words))]
        begun = [0] * len(words)  # B's of each device so far
        for position, left in path:
            queue = problem.queues[position]
            device = int(problem.devices["number"][queue["device"]])
            begun[device] += int(queue["backward"])
            run = begun[device] - int(left[queue["device"]])
            words[device] += [weights[device]] * (run - words[device].count(weights[device]))
            words[device].append(int(queue["number"]))
        for device, q in enumerate(weights):
            words[device] += [q] * (begun[device] - words[device].count(q))
        return words
