"""The tables of prefixes, each from the one before, and the parents from which a schedule is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tightpipe.model.graph_arrays import NO_LIMIT, arrays_of
from tightpipe.model.operation import FUSED, PAIRED, SINGLE
from tightpipe.model.schedule import Schedule
from tightpipe.model.simulate import retime
from tightpipe.model.validate import validate
from tightpipe.params.budget import Budget

from ..queues import Queues, Tokens, order_of_tokens
from ..windows.window_state_kernel import weight_queues
from .extend_kernel import extend, extend_by_pairs
from .few_devices import FewDevices
from .table_kernel import ALONE, COST, FREE, FULL, ROWS, Counts, Table, bytes_of_row, empty_table, rows_of

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
    table.times[:, COST] = problem.floor if problem.floor < NO_LIMIT else 0
    return table


def latest_of(problem: FewDevices, tables: Sequence[Table]) -> list[Table]:
    """Return the last of the tables, from which the next ones are made: two if there are pairs, else one."""
    return list(tables[-2:] if problem.together.any() else tables[-1:])


def next_table(
    problem: FewDevices,
    tables: Sequence[Table],
    most: int,
    budget: Budget,
    moot: Callable[[], bool] = lambda: False,
) -> Table | None:
    """Return the prefixes with one operation more; None if they are more than `most`, or if the search ends.

    The `tables` have fewer operations, as far as they are needed (`latest_of`), each one more than the last.
    `budget` and `moot` end the search, as in `search_prefixes`.
    """
    queues, devices, params = len(problem.queues), len(problem.devices), budget.params.prefixes
    under_way = tables[-1].times.shape[1] - FREE - 2 * devices
    most = min(most, most_bytes(budget) // bytes_of_row(queues, devices, under_way))
    room = min(most, max(params.least_room, params.room * rows_of(tables[-1])))
    size = max(1, params.slice * _USUAL**2 // max(_USUAL, queues) ** 2)  # each queue is compared with each
    while room > 0:
        after = empty_table(room, queues, devices, under_way)
        ways = zip((extend, extend_by_pairs), reversed(tables), strict=False)
        for way, before, begin in ((w, b, k) for w, b in ways for k in range(0, rows_of(b), size)):
            if budget.left <= 0 or moot():
                return None
            if way(problem, before, begin, min(rows_of(before), begin + size), after) == FULL:
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

    The problem is that of all devices of the instance, each of which has W's that cost the same.
    """

    def __init__(self, queues: Queues, problem: FewDevices) -> None:
        self._queues, self._problem = queues, problem
        self._steps: list[tuple[NDArray[np.int32], Counts, Counts, Counts]] = []

    @property
    def bytes_of_row(self) -> int:
        """About how many bytes the trail keeps of each row of a table."""
        return 8 + 2 * len(self._problem.devices)

    def keep(self, table: Table) -> None:
        """Keep the parent, the last operation and the pending W's of each row of the next table."""
        rows, devices = rows_of(table), len(self._problem.devices)
        pending = table.times[:rows, FREE + devices : FREE + 2 * devices]
        # Because the trail keeps millions of rows, it stores each number in as few bytes as possible.
        parent, queue = table.parent[:rows].astype(np.int32), table.queue[:rows].astype(np.int16)
        self._steps.append((parent, queue, table.partner[:rows].astype(np.int16), pending.astype(np.int16)))

    def schedule(self, table: Table) -> Schedule | None:
        """Return the schedule that the cheapest complete prefix leads to; None if it breaks a rule."""
        rows, own = rows_of(table), self._problem.devices
        devices = len(own)
        free = table.times[:rows, FREE : FREE + devices]
        pending = table.times[:rows, FREE + devices : FREE + 2 * devices]
        ends = free + pending * own["weight"] - own["begin"]
        cost = np.where(table.alive[:rows], ends.max(axis=1), NO_LIMIT)
        row, at, path = int(cost.argmin()), len(self._steps), []
        while at > 0:
            parent, queue, partner, left = self._steps[at - 1]
            path.append((int(queue[row]), int(partner[row]), left[row]))
            at -= 2 if ALONE != partner[row] != queue[row] else 1  # a pair is two operations
            row = int(parent[row])
        instance = self._queues.instance
        schedule = retime(instance, order_of_tokens(self._queues, self._tokens(path[::-1])))
        return None if validate(instance, schedule) else schedule

    def _tokens(self, path: list[tuple[int, int, Counts]]) -> Tokens:
        """Return the words of all devices, from each operation, its partner and the W's left after it."""
        problem, weights = self._problem, weight_queues(arrays_of(self._queues.instance))
        words: list[list[tuple[int, int]]] = [[] for _ in problem.devices]
        waiting: list[list[int]] = [[] for _ in problem.devices]  # queues of the W's of each single B so far
        run = [0] * len(words)  # of these, how many have run
        for position, partner, left in path:
            queue, d = problem.queues[position], int(problem.queues[position]["device"])
            device = int(problem.devices["number"][d])
            if partner == ALONE and queue["leaves"]:
                waiting[device].append(weights[int(queue["number"])])
            until = len(waiting[device]) - int(left[d])
            words[device] += [(q, SINGLE) for q in waiting[device][run[device] : until]]
            run[device] = until
            joint = PAIRED if ALONE != partner != position else FUSED
            words[device].append((int(queue["number"]), SINGLE if partner == ALONE else joint))
            if joint == PAIRED:
                words[device].append((int(problem.queues["number"][partner]), FUSED))
            if partner != ALONE:
                words[device].append((weights[int(problem.queues["number"][partner])], SINGLE))
        for device, word in enumerate(words):
            word += [(q, SINGLE) for q in waiting[device][run[device] :]]
        word, joined = np.array([item for word in words for item in word]).T
        return Tokens(word, joined, np.cumsum([0, *map(len, words)]))
