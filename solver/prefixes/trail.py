"""The parents of all prefixes of a search over all devices, and the schedule that is read from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tightpipe.core.graph_arrays import NO_LIMIT, arrays_of
from tightpipe.core.retime import retime
from tightpipe.core.schedule import Schedule
from tightpipe.core.validate import validate

from ..queues import Queues, Word, order_of
from .few_devices import FewDevices, weights_of
from .table_kernel import FREE, Counts, Table, rows_of


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
